"""Work on the run's model that a section asks for: queued, followed, cancelled; its result belongs to one run."""

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


def run_button(name: str, label: str, trace: Trace, work: Work, n_tokens: int) -> None:
    """A button that queues the work on the model of the run; where that cannot be run here, the reason instead.

    Args:
        name: of the work; the latest of a name is kept.
        n_tokens: how many decode steps it takes about as long as, for those who wait behind it.
    """
    try:
        session.model_name(trace)
        session.limits().check_prompt(trace.n_prompt)
    except InferenceError as error:
        st.text(error_text(error))
        return
    # asked here and not in a callback, which would be given the fields as they were before the click
    if st.button(label, type="primary", icon=":material/play_arrow:", key=f"start {name}", disabled=session.busy(name)):
        session.ask_model(name, trace, n_tokens, work)
        st.rerun()


def outcome(name: str, trace: Trace, doing: str) -> Any:
    """What came of the latest work of a name, if it was this run's; while it goes on, how far it is."""
    job = session.work(name, trace)
    if job is None:
        return None
    if not job.ended:
        follow_work(job, doing)
    elif job.error is not None:
        st.error(literal(error_text(job.error)))
    elif job.state == "cancelled":
        st.text(_("Cancelled; nothing was kept of it."))
    return job.result
