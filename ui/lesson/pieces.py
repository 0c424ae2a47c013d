"""What the stations are made of: a slider, a low chart, tokens with their probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from charts.base import Chart
from inference.tokens import Token
from inference.trace import Floats
from ui.cards import chart_card
from ui.components.token_rows import Chip
from ui.i18n import _
from ui.lesson.station import KEEP, Scene

LOW = 300  # pixels


def slider(scene: Scene, label: str, low: Any, high: Any, first: Any, key: str, **more: Any) -> Any:
    """A slider whose value stays; on paper its first value, without the slider."""
    if scene.printed:
        return first
    st.session_state.setdefault(key, first)
    return st.slider(label, low, high, key=key, **more, **KEEP)


def card(chart: Chart, key: str, height: int | None = LOW) -> None:
    """A chart that leaves room for what can be tried; `None` keeps its own height."""
    if height is not None:
        chart.figure.update_layout(height=height)
    chart_card(chart, key, t=_)


def shares(tokens: Sequence[Token], probs: Floats, marked: Token | None = None) -> list[Chip]:
    """Tokens with their probabilities [V]; those that a setting removed are dotted."""
    return [_share(token, float(probs[token.id]), token is marked) for token in tokens]


def _share(token: Token, prob: float, marked: bool) -> Chip:
    if not prob:
        return Chip(token.display, "–", "hidden", 0.0)
    return Chip(token.display, f"{prob:.2f}", "chosen" if marked else "plain", prob)
