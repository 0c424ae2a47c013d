"""Another token at a step: choose it from the list or type it; and the tree of runs that this makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import streamlit as st

from inference.errors import InferenceError, TraceError
from inference.tokens import visible
from inference.trace import Trace
from ui import session
from ui.i18n import _, error_text
from ui.literal import literal
from ui.worker import Job, Start

if TYPE_CHECKING:
    from inference.engine import Generation
    from inference.forward import Cache
    from inference.models import LoadedModel

N_CHOICES = 12


def branch_menu(trace: Trace, step: int) -> None:
    """The choices at a step; one click starts the branch."""
    with st.popover(_("Branch here"), icon=":material/call_split:"):
        try:
            logits = trace.logits(step)
        except TraceError as error:
            st.text(error_text(error))
            return
        st.text(_("Take another token at step {step} and go on from there.", step=step))
        ids, probs = logits.top(N_CHOICES)
        for token_id, prob in zip(ids.tolist(), probs.tolist(), strict=True):
            token = trace.vocabulary.token(token_id)
            label = f"{literal(token.display)}  ·  {prob:.1%}"
            chosen = token_id == trace.steps[step].token_id
            if st.button(label, key=f"branch {token_id}", width="stretch", disabled=chosen):
                _start(trace, step, token_id)
        text = st.text_input(_("Or type the text of one token"), key="branch text")
        if st.button(_("Branch with this text"), key="branch by text", disabled=not text):
            _start(trace, step, text)


def run_tree() -> None:
    """The session's runs, each branch under the run it left; a click puts one on show."""
    jobs = [job for job in session.shelf().of(session.session_id()) if job.trace is not None and job.trace.steps]
    if len(jobs) < 2:
        return
    with st.popover(_("Runs"), icon=":material/account_tree:"):
        keys = {job.key for job in jobs}
        for root in [job for job in jobs if job.parent not in keys]:
            _show_tree(root, jobs, 0)


def _show_tree(job: Job, jobs: list[Job], depth: int) -> None:
    mark = "└ " * bool(depth)
    label = "\u2003" * depth + mark + literal(_title(job))
    on_show = job is session.shown()
    if st.button(label, key=f"show {job.key}", width="stretch", type="primary" if on_show else "tertiary"):
        session.put_on_show(job)
        st.rerun()
    for child in [other for other in jobs if other.parent == job.key]:
        _show_tree(child, jobs, depth + 1)


def _title(job: Job) -> str:
    trace = job.trace
    assert trace is not None
    if job.left_at is not None and job.left_at < len(trace.steps):
        token = trace.vocabulary.token(trace.steps[job.left_at].token_id)
        return _("step {step}: {token}", step=job.left_at, token=token.display)
    prompt = trace.request.prompt if isinstance(trace.request.prompt, str) else trace.request.prompt[-1][1]
    return visible(prompt.encode("utf-8", "ignore"))[:40] or _("a run")


def leave(trace: Trace, step: int, begin: Callable[[Trace, Cache | None], Start]) -> None:
    """Queue a run that leaves the one on show at a step; what this server does not allow is said.

    Args:
        begin: makes the start from the run, held to this server's limits, and from the cache it left, if still kept.
    """
    parent, cache = session.shown(), session.cache_of(trace)
    bounded = replace(trace, request=session.limits().bound(trace.request))
    try:
        name = session.model_name(trace)
        session.limits().check_prompt(trace.n_prompt)
    except InferenceError as error:
        session.complain(error)
    else:
        new = Job(session.session_id(), name, begin(bounded, cache), bounded.request.max_new_tokens)
        new.parent, new.left_at = (None if parent is None else parent.key), step
        session.submit(new)
    st.rerun()


def _start(trace: Trace, step: int, token: int | str) -> None:
    """Queue the branch with a token, given by its id or its text."""
    leave(trace, step, lambda bounded, cache: _branching(bounded, step, token, cache))


def _branching(trace: Trace, step: int, token: int | str, cache: Cache | None) -> Start:
    def start(model: LoadedModel) -> Generation:
        from inference.branch import branch, find_token

        token_id = token if isinstance(token, int) else find_token(model, token)
        return branch(model, trace, step, token_id, cache)

    return start
