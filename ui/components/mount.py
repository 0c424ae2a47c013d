"""How a component's script and styles are found: `assets/components/<name>.js` and `.css`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

if TYPE_CHECKING:
    from streamlit.components.v2.types import ComponentRenderer

ASSETS = Path(__file__).resolve().parents[2] / "assets" / "components"


def mount(name: str, *parts: str, styles: tuple[str, ...] = ()) -> ComponentRenderer:
    """Register a component; its one element has the name as its class, and its script fills it.

    Args:
        parts: other scripts that its own one uses; they become one module.
        styles: other styles that its own ones build on.
    """
    return st.components.v2.component(
        f"inferoscope_{name}",
        html=f'<div class="{name}"></div>',
        css=_read("css", *styles, name),
        js=_read("js", *parts, name),
    )


def _read(kind: str, *names: str) -> str:
    return "\n".join((ASSETS / f"{name}.{kind}").read_text(encoding="utf-8") for name in names)
