"""What a reader's session holds, and what the server shares: the worker, the models, the demo run."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from charts.base import Palette
from inference.catalogue import default, entries
from inference.errors import N_, InferenceError, TraceError
from inference.trace import Trace
from ui.limits import Limits, read
from ui.model_key import ELEMENTS, FLOAT32, instructions, model_key, parted
from ui.models import ModelStore
from ui.shelf import Shelf
from ui.worker import GRACE_S, Job, Work, Worker

WARM_UP_AFTER_S = 2.0  # the first page should not share the interpreter with the import of torch
KEPT_BY_STREAMLIT_S = 120.0  # the state of a closed tab, in case its connection comes back
ASSETS = Path(__file__).resolve().parent.parent / "assets"


@st.cache_resource(show_spinner=False)
def models() -> ModelStore:
    """The server's models."""
    return ModelStore()


@st.cache_resource(show_spinner=False)
def worker() -> Worker:
    """The server's run worker."""
    return Worker(models().get)


@st.cache_resource(show_spinner=False)
def shelf() -> Shelf:
    """The server's jobs and traces, bounded."""
    return Shelf(limits().session_bytes, limits().all_bytes)


@st.cache_resource(show_spinner=False)
def limits() -> Limits:
    """The server's limits."""
    secrets = st.secrets.to_dict() if st.secrets.load_if_toml_exists() else {}
    return read(secrets, st.get_option("server.address") or "")


@st.cache_resource(show_spinner=False)
def demo() -> Trace:
    """The run that every reader sees first."""
    return Trace.load(ASSETS / "demo.safetensors")


@st.cache_resource(show_spinner=False)
def warm_up() -> None:
    """Import torch and load the default model in the background, once the first page has been painted."""

    def load() -> None:
        time.sleep(WARM_UP_AFTER_S)
        with contextlib.suppress(InferenceError):  # the run that needs the model will say what is wrong
            models().get(default().id, lambda _: None)

    threading.Thread(target=load, name="warm-up", daemon=True).start()


def session_id() -> str:
    """The name of this browser tab's session."""
    context = get_script_run_ctx()
    return context.session_id if context is not None else "no session"


def _leave(owner: str) -> None:
    """The tab was closed: its jobs are cancelled and its traces given back unless a reload claims them in time."""
    left = shelf().of(owner)
    for job in left:
        worker().leave(job)
    for seconds in (GRACE_S + 1, KEPT_BY_STREAMLIT_S + 10) if left else ():
        timer = threading.Timer(seconds, _give_back)
        timer.daemon = True
        timer.start()


def _give_back() -> None:
    """Free what nobody can ask for any more; a session is full of cycles, which only the collector undoes."""
    shelf().sweep(time.monotonic())
    gc.collect()


@st.cache_resource(scope="session", show_spinner=False, on_release=_leave)
def _presence() -> str:
    return session_id()


def attend() -> None:
    """Call once a rerun: keeps the session's presence, and after a reload claims what the URL names."""
    _presence()
    text = st.session_state.pop("text to take", None)
    if text is not None:
        st.session_state["prompt"] = text
    if "attended" not in st.session_state:
        st.session_state["attended"] = True
        _claim(st.query_params.get("job", ""))


def _claim(key: str) -> None:
    """Take over a job, and after a reload all of its tab; where that tab is still open, only what was shared."""
    named = shelf().find(key)
    if named is None:
        return
    for one in shelf().of(named.owner):
        if one is named or one.gone_since is not None:
            worker().claim(one, session_id())
            of_use = not one.ended or one.result is not None or one.trace is not None
            if one.name and of_use:  # else what the session did before it, if anything, is the latest
                st.session_state[f"work {one.name}"] = one
            elif one is named and not one.name:
                st.session_state["job"] = one


def job() -> Job | None:
    """This session's latest job."""
    found: Job | None = st.session_state.get("job")
    return found


def address() -> dict[str, str]:
    """What a reload needs to find the session's jobs: the key of the run that goes on or is on show, else of work."""
    latest = job()
    at = latest if latest is not None and not latest.ended else shown() or latest
    if at is None:
        at = next((one for one in reversed(shelf().of(session_id())) if one.name), None)
    return {} if at is None else {"job": at.key}


def submit(new: Job) -> None:
    """Queue a job of this session; its key goes into the URL at once, so that a reload finds it."""
    shelf().put(new)
    worker().submit(new)
    st.session_state["job"] = new
    st.query_params["job"] = new.key


def queue(name: str, new: Job) -> None:
    """Queue work of this session that is no run; the page finds it again by its name."""
    new.name = name
    shelf().put(new)
    worker().submit(new)
    st.session_state[f"work {name}"] = new


def work(name: str, about: Trace | None = None) -> Job | None:
    """This session's latest work of a name; where a run is given, only if it is about that very run."""
    found: Job | None = st.session_state.get(f"work {name}")
    if found is not None and about is not None:
        return found if found.about is not None and found.about() is about else None
    return found


def busy(name: str) -> bool:
    """Whether the session's latest work of a name goes on."""
    found = work(name)
    return found is not None and not found.ended


def ask_model(name: str, on_show: Trace, n_tokens: int, do: Work) -> None:
    """Queue work for the model of the run on show; where there is no such model here, the work failed for that reason.

    Args:
        n_tokens: whose time it takes, as `Job.n_new`.
    """
    new = Job(session_id(), "", None, n_tokens, work=do, about=weakref.ref(on_show))
    try:
        new.model_name = model_name(on_show)
    except InferenceError as error:
        new.error, new.state = error, "failed"
        st.session_state[f"work {name}"] = new
    else:
        queue(name, new)


def forget(name: str) -> None:
    """Give the session's latest work of a name back, with its result."""
    found = st.session_state.pop(f"work {name}", None)
    if found is not None:
        shelf().drop(found)


def going() -> list[Job]:
    """The session's jobs that have not ended."""
    return [one for one in shelf().of(session_id()) if not one.ended]


def shown() -> Job | None:
    """The job whose run is on show, if it is one of this server's."""
    found: Job | None = st.session_state.get("shown")
    return found


def put_on_show(finished: Job) -> None:
    """Put the run of a job on show, from its first step."""
    st.session_state["shown"], st.session_state["trace"] = finished, finished.trace
    st.session_state["step"] = finished.left_at or 0


def amend(old: Trace, new: Trace) -> None:
    """Put a run in the place of the one on show, which is the same run with more computed."""
    finished = shown()
    if finished is not None and finished.trace is old:
        finished.trace = new
    if trace() is old:
        st.session_state["trace"] = new


def trace() -> Trace:
    """The run on show: the session's last finished or chosen one, one opened from a file, or the demo."""
    latest = job()
    st.session_state["followed"] = None if latest is None or latest.ended else latest
    if latest is not None and latest.ended and st.session_state.get("seen") != latest.key:
        st.session_state["seen"] = latest.key
        if latest.trace is not None and latest.trace.steps:
            put_on_show(latest)
    found: Trace = st.session_state.get("trace") or demo()
    return found


def model_name(on_show: Trace) -> str:
    """The key by which the model of the run on show is loaded here, in the element type of the run.

    Raises:
        TraceError: it is not known here, because the run was made elsewhere.
        RequestError: this server does not run it.
    """
    parent = shown()
    made_here = parent is not None and parent.model_name  # not the demo, and not opened from a file
    listed = {entry.name: entry.id for entry in entries().values()}.get(on_show.model.name)
    choice = on_show.model.dtype in ELEMENTS and instructions()
    name = made_here or (listed and model_key(listed, on_show.model.dtype if choice else FLOAT32))
    if not name:
        raise TraceError(
            N_("{name} is not in the catalogue, so it cannot be run here."),
            N_("Run a prompt with a model of the list first."),
            name=on_show.model.name,
        )
    limits().check_model(parted(name)[0])
    return name


def followed() -> Job | None:
    """The job that was going on when this rerun asked for the run on show; it may have ended since.

    One answer for the whole page: else a job that ends while the page is drawn leaves it waiting for nothing.
    """
    found: Job | None = st.session_state.get("followed")
    return found


def show(opened: Trace) -> None:
    """Put a run on show that was opened from a file; it is kept, and counts, as one of the session's own."""
    found = Job(session_id(), "", None, opened.request.max_new_tokens, state="done", trace=opened)
    shelf().put(found)
    put_on_show(found)


def cache_of(on_show: Trace) -> Any:
    """The KV cache that the run on show left, if it is still kept."""
    finished = shown()
    return None if finished is None or finished.trace is not on_show else finished.cache


def complain(error: InferenceError) -> None:
    """Keep an error to be shown once, above the run that stays on show."""
    st.session_state["complaint"] = error


def palette() -> Palette:
    """The colours of the reader's mode."""
    return Palette.dark() if st.context.theme.type == "dark" else Palette.light()
