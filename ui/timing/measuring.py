"""Measurements on the run's model, queued and followed like a run; the last good one outlives a later bad one."""

from __future__ import annotations

from typing import Any

import streamlit as st

from inference.errors import InferenceError
from inference.trace import Trace
from ui import session
from ui.i18n import _, error_text
from ui.literal import literal
from ui.live import follow_work
from ui.worker import Work

TOKENS_A_STEP = 8  # tokens of a prefill that take about as long as a decode step


def can_run(trace: Trace) -> bool:
    """Whether the run's model can be run here; where it cannot, the reason is said."""
    try:
        session.model_name(trace)
    except InferenceError as error:
        st.text(error_text(error))
        return False
    return True


def measure_button(name: str, label: str, trace: Trace, work: Work, n_tokens: int) -> None:
    """A button that queues a measurement.

    Args:
        n_tokens: fed in all, for the wait of those behind it.
    """
    if st.button(label, type="primary", icon=":material/timer:", key=f"start {name}", disabled=session.busy(name)):
        queue_measurement(name, trace, work, n_tokens)
        st.rerun()


def queue_measurement(name: str, trace: Trace, work: Work, n_tokens: int) -> None:
    """Queue a measurement; arguments as of `measure_button`."""
    session.ask_model(name, trace, n_tokens // TOKENS_A_STEP, work)


def measured(name: str, trace: Trace, doing: str) -> Any:
    """The latest good measurement of the model of a run that `can_run`; while one goes on, its share; why it failed."""
    job, kept = session.work(name), st.session_state.setdefault("measured", {})
    if job is not None and not job.ended:
        follow_work(job, doing)
    elif job is not None and job.result is not None:
        kept[name, job.model_name] = job.result
    elif job is not None:
        _complain(job.error)
    return kept.get((name, session.model_name(trace)))


def _complain(error: InferenceError | None) -> None:
    if error is not None:
        st.error(literal(error_text(error)))
    else:
        st.text(_("Cancelled; what was measured before is kept."))
