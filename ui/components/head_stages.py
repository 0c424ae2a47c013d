"""The four stages from q · k to a weight, as four small tables; a chart library would take longer than the rest."""

from __future__ import annotations

import numpy as np

from charts.attention_stages import Panel, StagesView
from charts.base import Palette
from ui.components.mount import mount

_HEAD_STAGES = mount("head_stages", "elements", "colours")


def head_stages(view: StagesView, *, palette: Palette, key: str) -> None:
    """Draw the four matrices."""
    data = {
        "title": view.title,
        "queries": view.queries,
        "keys": view.keys,
        "panels": [_panel(panel, shares=number == len(view.panels) - 1) for number, panel in enumerate(view.panels)],
        "sequential": list(palette.sequential),
        "diverging": list(palette.diverging),
    }
    _HEAD_STAGES(key=key, data=data)


def _panel(panel: Panel, shares: bool) -> dict[str, object]:
    """Levels are 0 to 255 of the colours, -1 where hidden; weights have none below 0."""
    place = panel.shades if shares else (panel.shades + 1) / 2
    levels = np.where(np.isnan(place), -1, np.round(255 * np.nan_to_num(place))).astype(int)
    return {"name": panel.name, "words": panel.words, "levels": levels.tolist(), "shares": shares}
