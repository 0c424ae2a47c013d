"""What a browser tab does by itself: it follows light and dark, and keeps in its address what a reload needs."""

from __future__ import annotations

from collections.abc import Mapping

from ui.components.mount import mount

_TAB = mount("tab")


def tab(address: Mapping[str, str], *, page: str) -> None:
    """Call once a page.

    A change between light and dark runs the page again: Streamlit repaints its own elements alone, and charts are
    coloured by the server.

    Args:
        address: parameters that stay in the tab's address.
        page: the open page, whose address has none of them yet when it is opened.
    """
    _TAB(key="tab", data={"address": dict(address), "page": page}, on_changed_change=lambda: None, height=1)
