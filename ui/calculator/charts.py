"""The calculator's three charts, and the controls that only they have: GPU, weights, and other KV heads."""

from __future__ import annotations

from typing import Any

import numpy as np
import streamlit as st

from charts.base import Chart, empty_chart, size
from charts.gpu_fit import Scenario, gpu_fit
from charts.kv_curves import Curve, kv_curves
from charts.kv_engines import kv_engines
from inference.errors import CalculatorError
from inference.kv_fit import PASS_TOKENS, RESERVE_PERCENT, WEIGHT_TYPES, Deployment
from inference.kv_layers import MAX_TOKENS
from inference.kv_variants import query_heads, variants, with_kv_heads
from ui import session
from ui.calculator.count import Count
from ui.calculator.sources import gpus
from ui.cards import chart_card
from ui.i18n import _, sentences

KEEP: Any = {"persist_state": "session"}
POINTS = 33  # of a curve, beside the corners that windows make


def charts(count: Count) -> None:
    """GPU and other KV heads, three cards side by side, and how activations are estimated."""
    _row(count)
    cards = {"curves": _curves(count), "engines": _engines(count), "fit": _fit(count)}
    for column, (name, chart) in zip(st.columns(len(cards)), cards.items(), strict=True):
        with column:
            chart_card(chart, f"calculator-{name}", t=_)
    st.text(_estimate(count))


def _row(count: Count) -> None:
    """GPU, weights, and what other KV heads would save."""
    own, layout = count.source.params, count.source.layout
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.selectbox("GPU", list(gpus()), key="calculator gpu", width=260, **KEEP)
        st.selectbox(_("Weights in"), list(WEIGHT_TYPES), key="calculator weights", width=150, **KEEP)
        st.number_input(
            _("Parameters, billions"), 0.001, 100_000.0, None, format="%.3f", key="calculator billions", width=190,
            placeholder=f"{own / 1e9:.3f}" if own else _("not known"), **KEEP,
        )  # fmt: skip
        if not layout.attention:
            return
        heads = query_heads(layout)
        options = [n for n in range(1, heads + 1) if heads % n == 0]
        usual = options.index(8) if 8 in options and layout.attention == "MHA" else len(options) - 1
        other = st.selectbox(
            _("With so many KV heads"), options, usual, key=f"calculator other heads {heads}", width=190
        )
        st.text(_saving(count, other), width="stretch")


def _curves(count: Count) -> Chart:
    layout, plan, at = count.source.layout, count.plan, count.mean
    last = min(max(2 * at, 1024), MAX_TOKENS)
    corners = {layer.window for layer in layout.layers if layer.window and layer.window < last}
    tokens = np.union1d(np.linspace(1, last, POINTS).astype(np.int64), np.array([at, *corners], dtype=np.int64))
    curves = {}
    for name, variant in variants(layout).items():
        heads = 0 if name == "MLA" else max(layer.kv_heads for layer in variant.layers)
        try:
            shard = variant.shard(plan.tp)
            nbytes = [
                shard.bytes(
                    int(n), count.sequences, plan.elements, encoder_tokens=plan.encoder_tokens, page_size=plan.page
                )
                for n in tokens
            ]
        except CalculatorError:  # its heads cannot be divided among the devices, or blocks do not divide its sizes
            continue
        curves[name] = Curve(heads, np.array(nbytes, dtype=np.float64), nbytes[int(np.searchsorted(tokens, at))])
    if not curves:
        sentence = _("The model has no attention that could be of another type.")
        return empty_chart(_("Memory by attention type"), sentence, session.palette())
    return kv_curves(curves, tokens, at, layout.attention, palette=session.palette(), t=_)


def _engines(count: Count) -> Chart:
    plan = count.plan
    engines = count.source.layout.engine_bytes(
        count.tokens, count.batch, plan.elements, encoder_tokens=plan.encoder_tokens, page_size=plan.page or 16,
        tensor_parallel=plan.tp,
    )  # fmt: skip
    return kv_engines(count.nbytes, engines, palette=session.palette(), t=_)


def params(count: Count) -> int | None:
    """Parameters: those typed, else the model's own, where they are known."""
    billions = count.plan.billions
    return round(billions * 1e9) if billions else count.source.params


def _fit(count: Count) -> Chart:
    plan, n_params, palette = count.plan, params(count), session.palette()
    if n_params is None:
        sentence = _("The number of parameters is not known. Type it in the field above.")
        return empty_chart(_("Does it fit?"), sentence, palette)
    memory = gpus()[plan.gpu]
    deployment = Deployment(
        count.source.layout, n_params, plan.weights, count.source.width, memory, plan.elements, plan.encoder_tokens,
        plan.page, plan.tp,
    )  # fmt: skip
    name = plan.gpu if plan.tp == 1 else f"{plan.tp} × {plan.gpu}"
    return gpu_fit(scenarios(count, deployment), memory, deployment.usable, name, palette=palette, t=_)


def scenarios(count: Count, deployment: Deployment) -> list[Scenario]:
    """What is asked, the longest context of as many sequences, and the largest batch of as long ones."""
    batch, length = count.sequences, count.longest
    asked = _("as asked: {n} tokens", n=f"{count.total:,}")
    found = [Scenario(asked, count.mean, batch, deployment.need(count.tokens, count.batch))]
    longest, most = deployment.longest(batch), deployment.largest_batch(length)
    if longest == MAX_TOKENS:
        found.append(
            Scenario(
                _("longest context: no limit, the windows are full"), longest, batch, deployment.need(longest, batch)
            )
        )
    elif longest:
        name = _("longest context: {batch} × {tokens}", batch=f"{batch:,}", tokens=f"{longest:,}")
        found.append(Scenario(name, longest, batch, deployment.need(longest, batch)))
    if most:
        name = _("largest batch: {batch} × {tokens}", batch=f"{most:,}", tokens=f"{length:,}")
        found.append(Scenario(name, length, most, deployment.need(length, most)))
    return found


def _saving(count: Count, heads: int) -> str:
    plan = count.plan
    try:
        shard = with_kv_heads(count.source.layout, heads).shard(plan.tp)
        other = shard.bytes(
            count.tokens, count.batch, plan.elements, encoder_tokens=plan.encoder_tokens, page_size=plan.page
        )
    except CalculatorError:
        return _("{n} KV heads cannot be counted with these devices and types.", n=heads)
    values = {
        "n": heads,
        "other": size(other),
        "own": size(count.nbytes),
        "difference": size(abs(other - count.nbytes)),
    }
    if other < count.nbytes:
        return _("With {n} KV heads the cache would take {other} instead of {own}: {difference} saved.", **values)
    if other > count.nbytes:
        return _("With {n} KV heads the cache would take {other} instead of {own}: {difference} more.", **values)
    return _("With {n} KV heads the cache takes what it takes now, {own}.", n=heads, own=values["own"])


def _estimate(count: Count) -> str:
    text = _(
        "Weights and cache are exact; activations are an estimate: one layer, at most {tokens} positions a pass, "
        "{width} values each in 16 bits. A reserve of {percent} % is left for the runtime.",
        tokens=f"{PASS_TOKENS:,}",
        width=f"{count.source.width:,}",
        percent=RESERVE_PERCENT,
    )
    if count.source.width_known:
        return text
    return sentences((text, _("The feed-forward size is not known: 4 hidden sizes are taken.")))
