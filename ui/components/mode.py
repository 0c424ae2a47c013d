"""What keeps the charts in the reader's colours: a change between light and dark runs the page again."""

from __future__ import annotations

from ui.components.mount import mount

_mount = mount("mode")


def follow_mode() -> None:
    """Call once a page; Streamlit repaints its own elements alone, and charts are coloured by the server."""
    _mount(key="mode", on_changed_change=lambda: None, height=1)
