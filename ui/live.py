"""A run while it goes on: the queue, the text so far, the way to stop it; and what came of it."""

from __future__ import annotations

import streamlit as st

from inference.tokens import Token
from ui import session
from ui.components.player import live_strip
from ui.i18n import _, error_text
from ui.literal import literal
from ui.worker import Job

POLL_S = 0.25
BEAT_S = 5.0  # within the grace that a closed tab has
SHOWN_PROMPT, SHOWN = 60, 400  # tokens


def follow(job: Job) -> None:
    """Show a job and poll it until it has ended; then the page runs again, without polling."""
    st.fragment(_follow, run_every=POLL_S)(job)


def follow_work(job: Job, doing: str) -> None:
    """Show work that is no run, what it is doing and its share done, and poll it as `follow` does."""
    st.fragment(_follow_work, run_every=POLL_S)(job, doing)


def heartbeat() -> None:
    """Keep this session's jobs going from whatever page is open, until they have ended."""
    jobs = session.going()
    if jobs:
        st.fragment(_beat, run_every=BEAT_S)(jobs)


def _beat(jobs: list[Job]) -> None:
    for job in jobs:
        session.worker().beat(job)
    if any(job.ended for job in jobs):
        st.rerun()


def _follow_work(job: Job, doing: str) -> None:
    if job.ended:
        st.rerun()
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            st.text(_waiting(job) or doing)
            st.button(_("Cancel"), icon=":material/stop:", on_click=job.cancel, key=f"cancel {job.key}")
        st.progress(min(1.0, job.share))


def _follow(job: Job) -> None:
    if job.ended:
        st.rerun()
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            st.text(_state(job))
            st.button(_("Cancel"), icon=":material/stop:", on_click=job.cancel, key="cancel")
        steps, generation = job.steps, job.generation
        st.progress(min(1.0, len(steps) / job.n_new))
        if generation is not None:
            _strip(generation.tokens, [step.decision.raw_logprob for step in steps])


def _strip(tokens: tuple[Token, ...], logprobs: list[float]) -> None:
    """The newest tokens; all of a long run would be sent again at every poll."""
    n_prompt = len(tokens) - len(logprobs)
    first = max(0, n_prompt - SHOWN_PROMPT, len(tokens) - SHOWN)
    n_left_out = max(0, first - n_prompt)
    live_strip(
        tokens[first:], t=_, key="live", n_prompt=max(0, n_prompt - first), logprobs=logprobs[n_left_out:], height=132
    )


def _state(job: Job) -> str:
    return _waiting(job) or _("Generating: {n} of at most {limit} tokens", n=len(job.steps), limit=job.n_new)


def _waiting(job: Job) -> str:
    """Where a job is before its model works for it; empty from then on."""
    if job.state == "queued":
        ahead, wait = session.worker().ahead(job), session.worker().wait_s(job)
        if wait is None:
            return _("In the queue: {n} ahead of you.", n=ahead)
        return _("In the queue: {n} ahead of you, about {s:.0f} s.", n=ahead, s=wait)
    if job.state == "loading":
        return _(job.note) or _("Loading the model")
    return ""


def outcome(job: Job | None) -> None:
    """What went wrong with the last run, if anything; the run on show is still the one before."""
    complaint = st.session_state.pop("complaint", None)
    for error in (complaint, None if job is None else job.error):
        if error is not None:
            st.error(literal(error_text(error)))
