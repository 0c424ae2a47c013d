"""The experts page below its title: a layer and a token to look at, the figures, and four charts."""

from __future__ import annotations

import streamlit as st

from charts.experts import expert_metrics, groups_map, load_chart, path_chart, routing_map
from inference.errors import N_
from inference.experts import (
    Group,
    LayerLoad,
    Routing,
    by_kind,
    by_line,
    layer_load,
    routed_layers,
    routing,
    routing_at,
)
from inference.trace import Trace
from ui import session
from ui.attention.memory import remembered
from ui.cards import chart_card
from ui.components.metric_cards import metric_cards
from ui.experts.offer import offer
from ui.i18n import _

GROUPS = {"line": N_("lines"), "kind": N_("kinds of token")}


def explorer(trace: Trace) -> None:
    """Everything about the router of the run on show; without one, why, and a run that has one."""
    if not routed_layers(trace):
        offer(trace)
        return
    _layers(trace)


@st.fragment
def _layers(trace: Trace) -> None:
    """Moving to another layer or token runs this part of the page alone."""
    names = routed_layers(trace)
    loads: list[LayerLoad] = remembered(trace, "expert loads", lambda: [layer_load(trace, name) for name in names])
    layer, position, grouping = _controls(trace, names, loads[0].n_tokens)
    at, palette = names.index(layer), session.palette()
    found = routing(trace, layer)
    metric_cards([expert_metrics(loads, at, _)], colour=palette.categorical[0], key="expert-metrics")
    left, right = st.columns([6, 5])
    with left:
        chart_card(routing_map(trace, found, position, palette=palette, t=_), "expert-map", t=_)
    with right:
        path = routing_at(trace, position, found.gate)
        chart_card(path_chart(trace, path, position, palette=palette, t=_), "expert-path", t=_)
        chart_card(groups_map(found, _groups(trace, found, grouping), palette=palette, t=_), "expert-groups", t=_)
    chart_card(load_chart(found, palette=palette, t=_), "expert-load", t=_)


def _controls(trace: Trace, names: tuple[int, ...], n: int) -> tuple[int, int, str]:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        layer = st.selectbox(_("Layer"), names, index=len(names) // 2, key="expert-layer", width=100)
        st.session_state["expert-position"] = min(st.session_state.get("expert-position", trace.n_prompt - 1), n - 1)
        position = st.slider(_("Token at position"), 0, n - 1, key="expert-position", width="stretch") if n > 1 else 0
        grouping = st.segmented_control(
            _("Compare"), list(GROUPS), format_func=lambda name: _(GROUPS[name]), default="line", required=True,
            key="expert-groups-by",
        )  # fmt: skip
    return layer, position, grouping


def _groups(trace: Trace, found: Routing, grouping: str) -> list[Group]:
    tokens = trace.tokens[: len(found.gates)]
    if grouping == "line":
        return by_line(tokens)
    return [Group(_(group.name), group.positions) for group in by_kind(tokens)]
