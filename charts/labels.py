"""Token text that is safe and true: escaped where Plotly would parse it, and a byte shown with what it completes."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from inference.tokens import Token, visible

LONGEST_LABEL = 18
_LOOK_BACK = 8  # a character has at most four bytes, so its beginning is never further back than this


def escape(text: str) -> str:
    """Text that Plotly shows literally: it parses tags, entities and TeX in every label, hover text and title."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("$", "&#36;")


def shorten(text: str, longest: int = LONGEST_LABEL) -> str:
    """The text, or its beginning and an ellipsis."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def pending(tokens: Sequence[Token]) -> bytes:
    """The bytes at the end of a context that begin a character and do not finish it."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    for token in tokens[-_LOOK_BACK:]:
        decoder.decode(b"" if token.special else token.data)
    return decoder.getstate()[0]


def in_context(token: Token, before: bytes) -> str:
    """Readable text of a token that may follow `before`: a piece of a character with the character it completes."""
    if not before or token.special:
        return token.display
    text = codecs.getincrementaldecoder("utf-8")(errors="replace").decode(before + token.data)
    return token.display if not text or "\ufffd" in text else f"{token.display} → {visible(text.encode())}"
