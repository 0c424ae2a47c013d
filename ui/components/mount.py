"""How a component's script and styles are found: `assets/components/<name>.js` and `.css`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

if TYPE_CHECKING:
    from streamlit.components.v2.types import ComponentRenderer

ASSETS = Path(__file__).resolve().parents[2] / "assets" / "components"


def mount(name: str, *parts: str) -> ComponentRenderer:
    """Register a component; its one element has the name as its class, and its script fills it.

    Args:
        parts: other scripts that its own one uses; they become one module.
    """
    scripts = [(ASSETS / f"{part}.js").read_text(encoding="utf-8") for part in (*parts, name)]
    return st.components.v2.component(
        f"inferoscope_{name}",
        html=f'<div class="{name}"></div>',
        css=(ASSETS / f"{name}.css").read_text(encoding="utf-8"),
        js="\n".join(scripts),
    )
