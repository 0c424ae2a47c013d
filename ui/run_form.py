"""The form that asks for a run: model, prompt, settings, limits; and the opening of a run file."""

from __future__ import annotations

from typing import Any

import streamlit as st

from inference.catalogue import entries
from inference.errors import N_, InferenceError
from inference.request import GenerationRequest
from inference.sampling import SamplingParams
from inference.trace import Trace
from ui import session
from ui.i18n import _, error_text
from ui.worker import Job, asking

EXAMPLES = {
    N_("Gravity"): "What is gravity?",
    N_("Chinese"): "小猫跑了一天，它很",
    N_("Code"): "def fibonacci(n):\n    ",
    N_("Emoji"): "The weather today: 🌦️ and tomorrow: ",
    N_("Repetition"): "the cat sat, the cat ran, the cat ",
}


def run_form() -> None:
    """The form; a valid request is queued and the page runs again."""
    with st.container(border=True):
        prompt = st.text_area(
            _("Prompt"), key="prompt", value=EXAMPLES["Gravity"], height=80, help=_("Any text; it is taken literally.")
        )
        with st.container(horizontal=True, vertical_alignment="bottom"):
            busy = session.job() is not None and not session.job().ended
            start = st.button(_("Run"), type="primary", icon=":material/play_arrow:", disabled=busy)
            model = st.selectbox(_("Model"), list(entries()), format_func=_model_name, key="model", width=260)
            n_new = st.number_input(_("New tokens"), 1, 2048, 48, key="max_new_tokens", width=130)
            chat = st.toggle(_("Chat template"), value=True, key="chat")
            with st.popover(_("Settings"), icon=":material/tune:"):
                settings = _settings()
                stop = st.text_input(_("Stop strings, separated by |"), key="stop")
            with st.popover(_("Example"), icon=":material/lightbulb:"):
                _examples()
            with st.popover(_("Open a run"), icon=":material/folder_open:"):
                _upload()
    if start:
        _submit(
            model, {"prompt": prompt, "chat": chat, "max_new_tokens": int(n_new), "settings": settings, "stop": stop}
        )


def _submit(model: str, asked: dict[str, Any]) -> None:
    try:
        request = GenerationRequest(
            prompt=asked["prompt"],
            chat=asked["chat"],
            max_new_tokens=asked["max_new_tokens"],
            sampling=SamplingParams(**asked["settings"]),
            stop_strings=tuple(s.replace("\\n", "\n") for s in asked["stop"].split("|") if s),
        )
    except InferenceError as error:
        st.error(error_text(error).replace("$", "\\$"))
        return
    session.submit(Job(session.session_id(), model, asking(request), request.max_new_tokens))
    st.rerun()


def _settings() -> dict[str, Any]:
    """The sampling settings as keyword arguments; what is off is left out."""
    drawing = st.segmented_control(
        _("Decoding"),
        ["greedy", "random"],
        default="random",
        format_func=lambda name: _(DECODING[name]),
        key="decoding",
    )
    penalty = st.slider(_("Repetition penalty"), 1.0, 2.0, 1.0, 0.05, key="repetition_penalty")
    settings: dict[str, Any] = {"repetition_penalty": penalty, "greedy": drawing == "greedy"}
    if drawing != "greedy":
        settings["temperature"] = st.slider(_("Temperature"), 0.0, 3.0, 0.8, 0.05, key="temperature")
        settings["top_k"] = st.number_input(_("Top-k (0 is off)"), 0, None, 50, key="top_k")
        settings["top_p"] = st.slider(_("Top-p"), 0.0, 1.0, 0.95, 0.01, key="top_p")
        settings["min_p"] = st.slider(_("Min-p"), 0.0, 1.0, 0.0, 0.01, key="min_p")
        settings["seed"] = st.number_input(_("Seed"), 0, None, 42, key="seed")
    return settings


DECODING = {"greedy": N_("Greedy"), "random": N_("Random")}


def _examples() -> None:
    for name, text in EXAMPLES.items():
        if st.button(_(name), key=f"example {name}", width="stretch", on_click=_take, args=(text,)):
            st.rerun()


def _take(text: str) -> None:
    st.session_state["prompt"] = text


def _upload() -> None:
    file = st.file_uploader(_("A run file"), type=["safetensors"], key="upload")
    if file is None or st.session_state.get("opened") == file.file_id:
        return
    st.session_state["opened"] = file.file_id
    try:
        session.show(Trace.load(file.getvalue()))
    except InferenceError as error:
        st.error(error_text(error))
        return
    st.rerun()


def _model_name(name: str) -> str:
    entry = entries()[name]
    return entry.name if entry.installed else _("{name} (from the hub)", name=entry.name)
