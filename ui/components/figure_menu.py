"""The menu of a figure: it is saved as SVG or PNG by the browser, from what is on the page."""

from __future__ import annotations

from charts.base import Translate
from ui.components.mount import mount

_FIGURE_MENU = mount("figure_menu", "plotly_script")


def figure_menu(title: str, *, card: str, background: str, t: Translate) -> None:
    """Two buttons that save the Plotly figure inside the container with key `card`, its title above it."""
    words = {"svg": t("Save as SVG"), "png": t("Save as PNG"), "failed": t("The figure could not be saved.")}
    _FIGURE_MENU(
        key=f"menu-of-{card}",
        data={"card": card, "title": title, "background": background, "words": words},
        width="content",
    )
