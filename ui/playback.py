"""A recorded run, step by step: strip and transport, figures, charts, the step in words, branches and downloads."""

from __future__ import annotations

import io
from collections.abc import Callable
from time import sleep

import pandas as pd
import streamlit as st

from charts.attention import attention_map
from charts.base import Chart, Palette, Translate
from charts.distribution import distribution
from charts.export import lesson_html
from charts.kv_growth import kv_growth
from inference.table import table, to_csv
from inference.trace import Trace
from inference.trace_io import dump
from ui import session
from ui.branches import branch_menu, run_tree
from ui.cards import chart_card, metric_row
from ui.components.player import player
from ui.i18n import _, catalogue, language
from ui.words import finish_words, step_table, step_words

STRIP_HEIGHT = 132
FIRST_PAINT_S = 0.5  # in which a browser draws the strip and the figures


@st.fragment
def playback(trace: Trace) -> None:
    """Everything about the run on show; moving to another step runs this part of the page alone."""
    step = player(trace, st.session_state.get("step", 0), t=_, key="player", height=STRIP_HEIGHT)
    st.session_state["step"] = step
    metric_row(trace, step, t=_, palette=session.palette())
    layer, head = _explain(trace, step)
    _charts(trace, step, layer, head)
    _table(_("What was fed, what is in the cache, what was chosen"), lambda: pd.DataFrame(step_table(trace, step)))
    _table(_("All steps as a table"), lambda: table(trace))
    _downloads(trace, step, layer, head)


def _explain(trace: Trace, step: int) -> tuple[int, int]:
    """The step and the end of the run in words, beside the choice of layer and head and the ways to other runs."""
    layers = recorded_layers(trace)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        with st.container(width="stretch", gap="xxsmall"):
            st.text(step_words(trace, step))
            st.text(finish_words(trace))
        layer = st.selectbox(_("Layer"), layers, index=len(layers) // 2, key="layer", width=90)
        head = st.selectbox(_("Head"), range(trace.model.n_heads), key="head", width=90)
        run_tree()
        branch_menu(trace, step)
    return layer, head


def _table(title: str, make: Callable[[], pd.DataFrame]) -> None:
    """A table that is made, sent and drawn when it is opened: the first paint has no need of it."""
    expander = st.expander(title, key=title, on_change="rerun")
    if expander.open:
        expander.dataframe(make(), hide_index=True)


def _charts(trace: Trace, step: int, layer: int, head: int) -> None:
    """The charts; in a new session a moment after all else, since Plotly holds a browser up for a second."""
    if "charts drawn" not in st.session_state:
        st.session_state["charts drawn"] = True
        sleep(FIRST_PAINT_S)
    shown = charts(trace, step, layer, head, session.palette(), _)
    for column, (name, chart) in zip(st.columns(len(shown)), shown.items(), strict=True):
        with column:
            chart_card(chart, name, t=_)


def charts(trace: Trace, step: int, layer: int, head: int, palette: Palette, t: Translate) -> dict[str, Chart]:
    """The charts of a step by name."""
    return {
        "distribution": distribution(trace, step, palette=palette, t=t),
        "attention": attention_map(trace, step, layer, head, palette=palette, t=t),
        "kv": kv_growth(trace, step, palette=palette, t=t),
    }


def recorded_layers(trace: Trace) -> list[int]:
    """The layers whose attention is in the record; all of them where it holds whole weights or nothing."""
    record = trace.steps[0].attention
    found = [i for i, queries in enumerate(record.queries) if queries.size] if record is not None else []
    return found or list(range(trace.model.n_layers))


def _downloads(trace: Trace, step: int, layer: int, head: int) -> None:
    # made when they are asked for, outside the page's script: so the reader's language and colours are fetched now
    palette, chosen = session.palette(), language()

    def lesson() -> str:
        translated = catalogue(chosen).gettext
        drawn = charts(trace, step, layer, head, palette, translated)
        return lesson_html(trace, list(drawn.values()), t=translated, palette=palette, lang=chosen)

    files: list[tuple[str, Callable[[], str | bytes], str, str]] = [
        (_("Run file"), lambda: dump(trace), "run.safetensors", "application/octet-stream"),
        (_("This page as HTML"), lesson, "lesson.html", "text/html"),
        (_("Table as CSV"), lambda: to_csv(trace), "steps.csv", "text/csv"),
        (_("Table as Parquet"), lambda: _parquet(trace), "steps.parquet", "application/vnd.apache.parquet"),
    ]
    with st.container(horizontal=True):
        for label, make, name, kind in files:
            st.download_button(label, make, name, kind, icon=":material/download:", on_click="ignore", key=name)


def _parquet(trace: Trace) -> bytes:
    buffer = io.BytesIO()
    table(trace).to_parquet(buffer, index=False)
    return buffer.getvalue()
