"""Text that people or models wrote, made literal where Streamlit reads Markdown."""

from __future__ import annotations

SPECIAL = frozenset("\\`*_{}[]()#+-.!|<>$:~^&")


def literal(text: str) -> str:
    """The text with every character escaped that Markdown, LaTeX or emoji names could take for their own."""
    return "".join(f"\\{c}" if c in SPECIAL else c for c in text)
