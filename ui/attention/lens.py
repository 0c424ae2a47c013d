"""The logit lens of a step; where the run does not hold it, it is computed from the hidden states that it does hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import streamlit as st

from charts.lens import lens_climb, lens_map, lens_run
from inference.trace import StepRecord, Trace
from ui import live, session
from ui.cards import chart_card
from ui.i18n import _, error_text
from ui.literal import literal
from ui.worker import Work

if TYPE_CHECKING:
    from inference.models import LoadedModel

NAME = "logit lens"


def logit_lens(trace: Trace, step: int) -> None:
    """What each layer would have said at this step if it were the last one."""
    st.text(
        _(
            "Each layer's output at the last position, read at once by the model's own final norm and head."
            " Only the last layer was trained to be read this way."
        )
    )
    if trace.steps[step].lens is None:
        _compute(trace, step)
        return
    palette = session.palette()
    left, right = st.columns([8, 5])
    with left:
        chart_card(lens_map(trace, step, palette=palette, t=_), "lens-map", t=_)
    with right:
        chart_card(lens_climb(trace, step, palette=palette, t=_), "lens-climb", t=_)
    chart_card(lens_run(trace, step, palette=palette, t=_), "lens-run", t=_)


def _compute(trace: Trace, step: int) -> None:
    """The button that computes it, the work while it goes on, and what came of it."""
    if trace.steps[step].hidden is None:
        st.text(_("This run holds neither its logit lens nor the hidden states to compute it from."))
        st.text(_("Run the prompt again with hidden states recorded."))
        return
    job = session.work(NAME, trace)
    if job is not None and not job.ended:
        live.follow_work(job, _("Computing the logit lens of {n} steps", n=len(trace.steps)))
        return
    if job is not None and job.result is not None:
        session.amend(trace, replace(trace, steps=job.result))
        session.forget(NAME)
        st.rerun()
    if job is not None and job.error is not None:
        st.error(literal(error_text(job.error)))
    st.text(_("This run does not hold it yet; it can be computed from the recorded hidden states."))
    label = _("Compute it for all {n} steps", n=len(trace.steps))
    st.button(label, icon=":material/layers:", type="primary", key="compute lens", on_click=_start, args=(trace,))


def _start(trace: Trace) -> None:
    session.ask_model(NAME, trace, len(trace.steps), _looking(trace.steps))


def _looking(steps: tuple[StepRecord, ...]) -> Work:
    def work(
        model: LoadedModel, progress: Callable[[float], None], cancelled: Callable[[], bool]
    ) -> tuple[StepRecord, ...] | None:
        from inference.head import with_lens

        return with_lens(model, steps, progress, cancelled)

    return work
