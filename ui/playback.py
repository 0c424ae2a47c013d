"""A recorded run, step by step: strip and transport, figures, charts, the step in words, branches and downloads."""

from __future__ import annotations

import io

import pandas as pd
import streamlit as st

from charts.attention import attention_map
from charts.distribution import distribution
from charts.kv_growth import kv_growth
from inference.table import table, to_csv
from inference.trace import Trace
from inference.trace_io import dump
from ui import session
from ui.branches import branch_menu, run_tree
from ui.cards import chart_card, metric_row
from ui.components.player import player
from ui.i18n import _
from ui.words import finish_words, step_table, step_words

STRIP_HEIGHT = 132


@st.fragment
def playback(trace: Trace) -> None:
    """Everything about the run on show; moving to another step runs this part of the page alone."""
    step = _strip(trace)
    metric_row(trace, step, t=_, palette=session.palette())
    layer, head = _explain(trace, step)
    _charts(trace, step, layer, head)
    with st.expander(_("All steps as a table")):
        st.dataframe(table(trace), hide_index=True)
    _downloads(trace)


def _strip(trace: Trace) -> int:
    step = player(trace, st.session_state.get("step", 0), t=_, key="player", height=STRIP_HEIGHT)
    st.session_state["step"] = step
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.text(finish_words(trace))
        with st.container(horizontal=True, width="content"):
            run_tree()
            branch_menu(trace, step)
    return step


def _explain(trace: Trace, step: int) -> tuple[int, int]:
    """The step in words and as a table, beside the choice of layer and head."""
    with st.container(horizontal=True, vertical_alignment="bottom", horizontal_alignment="distribute"):
        with st.container(width="stretch"):
            st.text(step_words(trace, step))
        layers = recorded_layers(trace)
        layer = st.selectbox(_("Layer"), layers, index=len(layers) // 2, key="layer", width=110)
        head = st.selectbox(_("Head"), range(trace.model.n_heads), key="head", width=110)
    with st.expander(_("What was fed, what is in the cache, what was chosen")):
        st.dataframe(pd.DataFrame(step_table(trace, step)), hide_index=True)
    return layer, head


def _charts(trace: Trace, step: int, layer: int, head: int) -> None:
    colours = session.palette()
    first, second, third = st.columns(3)
    with first:
        chart_card(distribution(trace, step, palette=colours, t=_), "distribution", t=_)
    with second:
        chart_card(attention_map(trace, step, layer, head, palette=colours, t=_), "attention", t=_)
    with third:
        chart_card(kv_growth(trace, step, palette=colours, t=_), "kv", t=_)


def recorded_layers(trace: Trace) -> list[int]:
    """The layers whose attention is in the record; all of them where it holds whole weights or nothing."""
    record = trace.steps[0].attention
    found = [i for i, queries in enumerate(record.queries) if queries.size] if record is not None else []
    return found or list(range(trace.model.n_layers))


def _downloads(trace: Trace) -> None:
    icon = ":material/download:"
    with st.container(horizontal=True):
        st.download_button(_("Run file"), lambda: dump(trace), "run.safetensors", icon=icon, on_click="ignore")
        st.download_button(
            _("Table as CSV"), lambda: to_csv(trace), "steps.csv", "text/csv", icon=icon, on_click="ignore"
        )
        st.download_button(
            _("Table as Parquet"), lambda: _parquet(trace), "steps.parquet", icon=icon, on_click="ignore"
        )


def _parquet(trace: Trace) -> bytes:
    buffer = io.BytesIO()
    table(trace).to_parquet(buffer, index=False)
    return buffer.getvalue()
