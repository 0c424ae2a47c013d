"""Figures as a row of cards with trend lines. Text is set as text: a token can be anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from charts.metrics import Metric
from charts.trend import HEIGHT, WIDTH
from ui.components.mount import mount

_METRIC_CARDS = mount("metric_cards", "elements")


def metric_cards(rows: Sequence[Sequence[Metric]], *, colour: str, key: str) -> None:
    """Draw rows of cards; `colour` is that of the trend lines."""
    cards = [[asdict(metric) for metric in row] for row in rows]
    _METRIC_CARDS(key=key, data={"rows": cards, "colour": colour, "box": [WIDTH, HEIGHT]})
