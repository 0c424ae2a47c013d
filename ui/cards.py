"""Cards: a chart with its sentence, its table and its menu; and the figures of a step."""

from __future__ import annotations

import streamlit as st

from charts.base import Chart, Palette, Translate
from charts.metrics import metrics, running_metrics
from inference.trace import Trace
from ui.components.figure_menu import figure_menu
from ui.components.metric_cards import metric_cards
from ui.components.mount import ASSETS

_CONFIG = {"displaylogo": False, "displayModeBar": False, "responsive": True}


def chart_card(chart: Chart, key: str, *, t: Translate = str) -> None:
    """One chart in a frame as tall as its neighbours: title, figure, sentence, and the table when it is opened.

    The sentence and the table hold token text, so nothing here parses it.
    """
    card = f"chart-card-{key}"
    with st.container(border=True, height="stretch", key=card):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            st.subheader(chart.title, anchor=False)
            if chart.figure.data:
                figure_menu(chart.title, card=card, background=_background(), t=t)
        if chart.figure.data:
            st.plotly_chart(
                chart.figure,
                width="stretch",
                theme=None,
                key=key,
                config=_CONFIG,
                alt=f"{chart.title}. {chart.description}",
            )
        st.text(chart.description)
        st.html(ASSETS / "cards.css")
        if not chart.table.empty:
            expander = st.expander(t("Table"), key=f"{key}-table", on_change="rerun", type="compact")
            if expander.open:
                expander.dataframe(chart.table, hide_index=chart.table.index.dtype.kind == "i")


def metric_row(trace: Trace, step: int, *, t: Translate, palette: Palette) -> None:
    """The six figures of a step with their trend lines, and what the text so far adds up to."""
    rows = (metrics(trace, step, t), running_metrics(trace, step, t))
    metric_cards(rows, colour=palette.categorical[0], key="metrics")


def _background() -> str:
    return (Palette.dark() if st.context.theme.type == "dark" else Palette.light()).background
