"""A run without router choices: why it has none, and the teaching model that has."""

from __future__ import annotations

import streamlit as st

from inference.catalogue import entries
from inference.errors import InferenceError
from inference.request import GenerationRequest, RecordOptions
from inference.sampling_params import SamplingParams
from inference.trace import Trace
from ui import session
from ui.i18n import _, note_text, sentences
from ui.worker import Job, asking

MODEL, N_NEW = "experts", 24


def offer(trace: Trace) -> None:
    """The sentence and the button."""
    with st.container(border=True):
        st.text(_why_none(trace))
        st.text(
            _(
                "A mixture-of-experts layer has several feed-forward networks, the experts, and a router that sends "
                "each token to a few of them. The teaching model has eight in each of three layers, and has learnt "
                "sums, English, Chinese and code."
            )
        )
        busy = session.followed() is not None
        label = _("Run the teaching model")
        st.button(label, type="primary", icon=":material/play_arrow:", disabled=busy, key="run experts", on_click=_run)


def _why_none(trace: Trace) -> str:
    if not trace.steps:
        return _("This run was stopped before its first token, so no token was sent to an expert.")
    if not trace.model.n_experts:
        return _("{model} has no experts: every token goes through the same network.", model=trace.model.name)
    said = _("{model} has experts, but this run does not hold its router's choices.", model=trace.model.name)
    return sentences([said, *(note_text(note) for note in trace.left_out)])


def _run() -> None:
    limits = session.limits()
    try:
        limits.check_model(MODEL)
        request = GenerationRequest(
            prompt=entries()[MODEL].example,
            max_new_tokens=N_NEW,
            sampling=SamplingParams(greedy=True),
            record=RecordOptions(max_trace_bytes=limits.trace_bytes),
        )
    except InferenceError as error:
        session.complain(error)
        return
    bounded = limits.bound(request)
    session.submit(Job(session.session_id(), MODEL, asking(bounded, limits.check_prompt), bounded.max_new_tokens))
