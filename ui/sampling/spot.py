"""What the lab works on: a step of the run on show, or a distribution typed by hand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from charts.labels import in_context, pending
from inference.counterfactual import uniforms
from inference.errors import N_, InferenceError
from inference.position import Position, at_step
from inference.sampling_params import SamplingParams
from inference.sampling_steps import Context
from inference.trace import Trace
from inference.typed import Typed, parse
from ui.components.player import player
from ui.i18n import _, error_text
from ui.literal import literal

STRIP_HEIGHT = 92
KITTEN = "累 0.6, 困 0.2, 饿 0.1"
KINDS = {"probs": N_("Probabilities"), "logits": N_("Logits")}
KEEP: Any = {"persist_state": "session"}
Tokens = Callable[[Sequence[int]], list[str]]


@dataclass(frozen=True)
class Spot:
    """One position and what is known of it.

    Attributes:
        name: keeps the lab of a run apart from that of typed tokens.
        start: the settings to begin with.
        u: the uniform number of the step.
        recorded_id: the token that was taken, if there was one; `step` its step, -1 without a run.
    """

    name: str
    position: Position
    tokens: Tokens
    start: SamplingParams
    u: float
    recorded_id: int | None = None
    step: int = -1


def run_spot(trace: Trace) -> Spot | None:
    """The step of the run that the reader is on; what stands in its way is said."""
    if "lab step" not in st.session_state:
        st.session_state["lab step"] = asked = st.query_params.get("step", "")
        if asked.isascii() and asked.isdigit() and trace.steps:
            st.session_state["step"] = min(int(asked[:9]), len(trace.steps) - 1)
    step = player(trace, st.session_state.get("step", 0), t=_, key="lab-player", height=STRIP_HEIGHT)
    st.session_state["step"] = step
    if not trace.steps:
        st.text(_("This run was stopped before its first token, so there is nothing to choose from."))
        return None
    st.query_params["step"] = str(step)
    try:
        position = at_step(trace, step)
    except InferenceError as error:
        st.text(error_text(error))
        return None
    u = uniforms(trace)[step]
    return Spot("run", position, _words_of(trace, step, position), trace.sampling, u, trace.steps[step].token_id, step)


def typed_spot() -> Spot | None:
    """The distribution in the text field; an entry that cannot be read is named below it."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        text = st.text_input(
            _("Tokens, each with its number"),
            key=from_address("typed", KITTEN),
            on_change=to_address,
            args=("typed",),
            **KEEP,
        )
        kind = pick(_("The numbers are"), "kind", KINDS)
    try:
        typed = parse(text or "", "logits" if kind == "logits" else "probs")
    except InferenceError as error:
        st.error(literal(error_text(error)))
        return None
    position = Position(typed.logits, Context(np.zeros(0, dtype=np.int64), 0, ()))
    return Spot("typed", position, _names_of(typed), SamplingParams(greedy=False), 0.5)


def pick(label: str, name: str, options: Mapping[str, str], **more: Any) -> str:
    """A choice among named options that the address keeps."""
    shown = st.segmented_control(
        label,
        list(options),
        format_func=lambda option: _(options[option]),
        key=from_address(name, next(iter(options)), options),
        on_change=to_address,
        args=(name,),
        required=True,
        **KEEP,
        **more,
    )
    return str(shown)


def from_address(name: str, usual: str, allowed: Collection[str] | None = None) -> str:
    """The key of a widget, which begins with what the address gives, if that is allowed."""
    if name not in st.session_state:
        given = st.query_params.get(name, usual)
        st.session_state[name] = given if allowed is None or given in allowed else usual
    return name


def to_address(name: str) -> None:
    """Keep a widget's value in the address."""
    st.query_params[name] = st.session_state[name]


def _words_of(trace: Trace, step: int, position: Position) -> Tokens:
    before = pending(trace.tokens[: trace.n_prompt + step])

    def words(ids: Sequence[int]) -> list[str]:
        return [
            in_context(trace.vocabulary.token(int(i)), before) if position.knows(int(i)) else _("(not recorded)")
            for i in ids
        ]

    return words


def _names_of(typed: Typed) -> Tokens:
    def names(ids: Sequence[int]) -> list[str]:
        return [typed.texts[i] or _("(all others together)") for i in ids]

    return names
