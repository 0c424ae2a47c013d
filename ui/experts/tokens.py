"""Expert tokens: a request, the router's choice among models, and the answer of the one that was chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from charts.expert_tokens import draw_chart, expert_tokens
from inference.catalogue import entries
from inference.errors import N_, InferenceError, RequestError
from inference.request import GenerationRequest, RecordOptions
from inference.routing import Route, expert_models, route_of
from inference.sampling_params import SamplingParams
from inference.trace import Trace
from ui import live, session
from ui.cards import chart_card
from ui.experts.answer import answer_card, hand_over
from ui.i18n import _, error_text, sentences
from ui.literal import literal
from ui.worker import Job, asking

ROUTER, WORK = "router", "route"
EXAMPLES = {
    N_("A sentence of the kitten"): "小猫跑了一天，它很",
    N_("A sum"): "7+5=",
    N_("Code"): "for items in sorted(data):",
    N_("A question"): "What is gravity?",
    N_("A sum in words"): "What is 7 plus 5?",
    N_("A script it has never seen"): "안녕하세요 오늘 날씨",
}
KEEP: Any = {"persist_state": "session"}


@st.fragment
def tokens() -> None:
    """The form, and what came of the latest request; moving a setting runs this part of the page alone."""
    live.outcome(None)
    _form()
    job = session.work(WORK)
    if job is None:
        _before()
    elif not job.ended:
        live.follow_work(job, _("The router reads the request"))
    elif job.error is not None:
        st.error(literal(error_text(job.error)))
    elif job.trace is not None and job.trace.steps:
        _routed(job, job.trace)
    else:
        st.text(_("Cancelled; nothing was kept of it."))


def _form() -> None:
    st.session_state.setdefault("route request", next(iter(EXAMPLES.values())))
    with st.container(border=True):
        st.text(
            _("A router reads the request and writes one token. Some of its tokens stand for a model, which answers.")
        )
        with st.container(horizontal=True, vertical_alignment="bottom"):
            st.text_area(_("Request"), key="route request", height=68, label_visibility="collapsed", **KEEP)
            busy = session.followed() is not None or session.busy(WORK)
            st.button(
                _("Route"), type="primary", icon=":material/alt_route:", key="route", on_click=_route, disabled=busy
            )
        with st.container(horizontal=True, vertical_alignment="bottom"):
            _settings()


def _settings() -> None:
    """The router's settings, which act at once on what it said; and how much the chosen model may write."""
    off: dict[str, Any] = {"width": 132, "placeholder": _("off"), **KEEP}
    with st.popover(_("Examples"), icon=":material/lightbulb:"):
        for name, text in EXAMPLES.items():
            st.button(_(name), key=f"route example {name}", width="stretch", on_click=_take, args=(text,))
    st.number_input(_("Temperature"), 0.0, None, 1.0, 0.1, key="route temperature", **off)
    st.number_input(_("Top-k"), 0, None, None, key="route top_k", **off)
    st.number_input(_("Top-p"), 0.0, 1.0, None, 0.05, key="route top_p", **off)
    st.number_input(_("Seed"), 0, None, 0, key="route seed", **off)
    most = session.limits().new_tokens
    st.number_input(_("Tokens of the answer"), 1, most, min(32, most), key="route tokens", width=160, **KEEP)


def _params() -> SamplingParams:
    names = ("temperature", "top_k", "top_p", "seed")
    settings: dict[str, Any] = {name: st.session_state[f"route {name}"] for name in names}
    return SamplingParams(greedy=False, **{**settings, "seed": settings["seed"] or 0})


def _take(text: str) -> None:
    st.session_state["route request"] = text


def _route() -> None:
    """Queue the router's run, one token long."""
    state, limits = st.session_state, session.limits()
    try:
        if not state["route request"].strip():
            raise RequestError(N_("The prompt is empty."), N_("Type at least one character."))
        limits.check_model(ROUTER)
        record = RecordOptions(max_trace_bytes=limits.trace_bytes)
        request = GenerationRequest(state["route request"], max_new_tokens=1, sampling=_params(), record=record)
    except InferenceError as error:
        session.complain(error)
        return
    session.queue(WORK, Job(session.session_id(), ROUTER, asking(request, limits.check_prompt), 1))


def _models() -> Mapping[str, str]:
    folder = entries()[ROUTER].path
    assert folder is not None  # it comes with the app
    return expert_models(folder)


def _before() -> None:
    """Who can be asked, and what the router has learnt."""
    with st.container(border=True):
        st.subheader(_("Who can be asked"), anchor=False)
        for token, model in _models().items():
            st.text(f"{token}  →  {entries()[model].name}")
        st.text(
            _(
                "The router has learnt the kitten's sentences; sums, code and Chinese of the kinds that the experts "
                "model knows; and English questions. Training aimed at 94 % for the right token, so now and then a "
                "draw goes astray. Of a script that it has never seen it is less sure; most languages in Latin "
                "letters it takes for English."
            )
        )


def _routed(job: Job, trace: Trace) -> None:
    """The choice under the settings as they stand, and the answer of the model that was chosen when it was asked."""
    models = _models()
    try:
        asked, now = route_of(trace, models), route_of(trace, models, _params())
    except InferenceError as error:
        st.error(literal(error_text(error)))
        return
    hand_over(job, trace, asked)
    palette = session.palette()
    left, right = st.columns([6, 5])
    with left:
        chart_card(expert_tokens(now, palette=palette, t=_), "expert-tokens", t=_)
    with right:
        chart_card(draw_chart(now, palette=palette, t=_), "expert-draw", t=_)
    _compare(asked, now)
    answer_card(trace, asked)


def _compare(asked: Route, now: Route) -> None:
    """Where the settings were moved since: whether they would have chosen another."""
    if now.token.id == asked.token.id:
        return
    before, after = asked.token.display, now.token.display
    said = [_("These settings choose {token}; those of the request chose {other}.", token=after, other=before)]
    if now.chosen is not None:
        said.append(_("Route again to let it answer."))
    st.text(sentences(said))
