"""The stations on what a run takes: the KV cache, its formula, and time; and the extra one on experts."""

from __future__ import annotations

import streamlit as st

from charts.base import size
from charts.cache_grid import cache_grid
from charts.experts import groups_map, path_chart
from charts.kv_growth import kv_growth
from charts.timeline import timeline
from inference.errors import N_, InferenceError
from inference.experts import by_line, routed_layers, routing, routing_at
from inference.lesson import BIG_ELEMENT, BIG_HEADS, BIG_LAYERS, BIG_POSITIONS, BIG_WIDTH, LONG, big, paces
from inference.lesson import written as work_of
from inference.metrics import parse_times
from ui.i18n import _, error_text
from ui.lesson.links import to_cache, to_calculator, to_experts, to_timing
from ui.lesson.pieces import card, slider
from ui.lesson.station import KEEP, Scene, Station
from ui.literal import literal

TIMES = "0.20 0.25"
MOST_PASSES, MOST_LAYERS, MOST_DOUBLINGS = 4000, 128, 17


@st.fragment
def _cache_view(scene: Scene) -> None:
    last = len(scene.run.steps) - 1
    step = slider(scene, _("After step"), 0, last, last, "lesson-step")
    card(scene, cache_grid(scene.run, step, palette=scene.palette, t=_), "lesson-grid", None)


@st.fragment
def _cache_try(scene: Scene) -> None:
    n = slider(scene, _("Tokens written"), 1, MOST_PASSES, LONG, "lesson-long")
    st.text(
        _("{n_long:,} passes compute {long_projected:,} keys and values with the cache, {long_repeated:,} without. The "
          "dot products of each new token with what stands before it are {long_dots:,} either way.", **work_of(n))
    )  # fmt: skip


CACHE = Station(
    name="cache",
    title=N_("KV cache"),
    sentences=(
        N_("A position's key and value depend only on what stands up to there, so the cache can keep them: pass "
           "by pass it holds {held} positions."),
        N_("The token just chosen is not among them; the next pass writes it, and {end} is never fed."),
        N_("Every layer computed the keys and values of {projected} positions; without the cache they would have "
           "been {repeated}, since each pass would begin at the start of the text."),
    ),
    view=_cache_view,
    trying=N_("Write a longer text: how much work does the cache save?"),
    attempt=_cache_try,
    question=N_("Does the cache make attention free?"),
    answer=N_("No. Each new token is still compared with every position before it, and all their keys and values are "
              "read for that. The cache only saves computing them again."),
    page=N_("KV cache"),
    open=lambda scene: to_cache(scene.run, st.session_state.get("lesson-step", len(scene.run.steps) - 1)),
)  # fmt: skip


def _formula_view(scene: Scene) -> None:
    with st.container(border=True, key="lesson-formula"):
        st.text(_("Keys and values · layers · batch · positions · KV heads · head dim · bytes a number"))
        st.code(scene.values["formula"], language=None, wrap_lines=True)
    last = len(scene.run.steps) - 1
    card(scene, kv_growth(scene.run, last, palette=scene.palette, t=_), "lesson-growth", 240)


@st.fragment
def _formula_try(scene: Scene) -> None:
    with st.container(horizontal=True):
        layers = slider(scene, _("Layers"), 1, MOST_LAYERS, BIG_LAYERS, "lesson-layers", width="stretch")
        positions = BIG_POSITIONS
        if not scene.printed:
            doublings = [2**n for n in range(MOST_DOUBLINGS + 1)]
            st.session_state.setdefault("lesson-positions", BIG_POSITIONS)
            positions = st.select_slider(
                _("Positions"), doublings, key="lesson-positions", format_func="{:,}".format, width="stretch", **KEEP
            )
    found = big(layers, positions)
    st.code(found["formula"], language=None, wrap_lines=True)
    st.text(_("{size}; each further token adds {more}.", size=size(found["nbytes"]), more=size(found["token_bytes"])))


FORMULA = Station(
    name="formula",
    title=N_("Formula"),
    sentences=(
        N_("The cache's size is a product: {nbytes:,} bytes for the kitten's {positions} positions, and "
           "{measured:,} measured on the cache's own tensors."),
        N_("Each further token adds {token_bytes:,} bytes."),
        N_("The kitten's {heads} query heads share {kv_heads} KV heads; if each had its own, the cache would take"
           " {mha_bytes:,} bytes, {ratio:g} times as much."),
    ),
    view=_formula_view,
    trying=N_("Now a larger model: {big_kv_heads} KV heads of size {big_head_dim}, {big_element_bytes} bytes a number. "
              "Move its layers and positions."),
    attempt=_formula_try,
    question=N_("Many users write at once, each a text of another length. What does the formula say?"),
    answer=N_("Their positions add up. Only where short texts are padded to the longest does each take as much as "
              "the longest."),
    page=N_("Memory calculator"),
    open=lambda scene: to_calculator(
        layers=st.session_state.get("lesson-layers", BIG_LAYERS),
        tokens=st.session_state.get("lesson-positions", BIG_POSITIONS),
        kv_heads=BIG_HEADS, head_dim=BIG_WIDTH, element=BIG_ELEMENT,
    ),
)  # fmt: skip


def _time_view(scene: Scene) -> None:
    card(scene, timeline(scene.run, palette=scene.palette, t=_), "lesson-timeline", 260)


@st.fragment
def _time_try(scene: Scene) -> None:
    text = TIMES
    if not scene.printed:
        label = _("Seconds since the request at which each token was known")
        text = st.text_input(label, TIMES, key="lesson-times", max_chars=400, **KEEP)
    try:
        found = paces(parse_times(text))
    except InferenceError as error:
        st.error(literal(error_text(error)))
        return
    if scene.printed:
        st.text(_("Times of the tokens in seconds: {times}", times=text))
    if found["tpot_ms"] is None:
        st.text(_("TTFT {ttft_ms:,.0f} ms. A single token has no TPOT.", **found))
        return
    st.text(
        _("TTFT {ttft_ms:,.0f} ms, TPOT {tpot_ms:,.0f} ms, then {decode_tok_s:,.1f} tok/s; over the whole request "
          "{request_tok_s:,.1f} tok/s.", **found)
    )  # fmt: skip


TIME = Station(
    name="time",
    title=N_("Time"),
    sentences=(
        N_("The first token was there {ttft_ms:.1f} ms after the request (recorded on {machine}): the time to "
           "first token, TTFT, which holds the prefill of all {n_prompt} tokens."),
        N_("Then a token took {tpot_ms:.1f} ms on average, the end token included: the TPOT, which makes "
           "{decode_tok_s:.0f} tokens a second."),
        N_("Over the whole request they are {request_tok_s:.0f} a second, since the wait for the first one counts"
           " too."),
    ),
    view=_time_view,
    trying=N_("Type times of your own."),
    attempt=_time_try,
    question=N_("A prompt of {n_in} tokens and an answer of {n_out}: how many passes are that?"),
    answer=N_("{passes}: one prefill, which gives the first token, and {decodes} decode steps. The prefill is limited "
              "by computing; a decode step reads every weight for one token, and is limited by memory bandwidth."),
    page=N_("Prefill and decode"),
    open=lambda scene: to_timing(scene.run, st.session_state.get("lesson-times", TIMES)),
)  # fmt: skip


def _experts_view(scene: Scene) -> None:
    routed = scene.routed
    found = routing(routed, scene.values["layer"])
    lines = by_line(routed.tokens[: len(found.gates)])
    card(scene, groups_map(found, lines, palette=scene.palette, t=_), "lesson-groups", None)


@st.fragment
def _experts_try(scene: Scene) -> None:
    routed = scene.routed
    position = slider(
        scene, _("Token at position"), 0, len(routed.tokens) - 2, scene.values["position"], "lesson-expert"
    )
    gate = routing(routed, routed_layers(routed)[0]).gate
    path = routing_at(routed, position, gate)
    card(scene, path_chart(routed, path, position, palette=scene.palette, t=_), "lesson-path", None)


EXPERTS = Station(
    name="experts",
    title=N_("Experts"),
    sentences=(
        N_("Some models have several feed-forward networks in a layer, the experts, and a router that sends each "
           "token to a few of them: this other teaching model to {k} of {n_experts}, in each of {n_layers} "
           "layers."),
        N_("In layer {layer}, “{token}” goes to the experts {chosen}, each with its weight; the busiest one, "
           "expert {busiest}, got {times:.1f} times its even share of the {n_fed} tokens."),
    ),
    view=_experts_view,
    trying=N_("Follow another token through the layers: a digit, a Chinese word, a piece of code."),
    attempt=_experts_try,
    question=N_("{k} of {n_experts} experts work for a token. What does that save, and what not?"),
    answer=N_("It saves computing: the others do nothing for this token. It does not save memory: the next token may "
              "go to any of them, so all are kept ready."),
    page=N_("Experts"),
    open=lambda scene: to_experts(
        scene.routed, scene.values["layer"], st.session_state.get("lesson-expert", scene.values["position"])
    ),
)  # fmt: skip
