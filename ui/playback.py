"""A recorded run, step by step: the strip, the metrics, the charts, the table and the downloads."""

from __future__ import annotations

import io

import streamlit as st

from charts.attention import attention_map
from charts.distribution import distribution
from charts.kv_growth import kv_growth
from inference.errors import InferenceError
from inference.table import table, to_csv
from inference.trace import Trace
from inference.trace_io import dump
from ui import session
from ui.i18n import _, error_text
from ui.live import finish_text


def playback(trace: Trace) -> None:
    """Everything about the run on show."""
    step = _transport(trace)
    st.text(words(trace, step))
    _charts(trace, step)
    with st.expander(_("Token table")):
        st.dataframe(table(trace), hide_index=True)
    _downloads(trace)


def _transport(trace: Trace) -> int:
    with st.container(border=True):
        last = len(trace.steps) - 1
        step = st.slider(_("Step"), 0, last, min(st.session_state.get("step", 0), last), key="step") if last else 0
        st.text("".join(t.display for t in trace.tokens[: trace.n_prompt + step + 1]))
        st.text(finish_text(trace))
    return int(step)


def _charts(trace: Trace, step: int) -> None:
    colours = session.palette()
    columns = st.columns(3)
    makers = [
        lambda: distribution(trace, step, palette=colours, t=_),
        lambda: attention_map(trace, step, _layers(trace)[0], 0, palette=colours, t=_),
        lambda: kv_growth(trace, step, palette=colours, t=_),
    ]
    for number, (column, make) in enumerate(zip(columns, makers, strict=True)):
        with column, st.container(border=True, height="stretch"):
            try:
                chart = make()
            except InferenceError as error:
                st.text(error_text(error))
                continue
            st.subheader(chart.title, anchor=False)
            st.plotly_chart(chart.figure, key=f"chart {number}", theme=None)
            st.caption(chart.description)


def _layers(trace: Trace) -> list[int]:
    """The layers whose attention was recorded."""
    record = trace.steps[0].attention
    found = [i for i, q in enumerate(record.queries) if q.size] if record is not None else []
    return found or [0]


def words(trace: Trace, step: int) -> str:
    """What this step fed, what the cache holds after it, and what it chose."""
    record = trace.steps[step]
    chosen, positions = trace.vocabulary.token(record.token_id), int(record.kv.positions.max(initial=0))
    fed = (
        _("Prefill fed {n} prompt tokens", n=len(record.fed_ids))
        if step == 0
        else _("Decode fed one token, {token}", token=trace.tokens[trace.n_prompt + step - 1].display)
    )
    return _(
        "{fed}; the cache holds {positions} positions; {token} (id {id}) was chosen and is not in the cache yet.",
        fed=fed, positions=positions, token=chosen.display, id=chosen.id,
    )  # fmt: skip


def _downloads(trace: Trace) -> None:
    with st.container(horizontal=True):
        st.download_button(_("Run file"), lambda: dump(trace), "run.safetensors", icon=":material/download:")
        st.download_button(_("Table (CSV)"), lambda: to_csv(trace), "steps.csv", "text/csv", icon=":material/download:")
        st.download_button(_("Table (Parquet)"), lambda: _parquet(trace), "steps.parquet", icon=":material/download:")


def _parquet(trace: Trace) -> bytes:
    buffer = io.BytesIO()
    table(trace).to_parquet(buffer, index=False)
    return buffer.getvalue()
