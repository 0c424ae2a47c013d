"""Batching and serving: requests through several policies, simulated from measured costs; and one batch for real."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st

from charts.serving import latency_chart, schedule_chart, serving_metrics
from charts.sweep_times import place_text
from inference.errors import N_, InferenceError
from inference.measured import Sweep
from inference.serving import (
    MAX_ARRIVAL_S,
    MAX_NEW,
    MAX_PROMPT,
    Schedule,
    ServingRequest,
    continuous,
    one_at_a_time,
    static,
)
from inference.step_costs import NEEDED, StepCosts
from inference.trace import Trace
from ui import session
from ui.cards import chart_card
from ui.components.metric_cards import metric_cards
from ui.i18n import _, error_text, sentences
from ui.literal import literal
from ui.timing.batched import batched
from ui.timing.measuring import can_run, measured
from ui.timing.sweeps import KINDS, queue_usual

USUAL_SLOTS, MOST_WAIT_S = 4, 60.0
CHUNKS = (0, 16, 32, 64, 128, 256)
# arrival in seconds, prompt tokens, new tokens
PRESETS: dict[str, Sequence[tuple[float, int, int]]] = {
    N_("All at once"): [(0, 64, 24), (0, 32, 48), (0, 128, 12), (0, 16, 32), (0, 96, 20), (0, 48, 40)],
    N_("One long among short"): [(0, 32, 96), (0, 32, 12), (0, 32, 12), (0, 32, 12), (0, 32, 12), (0, 32, 12)],
    N_("A stream of arrivals"): [(0.4 * i, 48, new) for i, new in enumerate((24, 16, 40, 12, 32, 20, 28, 16))],
    N_("A long prompt arrives"): [(0, 32, 40), (0, 32, 40), (0, 32, 40), (1.5, 256, 12)],
}


def serving(trace: Trace) -> None:
    """The simulation, once its costs are measured, and below it the real batch."""
    if not can_run(trace):
        return
    sweeps, costs = _sweeps(trace), None
    try:
        costs = StepCosts.of(sweeps)
    except InferenceError as error:
        _offer(trace, sweeps, error_text(error))
    if costs is not None:
        simulation(costs)
    batched(trace, costs)


def _sweeps(trace: Trace) -> dict[str, Sweep]:
    """The needed sweeps that are there; of those being measured, how far they are."""
    found = {name: measured(f"sweep {name}", trace, _(KINDS[name].title)) for name in NEEDED}
    return {name: sweep for name, sweep in found.items() if sweep is not None}


def _offer(trace: Trace, sweeps: dict[str, Sweep], why: str) -> None:
    """What is lacking, and one button that measures it."""
    missing = [name for name in NEEDED if name not in sweeps] or list(NEEDED)
    jobs = [session.work(f"sweep {name}") for name in missing]
    with st.container(border=True):
        st.subheader(_("Several requests, scheduled"), anchor=False)
        st.text(
            _(
                "Requests share the machine one at a time, in static batches or in a continuous batch. The schedules "
                "are simulated with what a prefill and a step of 1 to 16 sequences cost here, which is measured first."
            )
        )
        st.text(why)
        busy = any(job is not None and not job.ended for job in jobs)
        if st.button(_("Measure what is missing"), type="primary", icon=":material/timer:", disabled=busy):
            for name in missing:
                queue_usual(name, trace)
            st.rerun()


@st.fragment
def simulation(costs: StepCosts) -> None:
    """Requests and settings, then what each policy makes of them."""
    st.text(
        _(
            "A simulation: no request is run. The clock moves by the cost of each pass, measured on {place}.",
            place=place_text(costs.place, _),
        )
    )
    with st.container(horizontal=True, vertical_alignment="bottom"):
        preset = st.selectbox(_("Requests"), list(PRESETS), format_func=_, key="serving-preset", width=220)
        slots = st.slider(_("Slots"), 1, costs.largest_batch, min(USUAL_SLOTS, costs.largest_batch), key="slots",
                          width=220, help=_("Most requests in a batch"))  # fmt: skip
        wait_s = st.number_input(_("Static: wait for a full batch (s)"), 0.0, MOST_WAIT_S, 0.0, 0.5, key="batch-wait",
                                 width=230)  # fmt: skip
        chunk = st.selectbox(_("Continuous: prefill chunk"), CHUNKS, key="serving-chunk", width=210,
                             format_func=lambda n: f"{n}" if n else _("whole prompt"))  # fmt: skip
    left, right = st.columns([1, 2])
    with left:
        requests, problem = _table(preset)
    try:
        schedules = [] if problem else _schedules(requests, costs, slots, wait_s, chunk)
    except InferenceError as error:
        schedules, problem = [], error_text(error)
    if problem:
        right.error(literal(problem))
        return
    palette = session.palette()
    with left:
        rows = [[metric] for metric in serving_metrics(schedules, _)]
        metric_cards(rows, colour=palette.categorical[0], key="serving-metrics")
    with right:
        chart_card(schedule_chart(schedules, costs.place, palette=palette, t=_), "serving-schedule", t=_)
    _extrapolated(requests, costs)
    chart_card(latency_chart(schedules, palette=palette, t=_), "serving-latency", t=_)


def _schedules(
    requests: list[ServingRequest], costs: StepCosts, slots: int, wait_s: float, chunk: int
) -> list[Schedule]:
    found = [
        one_at_a_time(requests, costs),
        static(requests, costs, slots, wait_s),
        continuous(requests, costs, slots),
    ]
    return [*found, continuous(requests, costs, slots, chunk)] if chunk else found


def _table(preset: str) -> tuple[list[ServingRequest], str]:
    """The requests as edited, and what is wrong with them."""
    column = st.column_config
    columns: dict[str, Any] = {
        "arrival": column.NumberColumn(_("arrival (s)"), min_value=0.0, max_value=MAX_ARRIVAL_S, format="%.2f"),
        "prompt": column.NumberColumn(_("prompt tokens"), min_value=1, max_value=MAX_PROMPT, step=1),
        "new": column.NumberColumn(_("new tokens"), min_value=1, max_value=MAX_NEW, step=1),
    }
    rows = pd.DataFrame(list(PRESETS[preset]), columns=list(columns)).astype({"arrival": float})
    with st.container(border=True, key="chart-card-serving-requests"):
        st.subheader(_("Requests"), anchor=False)
        st.text(_("Change, add or remove rows."))
        edited = st.data_editor(
            rows, num_rows="dynamic", hide_index=True, column_config=columns, key=f"serving-requests {preset}",
        )  # fmt: skip
    return requests_of(edited)


def requests_of(edited: pd.DataFrame) -> tuple[list[ServingRequest], str]:
    """The rows as requests, or what the first incomplete one lacks."""
    for number, complete in enumerate(edited.notna().all(axis=1), start=1):
        if not complete:
            return [], _("Row {n} lacks a number: fill it in, or remove the row.", n=number)
    rows = edited.itertuples(index=False)
    return [ServingRequest(float(arrival), int(prompt), int(new)) for arrival, prompt, new in rows], ""


def _extrapolated(requests: Sequence[ServingRequest], costs: StepCosts) -> None:
    """Say so where a prompt or a context is longer than what was measured."""
    said = []
    prompt = max(one.n_prompt for one in requests)
    context = max(one.n_prompt + one.n_new for one in requests)
    if prompt > costs.longest_prompt:
        said.append(_("Prefills above {n} tokens follow the fit beyond what was measured.", n=costs.longest_prompt))
    if context > costs.longest_context:
        said.append(_("Steps above {n} positions follow the fit beyond what was measured.", n=costs.longest_context))
    if said:
        st.text(sentences(said))
