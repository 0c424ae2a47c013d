"""Cards: a chart with its sentence, its table and its menu; and the figures of a step."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import streamlit as st

from charts.base import Chart, Palette, Translate
from charts.metrics import metrics, running_metrics
from inference.trace import Trace
from ui.components.figure_menu import figure_menu
from ui.components.metric_cards import metric_cards
from ui.components.mount import ASSETS

Draw = Callable[[], None]

_CONFIG = {"displaylogo": False, "displayModeBar": False, "responsive": True}


def _nothing() -> None:
    """Draw nothing."""


def chart_card(chart: Chart, key: str, *, t: Translate = str) -> None:
    """One chart in a frame as tall as its neighbours: title, figure, sentence, and the table when it is opened.

    The sentence and the table hold token text, so nothing here parses it.
    """
    if not chart.figure.data:
        drawn_card(chart.title, chart.description, chart.table, key, t=t)
        return

    def draw() -> None:
        alt = f"{chart.title}. {chart.description}"
        st.plotly_chart(chart.figure, width="stretch", theme=None, key=key, config=_CONFIG, alt=alt)

    def menu() -> None:
        figure_menu(chart.title, card=f"chart-card-{key}", background=_background(), t=t)

    drawn_card(chart.title, chart.description, chart.table, key, draw, menu, t=t)


def drawn_card(
    title: str, description: str, table: pd.DataFrame, key: str, draw: Draw = _nothing, menu: Draw = _nothing, *,
    t: Translate = str,
) -> None:  # fmt: skip
    """The same frame for what is not a Plotly figure: `draw` puts it between the title and the sentence."""
    with st.container(border=True, height="stretch", key=f"chart-card-{key}"):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            st.subheader(title, anchor=False)
            menu()
        draw()
        st.text(description)
        st.html(ASSETS / "cards.css")
        if not table.empty:
            expander = st.expander(t("Table"), key=f"{key}-table", on_change="rerun", type="compact")
            if expander.open:
                expander.dataframe(table, hide_index=table.index.dtype.kind == "i")


def metric_row(trace: Trace, step: int, *, t: Translate, palette: Palette) -> None:
    """The six figures of a step with their trend lines, and what the text so far adds up to."""
    rows = (metrics(trace, step, t), running_metrics(trace, step, t))
    metric_cards(rows, colour=palette.categorical[0], key="metrics")


def _background() -> str:
    return (Palette.dark() if st.context.theme.type == "dark" else Palette.light()).background
