"""The lesson's runs: read once a server, put on show when a reader goes on to a full page, and run anew when asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import streamlit as st

from inference.errors import InferenceError
from inference.lesson import values
from inference.trace import Trace
from ui import session
from ui.i18n import _, error_text
from ui.lesson.station import Scene
from ui.literal import literal
from ui.live import follow_work
from ui.worker import Job, Work

if TYPE_CHECKING:
    from inference.engine import Generation
    from inference.models import LoadedModel

    Begin = Callable[[LoadedModel], Generation]

MODEL = "kitten"
MOST_NEW = 16


@st.cache_resource(show_spinner=False)
def kitten() -> Trace:
    """The recorded run that the lesson walks through."""
    return Trace.load(session.ASSETS / "lesson-kitten.safetensors")


@st.cache_resource(show_spinner=False)
def routed() -> Trace:
    """The recorded run of the model with experts."""
    return Trace.load(session.ASSETS / "lesson-experts.safetensors")


def scene(name: str, printed: bool = False) -> Scene:
    """What a station is drawn with."""
    run, chat, experts = kitten(), session.demo(), routed()
    colours = session.palette() if not printed else session.palette().light()
    return Scene(run, chat, experts, colours, values(run, chat, experts)[name], printed)


def put_on_show(trace: Trace, step: int, model: str = MODEL) -> None:
    """Make a run the session's own, if it is not yet, and the one that the other pages show."""
    session.trace()  # a run that has ended meanwhile is seen now, and does not take the place of this one later
    found = next((one for one in session.shelf().of(session.session_id()) if one.trace is trace), None)
    if found is None:
        n = trace.request.max_new_tokens
        found = Job(session.session_id(), model, None, n, state="done", trace=trace)
        session.shelf().put(found)
    session.put_on_show(found)
    st.session_state["step"] = step


def ask(name: str, work: Work) -> None:
    """Queue work for the kitten; where this server does not run it, the work failed for that reason."""
    new = Job(session.session_id(), MODEL, None, MOST_NEW, work=work)
    session.forget(name)
    try:
        session.limits().check_model(MODEL)
    except InferenceError as error:
        new.error, new.state = error, "failed"
        st.session_state[f"work {name}"] = new
    else:
        session.queue(name, new)


def answer(name: str, doing: str) -> Any:
    """What came of the latest work of a name, if it is there; while it goes on, how far it is, and what went wrong."""
    job = session.work(name)
    if job is None:
        return None
    if not job.ended:
        follow_work(job, doing)
    elif job.error is not None:
        st.error(literal(error_text(job.error)))
    elif job.result is None:
        st.text(_("Cancelled; nothing was kept of it."))
    return job.result


def running(start: Begin) -> Work:
    """Work that drives a generation to its end and gives its run."""

    def work(model: LoadedModel, progress: Callable[[float], None], cancelled: Callable[[], bool]) -> Trace | None:
        with_end = start(model)
        for step in with_end:
            progress((step.index + 1) / MOST_NEW)
            if cancelled():
                with_end.close()
                return None
        return with_end.trace()

    return work
