"""The form that asks for a run: model, prompt or conversation, settings, what to keep; examples, files and links."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import streamlit as st

from inference.catalogue import default, entries
from inference.errors import N_, InferenceError, RequestError
from inference.trace import Trace
from ui import session
from ui.asked import PARTS, ROLES, Asked, from_link, link
from ui.i18n import _, error_text
from ui.limits import MIB
from ui.model_key import ELEMENTS, FLOAT32, model_key, why_not
from ui.preview import preview
from ui.worker import Job, asking

LONG = " ".join(["The river runs to the sea, and the sea does not fill."] * 60)
EXAMPLES = {
    N_("Gravity"): "What is gravity?",
    N_("A Chinese sentence"): "小猫跑了一天，它很",
    N_("Code"): "def fibonacci(n):\n    ",
    N_("Emoji"): "👩‍🚀 🌍 🌦️ 🎲 ",
    N_("Repetition"): "the cat sat, the cat ran, the cat ",
    N_("A long text"): LONG,
}
DECODING = {"checkpoint": N_("As the checkpoint asks"), "greedy": N_("Greedy"), "random": N_("Random")}
TEXTS = ["txt", "md", "py", "json", "csv"]
VOCABULARY_MIB = 32  # a run file's tokens, beside its arrays
KEEP: Any = {"persist_state": "session"}


def run_form() -> None:
    """The form; a click on Run queues the request before the page runs again."""
    _begin()
    if st.session_state.pop("run at once", False):
        _submit()
        st.rerun()
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="bottom"):
            st.text_area(
                _("Prompt"), key="prompt", height=68, label_visibility="collapsed", placeholder=_("Prompt"), **KEEP
            )
            st.button(
                _("Run"), type="primary", icon=":material/play_arrow:", key="start", on_click=_submit,
                disabled=session.followed() is not None,
            )  # fmt: skip
        with st.container(horizontal=True, vertical_alignment="center"):
            _row()
        if st.session_state["preview"]:
            preview(_asked())


def _row() -> None:
    _model()
    st.toggle(_("Chat"), key="chat", help=_("Put the prompt through the model's chat template."), **KEEP)
    with st.popover(_("Conversation"), icon=":material/forum:", disabled=not st.session_state["chat"]):
        _conversation()
    with st.popover(_("Settings"), icon=":material/tune:"):
        _settings()
    with st.popover(_("Examples"), icon=":material/lightbulb:"):
        _examples()
    with st.popover(_("Open a file"), icon=":material/folder_open:"):
        _open()
    with st.popover(_("Share"), icon=":material/link:"):
        _share()
    st.toggle(
        _("Preview"),
        key="preview",
        help=_("Before you run: what the template adds, the settings in effect, and what the record takes"),
        **KEEP,
    )


def _model() -> None:
    """The catalogue, or where the server allows it, anything that can be loaded by name."""
    options = [entry.id for entry in session.limits().allowed()]
    if st.session_state["model"] not in options:
        options.append(st.session_state["model"])
    any_model = session.limits().any_model
    st.selectbox(
        _("Model"),
        options,
        format_func=_model_name,
        key="model",
        width=250,
        label_visibility="collapsed",
        accept_new_options=any_model,
        help=_("Pick one, or type a folder, a .gguf file or a hub id such as owner/model.") if any_model else None,
        on_change=_suit,
        **KEEP,
    )


def _suit() -> None:
    """A teaching model has no chat template."""
    if _example():
        st.session_state["chat"] = False


def _example() -> str:
    """The prompt that shows what the chosen model has learnt; empty for a model that takes any."""
    entry = entries().get(st.session_state["model"])
    return entry.example if entry is not None else ""


def _begin() -> None:
    """The form's first values: the link's where there is one."""
    if "prompt" in st.session_state:
        return
    given = from_link(st.query_params.to_dict())
    first = default()
    usual = Asked(model=first.id, prompt=first.example or EXAMPLES["Gravity"], chat=not first.example)
    for field in fields(Asked):
        st.session_state[field.name] = given.get(field.name, getattr(usual, field.name))
    st.session_state["n turns"] = 0
    for turn in st.session_state["turns"]:
        _add_turn(*turn)
    st.session_state["max_new_tokens"] = min(st.session_state["max_new_tokens"], session.limits().new_tokens)
    if not session.limits().allows(st.session_state["model"]):
        st.session_state["model"] = session.limits().allowed()[0].id
    if st.session_state["element"] != FLOAT32 and (reason := why_not()):
        st.session_state["element"] = FLOAT32
        session.complain(RequestError(reason))
    st.session_state["run at once"] = st.query_params.get("run") == "1" and session.job() is None


def _asked() -> Asked:
    values = {field.name: st.session_state.get(field.name, field.default) for field in fields(Asked)}
    turns = range(st.session_state["n turns"])
    said = ((st.session_state[f"role {at}"], st.session_state[f"turn {at}"]) for at in turns)
    values["turns"] = tuple((role, text) for role, text in said if text)
    values["record"] = tuple(values["record"])
    return Asked(**values)


def _busy() -> bool:
    job = session.job()
    return job is not None and not job.ended


def _submit() -> None:
    if _busy():  # a second click that came before the button was disabled
        return
    asked, limits = _asked(), session.limits()
    try:
        limits.check_model(asked.model)
        request = limits.bound(asked.request(limits.trace_bytes))
    except InferenceError as error:
        session.complain(error)
        return
    start = asking(request, limits.check_prompt)
    key = model_key(asked.model, asked.element)
    session.submit(Job(session.session_id(), key, start, request.max_new_tokens))


def _conversation() -> None:
    st.text_area(_("System text"), key="system", height=80, **KEEP)
    for at in range(st.session_state["n turns"]):
        left, right = st.columns([1, 3])
        left.selectbox(_("Role"), list(ROLES), format_func=lambda name: _(ROLES[name]), key=f"role {at}", **KEEP)
        right.text_area(_("Text"), key=f"turn {at}", height=68, **KEEP)
    none = not st.session_state["n turns"]
    with st.container(horizontal=True):
        st.button(_("Add a turn before the prompt"), key="add turn", icon=":material/add:", on_click=_add_turn)
        st.button(_("Remove the last turn"), key="remove turn", disabled=none, on_click=_remove_turn)


def _add_turn(role: str = "", text: str = "") -> None:
    at = st.session_state["n turns"]
    st.session_state[f"role {at}"] = role or list(ROLES)[at % 2]
    st.session_state[f"turn {at}"], st.session_state["n turns"] = text, at + 1


def _remove_turn() -> None:
    st.session_state["n turns"] -= 1


def _settings() -> None:
    _element()
    st.number_input(_("New tokens"), 1, session.limits().new_tokens, key="max_new_tokens", **KEEP)
    st.segmented_control(
        _("Decoding"), list(DECODING), format_func=lambda name: _(DECODING[name]), key="decoding", required=True, **KEEP
    )
    decoding = st.session_state["decoding"]
    left, right = st.columns(2)
    with left:
        if decoding == "random":
            _number(_("Temperature"), "temperature", 0.0, step=0.05)
            _number(_("Top-p"), "top_p", 0.0, 1.0, step=0.01)
        if decoding != "checkpoint":
            _number(_("Repetition penalty"), "repetition_penalty", 0.01, step=0.05)
    if decoding == "random":
        with right:
            _number(_("Top-k"), "top_k", 0)
            _number(_("Min-p"), "min_p", 0.0, 1.0, step=0.01)
            _number(_("Seed"), "seed", 0, empty=_("drawn anew"))
    st.text_area(_("Stop strings, one a line"), key="stop", height=80, help=_("Write \\n for a line break."), **KEEP)
    st.toggle(_("Keep the stop string in the text"), key="include_stop", **KEEP)
    st.pills(
        _("Record"), list(PARTS), format_func=lambda part: _(PARTS[part]), selection_mode="multi", key="record", **KEEP
    )


def _number(label: str, key: str, low: float, high: float | None = None, empty: str = "", **more: Any) -> None:
    """A field that is off while it is empty."""
    st.number_input(label, low, high, None, key=key, placeholder=empty or _("off"), **more, **KEEP)


def _element() -> None:
    """The element type, where the processor can choose it; else why it cannot."""
    if reason := why_not():
        st.text(_(reason))
        return
    st.segmented_control(
        _("Element type"), list(ELEMENTS), key="element", required=True, **KEEP,
        help=_("bfloat16 takes half the bytes and keeps 8 of 24 significant bits; “Prefill and decode” measures both."),
    )  # fmt: skip


def _examples() -> None:
    if _example():
        name = _("This model's own example")
        st.button(name, key="example model", width="stretch", on_click=_take, args=(_example(),))
    for name, text in EXAMPLES.items():
        st.button(_(name), key=f"example {name}", width="stretch", on_click=_take, args=(text,))


def _take(text: str) -> None:
    st.session_state["prompt"] = text


def _open() -> None:
    """Two uploaders, each empty again once its file was taken, so that the server does not keep the file too."""
    n = st.session_state.setdefault("n opened", 0)
    largest = -(-session.limits().trace_bytes // MIB) + VOCABULARY_MIB
    run = st.file_uploader(_("A run file"), type=["safetensors"], key=f"run file {n}", max_upload_size=largest)
    text = st.file_uploader(_("A text as prompt"), type=TEXTS, key=f"text file {n}", max_upload_size=1)
    if run is None and text is None:
        return
    st.session_state["n opened"] = n + 1
    if text is not None:
        st.session_state["text to take"] = text.getvalue().decode("utf-8", "replace")
    if run is not None:
        try:
            session.show(Trace.load(run.getvalue()))
        except InferenceError as error:
            session.complain(error)
    st.rerun()


def _share() -> None:
    try:
        address = f"{(st.context.url or '').split('?')[0]}{link(_asked())}"
        st.code(address, language=None, wrap_lines=True)
        st.text(_("Add &run=1 to run it at once."))
    except InferenceError as error:
        st.text(error_text(error))


def _model_name(name: str) -> str:
    entry = entries().get(name)
    if entry is None:
        return name
    return entry.name if entry.installed else _("{name} (from the hub)", name=entry.name)
