"""The answer to a routed request: a run of the model that the router chose, like any other run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from charts.labels import shorten
from inference.catalogue import entries
from inference.errors import InferenceError
from inference.routing import Expert, Route, handed_over
from inference.tokens import SPACE, visible
from inference.trace import Trace
from ui import live, session
from ui.i18n import _, error_text, sentences
from ui.limits import Limits
from ui.literal import literal
from ui.words import finish_words
from ui.worker import Job, Start

if TYPE_CHECKING:
    from inference.engine import Generation
    from inference.models import LoadedModel

HANDED, ANSWER, REFUSED = "route handed over", "route answer", "route refused"
LONGEST = 160  # characters of the request that are repeated


def hand_over(routed: Job, trace: Trace, route: Route) -> None:
    """Ask the chosen model, once for each routing; where it cannot be asked here, the reason is kept."""
    if st.session_state.get(HANDED) == routed.key:
        return
    st.session_state.update({HANDED: routed.key, ANSWER: None, REFUSED: None})
    if route.chosen is None:
        return
    try:
        _check(route.chosen)
    except InferenceError as error:
        st.session_state[REFUSED] = error
        return
    n_new = int(st.session_state["route tokens"])
    new = Job(session.session_id(), route.chosen.model, _answering(trace, n_new, session.limits()), n_new)
    new.parent = routed.key
    st.session_state[ANSWER] = new
    session.submit(new)
    st.rerun()


def answer_card(trace: Trace, route: Route) -> None:
    """The answer while it is written and when it is there; or why there is none."""
    job, refused = st.session_state[ANSWER], st.session_state[REFUSED]
    with st.container(border=True):
        if route.chosen is None:
            st.subheader(_("No model was asked"), anchor=False)
            st.text(_nobody(route))
        else:
            st.subheader(_("The answer of {model}", model=literal(_name(route.chosen))), anchor=False)
            if refused is not None:
                st.error(literal(sentences([error_text(refused), _("So the choice stands, and nobody answers.")])))
            else:
                _run(job, trace)


def _run(job: Job, trace: Trace) -> None:
    if not job.ended:
        live.follow(job)
    elif job.error is not None:
        st.error(literal(error_text(job.error)))
    elif job.trace is not None and job.trace.steps:
        st.text(_("The request: {request}", request=_line(str(trace.request.prompt))))
        st.code(job.trace.text, language=None, wrap_lines=True)
        st.text(sentences([_how(job.trace), finish_words(job.trace)]))
        if st.button(_("Open in Playback"), icon=":material/play_circle:", key="open answer"):
            session.put_on_show(job)
            st.switch_page("pages/playback.py")
    else:
        st.text(_("Cancelled; nothing was kept of it."))


def _line(text: str) -> str:
    return shorten(visible(text.encode()).replace(SPACE, " "), LONGEST)


def _how(answer: Trace) -> str:
    if answer.request.chat:
        return _("It was asked in its chat template.")
    return _("It has no chat template: it goes on with the text of the request.")


def _nobody(route: Route) -> str:
    return sentences(
        [
            _("The router wrote “{token}”, which stands for no model.", token=route.token.display),
            _("A lower temperature makes that rarer; a small top-k or top-p rules it out."),
        ]
    )


def _name(expert: Expert) -> str:
    entry = entries().get(expert.model)
    return expert.model if entry is None else entry.name


def _check(expert: Expert) -> None:
    """Refuse a model that this server does not run, or that is not here."""
    from inference.sources import find  # imports the hub's client: not before a model is asked for

    session.limits().check_model(expert.model)
    find(expert.model)


def _answering(trace: Trace, n_new: int, limits: Limits) -> Start:
    def start(model: LoadedModel) -> Generation:
        from inference.engine import generate

        request = limits.bound(handed_over(trace, model.tokenizer.has_chat_template, n_new))
        generation = generate(model, request)
        limits.check_prompt(len(generation.prompt_ids))
        return generation

    return start
