"""Teacher forcing: a text scored by the run's model, the shifted targets, and how this differs from generating."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import streamlit as st

from charts.forcing import guesses_chart, losses_chart
from inference.errors import N_
from inference.forcing import Forcing
from inference.trace import Trace
from ui import live, session
from ui.cards import chart_card
from ui.components.shifted import shifted
from ui.i18n import _, error_text
from ui.literal import literal
from ui.worker import Job, Work

if TYPE_CHECKING:
    from inference.models import LoadedModel

NAME = "teacher forcing"
SOURCES = {"run": N_("The run's own text"), "own": N_("My own text")}
PART = 400  # positions shown at a time


def teacher_forcing(trace: Trace) -> None:
    """Choose a text, score it, and look at any of its positions."""
    st.text(_("The whole text is known, so all positions are asked at once for the token that does follow."))
    source = _form(trace)
    job = session.work(NAME)
    if job is not None and not job.ended:
        live.follow_work(job, _("Scoring the text"))
        return
    if job is not None and job.error is not None:
        st.error(literal(error_text(job.error)))
    found = _result(job, trace, source)
    if found is not None and job is not None:
        _show(found, job.key, trace)


def _form(trace: Trace) -> str:
    """Which text, and the button that scores it."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        source = st.segmented_control(
            _("Text"), list(SOURCES), format_func=lambda name: _(SOURCES[name]), key="forcing source", default="run",
            required=True, label_visibility="collapsed", persist_state="session",
        )  # fmt: skip
        st.button(
            _("Score it"), type="primary", icon=":material/grading:", key="score", on_click=_start, args=(trace,),
            disabled=session.busy(NAME),
        )  # fmt: skip
    if source == "own":
        st.text_area(_("Text to score"), key="forcing text", height=90, persist_state="session")
    return str(source)


def _start(trace: Trace) -> None:
    if session.busy(NAME):
        return
    source = st.session_state["forcing source"]
    text = st.session_state.get("forcing text", "") if source == "own" else None
    ids = [token.id for token in trace.tokens]
    st.session_state["forced source"] = source
    session.ask_model(NAME, trace, 1, _scoring(text, ids, session.limits().check_prompt))


def _scoring(text: str | None, ids: Sequence[int], check: Callable[[int], None]) -> Work:
    def work(model: LoadedModel, progress: Callable[[float], None], cancelled: Callable[[], bool]) -> Forcing | None:
        from inference.forcing import force, text_ids

        scored = ids if text is None else text_ids(model, text)
        check(len(scored))
        return force(model, scored, progress, cancelled)

    return work


def _result(job: Job | None, trace: Trace, source: str) -> Forcing | None:
    """The scored text, if it is the one that was asked for: of the run on show, or the reader's own."""
    found: Forcing | None = None if job is None else job.result
    if found is None or st.session_state.get("forced source") != source:
        return None
    return found if source == "own" or _is_run(found, trace) else None


def _is_run(found: Forcing, trace: Trace) -> bool:
    return found.ids.tolist() == [token.id for token in trace.tokens]


def _show(found: Forcing, run: str, trace: Trace) -> None:
    with st.container(horizontal=True):
        st.metric(_("Mean loss"), _("{value} nats", value=f"{found.mean_loss:.3f}"))
        st.metric(_("Perplexity"), f"{found.perplexity:,.2f}")
        st.metric(_("True token likeliest"), f"{(found.ranks == 1).mean():.0%}")
        st.metric(_("Positions scored"), f"{len(found.losses):,}")
    first, last = _part(len(found.ids))
    at = shifted(found, first, last, run=f"{run} {first}", t=_, key="shifted")
    palette = session.palette()
    left, right = st.columns([8, 5])
    with left:
        chart_card(losses_chart(found, at, palette=palette, t=_), "losses", t=_)
    with right:
        chart_card(guesses_chart(found, at, palette=palette, t=_), "guesses", t=_)
    _contrast(found, at, trace)


def _part(n: int) -> tuple[int, int]:
    """The positions that are shown: all, or of a long text the part that the reader chooses."""
    if n <= PART:
        return 0, n
    starts = list(range(0, n, PART))
    start = st.selectbox(
        _("Positions"), starts, format_func=lambda s: f"{s:,} – {min(s + PART, n) - 1:,}", key="forcing part", width=200
    )
    return start, min(start + PART, n)


def _contrast(found: Forcing, at: int, trace: Trace) -> None:
    """What this position knows and what is hidden from it; and for the run's own text, what generating knew."""
    n = len(found.ids)
    st.text(
        _(
            "Position {at} sees {seen} tokens; the causal mask hides the {hidden} after it, though they are all fed.",
            at=at, seen=at + 1, hidden=n - at - 1,
        )
    )  # fmt: skip
    if not _is_run(found, trace) or not trace.steps:
        st.text(_("While generating, no token after a position exists yet: one is chosen, fed, and only then read."))
        return
    generated = np.array([step.decision.raw_logprob for step in trace.steps])
    apart = float(np.abs(np.exp(found.logprobs[trace.n_prompt - 1 :]) - np.exp(generated)).max())
    st.text(
        _(
            "Generating took {n} passes, because each of these tokens was unknown until it was chosen. Here the same"
            " {n} tokens are known and fed together, with the same probabilities (largest difference {apart}).",
            n=len(trace.steps), apart=f"{apart:.1e}",
        )
    )  # fmt: skip
