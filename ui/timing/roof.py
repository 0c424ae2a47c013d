"""The roofline of this machine, measured; and what published figures of other devices allow, computed."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from charts.roofline import Expected, expected_chart, roofline
from inference.errors import InferenceError
from inference.kv_fit import WEIGHT_TYPES, Deployment
from inference.roofline import Costs, Device
from inference.trace import Trace
from ui import session
from ui.calculator.plan import RUN, Plan
from ui.calculator.sources import Source, catalogue, find
from ui.cards import chart_card
from ui.i18n import _, error_text
from ui.literal import literal
from ui.timing.measuring import can_run, measure_button, measured
from ui.worker import Work

if TYPE_CHECKING:
    from inference.device_probe import Roof
    from inference.models import LoadedModel

POSITIONS = (64, 128, 256, 512, 1024)
USUAL, USUAL_MODEL = 128, "Llama 3.1 8B"
MOST_CONTEXT = 10_000_000
PASSES = 4 + 1  # of the prefill that is measured, the warming one and the cache's included


def roof(trace: Trace) -> None:
    """This machine, then others."""
    st.text(
        _(
            "A pass takes at least as long as reading its bytes, and as computing its FLOPs. Decode reads every weight "
            "for one token and is bound by reading; prefill shares that reading among all prompt tokens."
        )
    )
    left, right = st.columns(2)
    with left:
        _this_machine(trace)
    with right:
        _others(trace)


def _this_machine(trace: Trace) -> None:
    if not can_run(trace):
        return
    room = (trace.model.context_length or POSITIONS[-1]) - 16
    offered = [n for n in POSITIONS if n <= min(room, session.limits().prompt_tokens)]
    if not offered:
        st.text(_("The model's context is too short for a sweep."))
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        usual = offered.index(USUAL) if USUAL in offered else 0
        n = st.selectbox(_("Prompt tokens"), offered, usual, key="roof-tokens", width=160)
        measure_button("roof", _("Measure this machine"), trace, _work(trace, n), n * PASSES)
    found: Roof | None = measured("roof", trace, _("Measuring bandwidth, throughput, prefill and decode"))
    if found is not None:
        chart_card(roofline(found, palette=session.palette(), t=_), "roofline", t=_)
        return
    with st.container(border=True, height="stretch"):
        st.subheader(_("Roofline of this machine"), anchor=False)
        st.text(_("A short probe sums a long vector and multiplies two matrices; then the model runs below both."))


def _work(trace: Trace, n: int) -> Work:
    ids = np.array([token.id for token in trace.tokens], dtype=np.int64)

    def work(model: LoadedModel, progress: Callable[[float], None], cancelled: Callable[[], bool]) -> Roof | None:
        from inference.device_probe import measure_roof

        return measure_roof(model, ids, n, progress, cancelled)

    return work


def _others(trace: Trace) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        names = [RUN, *catalogue()]
        name = st.selectbox(
            _("Model"), names, names.index(USUAL_MODEL), key="roof-model", width=220,
            format_func=lambda one: trace.model.name if one == RUN else one,
        )  # fmt: skip
        weights = st.selectbox(_("Weights"), list(WEIGHT_TYPES), 1, key="roof-weights", width=130)
        context = st.number_input(_("Positions in the cache"), 1, MOST_CONTEXT, 4096, key="roof-context", width=170)
    try:
        source = find(Plan(model=name), trace)
        found = [_expected(source, name, weights, context, row) for row in _gpus()]
    except InferenceError as error:
        st.error(literal(error_text(error)))
        return
    chart_card(expected_chart(found, source.name, context, palette=session.palette(), t=_), "expected", t=_)


@cache
def _gpus() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((session.ASSETS / "gpus.json").read_text(encoding="utf-8"))
    return rows


def _expected(source: Source, name: str, weights: str, context: int, row: dict[str, Any]) -> Expected:
    params = source.params or 0
    active = params if name == RUN else catalogue()[name].get("active_params", params)
    costs = Costs.of_figures(source.layout, active, weights)
    flops, gb = row["fp16_dense_tflops"], row["vram_gb"]
    device = Device(row["name"], row["bandwidth_gb_s"] * 1e9, flops and flops * 1e12, gb and gb * 10**9)
    largest = None
    if device.memory:
        largest = Deployment(source.layout, params, weights, source.width, device.memory).largest_batch(context)
    speed = device.bandwidth / costs.decode(context).bytes
    return Expected(device.name, speed, costs.crossover(device, context), largest)
