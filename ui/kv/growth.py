"""How the cache of the run on show grew: the grid that fills, the measured bytes, and the formula beside them."""

from __future__ import annotations

import streamlit as st

from charts.cache_grid import cache_grid
from charts.cache_metrics import cache_metrics
from charts.kv_growth import kv_growth
from charts.layer_bytes import layer_bytes
from inference.cache_check import ELEMENT_BYTES, layer_checks
from inference.trace import Trace
from ui import session
from ui.cards import chart_card
from ui.components.metric_cards import metric_cards
from ui.components.player import player
from ui.i18n import _, note_text

STRIP_HEIGHT = 132


@st.fragment
def growth(trace: Trace) -> None:
    """The cache of one step; moving to another step runs this part of the page alone."""
    step = player(trace, st.session_state.get("step", 0), t=_, key="kv-player", height=STRIP_HEIGHT)
    st.session_state["step"] = step
    if not trace.steps:
        st.text(_("This run was stopped before its first token, so its cache was never filled."))
        return
    palette = session.palette()
    metric_cards([cache_metrics(trace, step, _)], colour=palette.categorical[0], key="cache-metrics")
    chart_card(cache_grid(trace, step, palette=palette, t=_), "cache-grid", t=_)
    _formula(trace, step)
    left, right = st.columns(2)
    with left:
        chart_card(kv_growth(trace, step, palette=palette, t=_), "cache-growth", t=_)
    with right:
        checks = layer_checks(trace, step)
        chart_card(layer_bytes(checks, palette=palette, t=_, note=note_text), "layer-bytes", t=_)


def _formula(trace: Trace, step: int) -> None:
    """The formula with this run's numbers, and whether the tensors agree with it."""
    model, checks = trace.model, layer_checks(trace, step)
    measured, computed = (sum(getattr(check, name) for check in checks) for name in ("nbytes", "formula_bytes"))
    fed, element = trace.n_prompt + step, ELEMENT_BYTES[model.dtype]
    factors = f"2 · {model.n_layers} · 1 · {fed} · {model.n_kv_heads} · {model.head_dim} · {element}"
    with st.container(border=True):
        st.text(_("Keys and values · layers · batch · positions · KV heads · head dim · bytes a number"))
        st.code(f"{factors} = {computed:,}", language=None)
        if measured == computed:
            st.text(_("Measured on the cache's tensors: {n:,} bytes, equal to the byte.", n=measured))
            return
        share = measured / computed if computed else 0.0
        st.text(_("Measured on the cache's tensors: {n:,} bytes, {share:.0%} of it.", n=measured, share=share))
        for reason in dict.fromkeys(note_text(check.why) for check in checks if check.why):
            layers = [str(c.layer) for c in checks if c.why and note_text(c.why) == reason]
            st.text(_("Layers {layers}: {reason}", layers=tuple(layers), reason=reason))
