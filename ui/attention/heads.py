"""The map of heads, and the head that is open: its matrix, what a token reads, and the way from q · k to a weight."""

from __future__ import annotations

import secrets
from dataclasses import replace
from functools import partial

import numpy as np
import streamlit as st

from charts import heads as maps
from charts.attention_head import head_view
from charts.attention_stages import stages_view
from inference.attention_rows import LayerRows, axis_of, n_fed, pooled, recorded_layers, stages
from inference.errors import N_, TraceError
from inference.head_measures import MEASURES, HeadMap, head_map
from inference.trace import Floats, Trace
from ui import session
from ui.attention.memory import known, remembered
from ui.cards import drawn_card
from ui.components import head_map as map_component
from ui.components import head_view as view_component
from ui.components.head_stages import head_stages
from ui.components.head_view import Place, place_of
from ui.i18n import _, error_text, note_text, sentences

VIEW, MAP = "head-view", "map"
PAIRS = 6  # queries and keys of the four stages
ORDERS = {"place": N_("in place"), "highest": N_("highest first"), "lowest": N_("lowest first")}
KEYS = {"nearest": N_("nearest keys"), "strongest": N_("strongest keys"), "first": N_("first keys")}


@st.fragment
def heads(trace: Trace, step: int) -> None:
    """The map beside one head; what the run does not hold is said instead."""
    layers = recorded_layers(trace)
    if not layers:
        st.text(_why_none(trace))
        return
    layer, head, measure, order = _controls(trace, layers)
    left, right = st.columns([4, 11])
    parts = [
        (left, partial(_map, trace, layer, head, measure, order)),
        (right, partial(_head, trace, step, layer, head)),
    ]
    # the map is what a reader who has just come waits for; after a click on it, it is the head
    for column, draw in reversed(parts) if known(trace, MAP) else parts:
        with column:
            draw()


def _why_none(trace: Trace) -> str:
    """Which model or record has no weights to show, and why."""
    notes = [note_text(note) for note in trace.left_out]
    if trace.model.attention == "none":
        notes = [_(trace.model.attention_note)]
    said = _("This run of {model} holds no attention weights.", model=trace.model.name)
    return sentences([said, *notes])


def _controls(trace: Trace, layers: tuple[int, ...]) -> tuple[int, int, str, str]:
    names, helps = maps.measure_names(_), maps.measure_help(_)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        layer = layer_choice(layers)
        head = st.selectbox(_("Head"), range(trace.model.n_heads), key="head", bind="query-params", width=100)
        measure = st.selectbox(_("Measure"), list(MEASURES), format_func=names.__getitem__, key="measure", width=210)
        order = st.selectbox(_("Order"), list(ORDERS), format_func=lambda o: _(ORDERS[o]), key="order", width=150)
        with st.container(width="stretch"):
            st.caption(sentences([helps[measure], _("The bar under a head is its value.")]))
    return layer, head, measure, order


def layer_choice(layers: tuple[int, ...]) -> int:
    """The layer on show, also in the URL; the sections share it."""
    return st.selectbox(_("Layer"), layers, index=len(layers) // 2, key="layer", bind="query-params", width=100)


def _map(trace: Trace, layer: int, head: int, measure: str, order: str) -> None:
    found: HeadMap = remembered(trace, MAP, lambda: head_map(trace))
    mosaic = maps.mosaic(found, measure, order, t=_)

    def pick(layer: int, head: int) -> None:
        st.session_state["layer"], st.session_state["head"] = layer, head

    def draw() -> None:
        palette = session.palette()
        map_component.head_map(mosaic, (layer, head), palette=palette, t=_, key="head-map", on_pick=pick)

    said = sentences([mosaic.description, *_missing(trace, found.layers)])
    drawn_card(mosaic.title, said, mosaic.table, "head-map-card", draw, t=_)


def _missing(trace: Trace, layers: tuple[int, ...]) -> list[str]:
    """Which layers the record holds, where it does not hold them all."""
    with_attention = [i for i, spec in enumerate(trace.layers) if spec is not None] or range(trace.model.n_layers)
    if len(layers) == len(with_attention):
        return []
    return [_("This run holds {n} of {all} layers with attention.", n=len(layers), all=len(with_attention))]


@st.fragment
def _head(trace: Trace, step: int, layer: int, head: int) -> None:
    """One head; moving about in it runs this part of the page alone."""
    rows = LayerRows(trace, layer)
    place = _place(trace, step)
    queries, keys = (axis_of(rows.n_positions, part) for part in (place.queries, place.keys))
    weights: Floats = remembered(trace, (layer, head, queries, keys), lambda: pooled(rows, head, queries, keys))
    view = head_view(trace, rows, head, weights, queries, keys, focus=place.focus, side=place.side, t=_)

    def draw() -> None:
        texts: str = remembered(trace, "texts", lambda: view_component.texts_of(trace.tokens[: rows.n_positions]))
        palette = session.palette()
        view_component.head_view(view, place, texts, trace.n_prompt, palette=palette, t=_, key=VIEW)

    drawn_card(view.title, view.description, view.table, "head-card", draw, t=_)
    _stages(trace, rows, head, view.line, place)


def _place(trace: Trace, step: int) -> Place:
    """Where the reader looks: the step's own query, until another token or part is chosen."""
    n = n_fed(trace)
    name: str = remembered(trace, "name", lambda: secrets.token_hex(4))
    places: dict[str, Place] = remembered(trace, "places", dict)
    run, focus = f"{name}-{step}", trace.n_prompt + step - 1
    start = places.setdefault("start", Place(run, focus, "reads", (0, n), (0, n)))
    if start.run != run:
        start = places["start"] = replace(places["now"], run=run, focus=focus, asked=0)
    places["now"] = place_of(VIEW, start, n)
    return places["now"]


def _stages(trace: Trace, rows: LayerRows, head: int, line: Floats, place: Place) -> None:
    """The four stages of a few pairs around the token in focus."""
    which = st.segmented_control(
        _("Keys of the four stages"), list(KEYS), default="nearest", required=True, format_func=lambda k: _(KEYS[k]),
        key="stage-keys", label_visibility="collapsed",
    )  # fmt: skip
    queries = np.arange(max(0, place.focus - PAIRS + 1), place.focus + 1)
    try:
        found = stages(rows, head, queries, _stage_keys(which, line, place, rows.n_positions))
    except TraceError as error:
        st.text(error_text(error))
        return
    view = stages_view(trace, found, t=_)

    def draw() -> None:
        head_stages(view, palette=session.palette(), key="head-stages")

    drawn_card(view.title, view.description, view.table, "stages", draw, t=_)


def _stage_keys(which: str, line: Floats, place: Place, n: int) -> np.ndarray:
    if which == "first":
        return np.arange(min(PAIRS, n))
    if which == "strongest" and place.side == "reads":
        best = np.argsort(-np.nan_to_num(line, nan=-1.0), kind="stable")[:PAIRS]
        return np.sort(best)
    stop = min(place.focus + 2, n)  # one position that the mask hides, where there is one
    return np.arange(max(0, stop - PAIRS), stop)
