"""What the stations are made of: a slider, a low chart, tokens with their probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st

from charts.base import Chart
from inference.tokens import Token
from inference.trace import Floats
from ui.cards import chart_card, drawn_card
from ui.components.paper_figure import paper_figure
from ui.components.token_rows import Chip, Row, token_rows
from ui.i18n import _
from ui.lesson.station import KEEP, Scene

LOW = 300  # pixels
ON_PAPER, PAPER_WIDTH = 0.84, 560  # so that two stations fit a page; pixels


def slider(scene: Scene, label: str, low: Any, high: Any, first: Any, key: str, **more: Any) -> Any:
    """A slider whose value stays; on paper its first value, without the slider."""
    if scene.printed:
        return first
    st.session_state.setdefault(key, first)
    return st.slider(label, low, high, key=key, **more, **KEEP)


def card(scene: Scene, chart: Chart, key: str, height: int | None = LOW) -> None:
    """A chart that leaves room for what can be tried; `None` keeps its own height. On paper the figure alone."""
    if height is not None:
        chart.figure.update_layout(height=height * ON_PAPER if scene.printed else height)
    if not scene.printed:
        chart_card(chart, key, t=_)
        return

    def draw() -> None:
        paper_figure(chart, width=PAPER_WIDTH, t=_, key=key)

    drawn_card(chart.title, chart.description, pd.DataFrame(), key, draw)


def tokens_card(scene: Scene, title: str, rows: Sequence[Row], key: str, said: str = "", table: Any = None) -> None:
    """Rows of tokens in a chart's frame; on paper without the table."""
    shown = pd.DataFrame() if table is None or scene.printed else table
    drawn_card(title, said, shown, key, lambda: token_rows(rows, label=title, key=f"{key}-rows"), t=_)


def shares(tokens: Sequence[Token], probs: Floats, marked: Token | None = None) -> list[Chip]:
    """Tokens with their probabilities [V]; those that a setting removed are dotted."""
    return [_share(token, float(probs[token.id]), token is marked) for token in tokens]


def _share(token: Token, prob: float, marked: bool) -> Chip:
    if not prob:
        return Chip(token.display, "–", "hidden", 0.0)
    return Chip(token.display, f"{prob:.2f}", "chosen" if marked else "plain", prob)
