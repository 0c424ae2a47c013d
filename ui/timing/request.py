"""The run's own times: figures of speed, the timeline, the spread of latencies; and the same for typed times."""

from __future__ import annotations

import streamlit as st

from charts.base import Palette
from charts.latency import itl_histogram, speed_metrics, typed_metrics, why_they_differ
from charts.timeline import timeline
from inference.errors import InferenceError
from inference.metrics import Speed, parse_times, speed, taken_over
from inference.trace import Trace
from ui import session
from ui.cards import chart_card
from ui.components.metric_cards import metric_cards
from ui.i18n import _, error_text, sentences
from ui.literal import literal

LESSON = "0.20 0.25"


def request(trace: Trace) -> None:
    """Figures and charts of the run on show, then the lesson."""
    counted = _counted(trace)
    if counted is not None:
        _recorded(trace, counted)
    _typed(session.palette())


def _counted(trace: Trace) -> Speed | None:
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.text(_where(trace))
        count_eos = st.toggle(
            _("Count the end token"),
            value=True,
            key="count-eos",
            disabled=trace.finish.reason != "eos",
            help=_("The token that ends the text takes a step like any other, but no reader sees it."),
        )
    try:
        return speed(trace, count_eos)
    except InferenceError as error:
        st.text(error_text(error))
        return None


def _where(trace: Trace) -> str:
    """What made the times, and which of them are not this run's."""
    machine = trace.versions.get("machine")
    facts = trace.model
    said = [
        _("Recorded on {machine}, {dtype}.", machine=machine, dtype=facts.dtype)
        if machine
        else _("Recorded on {device}, {dtype}; the run does not name its machine.",
               device=facts.device, dtype=facts.dtype)
    ]  # fmt: skip
    first = taken_over(trace)
    if first:
        said.append(_("The first {n} tokens were taken over from another run; their times do not count.", n=first))
    return sentences(said)


def _recorded(trace: Trace, counted: Speed) -> None:
    palette, job = session.palette(), session.shown()
    metric_cards([speed_metrics(counted, _)], colour=palette.categorical[0], key="speed")
    said = why_they_differ(counted, _)
    if said:
        st.text(said)
    waited = job.waited_s if job is not None and job.trace is trace else None
    left, right = st.columns([2, 1])
    with left:
        chart_card(timeline(trace, waited, palette=palette, t=_), "timeline", t=_)
    with right:
        chart_card(itl_histogram(counted, palette=palette, t=_), "itl", t=_)


@st.fragment
def _typed(palette: Palette) -> None:
    """Times typed by hand, through the same functions."""
    with st.container(border=True, key="typed-times-card"):
        st.subheader(_("Your own times"), anchor=False)
        text = st.text_input(
            _("Seconds since the request at which each token was known"), LESSON, key="typed-times",
            persist_state="session", max_chars=20_000,
        )  # fmt: skip
        try:
            found = parse_times(text)
        except InferenceError as error:
            st.error(literal(error_text(error)))
            return
        metric_cards([typed_metrics(found, _)], colour=palette.categorical[0], key="typed speed")
        said = why_they_differ(found, _)
        if said:
            st.text(said)
