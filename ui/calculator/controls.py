"""The calculator's controls around the sliders: model, sequences, pages, devices; and what the session remembers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from inference.elements import ELEMENT_TYPES
from inference.errors import N_, InferenceError
from inference.kv_lengths import DISTRIBUTIONS, draw_lengths
from inference.trace import Trace
from ui.calculator.plan import (
    IN_BROWSER,
    LAYOUT,
    OWN,
    RUN,
    USUAL,
    Plan,
    from_browser,
    from_link,
    link_names,
    to_link,
)
from ui.calculator.sources import catalogue, gpus
from ui.components.kv_calculator import reported
from ui.i18n import _, error_text
from ui.literal import literal

COMPONENT = "kv calculator"
EQUAL, LIST = "equal", "list"
SEQUENCES = {EQUAL: N_("Equal lengths"), LIST: N_("A list of lengths")}
NAMES = {"lognormal": N_("log-normal"), "exponential": N_("exponential"), "uniform": N_("uniform")}
KEEP: Any = {"persist_state": "session"}
WIDGETS = (
    "model",
    "config",
    "lengths",
    "value_element",
    "page_size",
    "tp",
    "encoder_tokens",
    "gpu",
    "weights",
    "billions",
)


@dataclass
class Memory:
    """What the session keeps of the calculator between reruns.

    Attributes:
        sliders: the values that the browser sets; `None` of a layout's figure is the model's own.
        serial: the number of the page's last wish for them.
        bytes: what the browser shows for them, if it has said so.
        good: the last plan that could be counted.
    """

    sliders: dict[str, Any]
    good: Plan = USUAL
    serial: int = 0
    bytes: str | None = None

    def wish(self, **values: Any) -> None:
        """Set sliders from the page; what the browser reported before no longer counts."""
        self.sliders |= values
        self.serial, self.bytes = self.serial + 1, None


def memory() -> Memory:
    """The session's memory; the first time it is filled from the link."""
    found: Memory | None = st.session_state.get("calculator")
    if found is None:
        plan = from_link(st.query_params.to_dict())
        found = st.session_state["calculator"] = Memory({name: getattr(plan, name) for name in IN_BROWSER})
        _set(plan)
    return found


def asked(kept: Memory) -> Plan:
    """The plan as the controls and the sliders stand now."""
    report = reported(COMPONENT, kept.serial)
    if report is not None:
        kept.sliders |= from_browser(report)
        kept.bytes = report.get("bytes")
    values = {name: st.session_state.get(_key(name), getattr(USUAL, name)) for name in WIDGETS}
    if st.session_state.get(_key("sequences")) != LIST:
        values["lengths"] = ""
    return Plan(**values, **kept.sliders)


def remember(plan: Plan) -> None:
    """Bring the address up to date; other names in it are left alone."""
    wanted = to_link(plan)
    there = {name: st.query_params[name] for name in link_names() if name in st.query_params}
    for name in there.keys() - wanted.keys():
        del st.query_params[name]
    st.query_params.update({name: text for name, text in wanted.items() if there.get(name) != text})


def controls(plan: Plan, wrong: Mapping[str, InferenceError], *, cross: bool, trace: Trace) -> None:
    """The rows of controls; each sentence about what is wrong stands under the field that it is about."""
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="top"):
            with st.container(width=330, gap="small"):
                _model(wrong, trace)
            with st.container(width="content", gap="small"):
                _sequences()
            with st.container(width=_width("page_size", wrong), gap="small"):
                _figure(_("Page size"), "page_size", wrong, _("Positions a block; 1 counts without pages."))
            with st.container(width=_width("tp", wrong), gap="small"):
                _figure(_("Devices"), "tp", wrong, _("Tensor-parallel degree; the figures are for one device."))
            with st.container(width=170, gap="small"):
                _value_element(wrong)
            if cross:
                with st.container(width=170, gap="small"):
                    _figure(
                        _("Encoder tokens"),
                        "encoder_tokens",
                        wrong,
                        _("Positions of the encoder, for cross-attention."),
                    )
        if plan.model == OWN:
            _config(wrong)
        if st.session_state[_key("sequences")] == LIST:
            _lengths(wrong)


def _width(name: str, wrong: Mapping[str, InferenceError]) -> int:
    """Pixels of a small field; more where a sentence stands under it."""
    return 330 if name in wrong else 130


def complain(name: str, wrong: Mapping[str, InferenceError]) -> None:
    """The sentence about a field, if something is wrong with it."""
    if name in wrong:
        st.error(literal(error_text(wrong[name])))


def put(plan: Plan) -> None:
    """Set every control to a plan, as an example does."""
    kept = memory()
    _set(plan)
    kept.wish(**{name: getattr(plan, name) for name in IN_BROWSER})


def _set(plan: Plan) -> None:
    for name in WIDGETS:
        st.session_state[_key(name)] = getattr(plan, name)
    if plan.gpu not in gpus():
        st.session_state[_key("gpu")] = USUAL.gpu
    st.session_state[_key("sequences")] = LIST if plan.lengths else EQUAL


def _key(name: str) -> str:
    return f"calculator {name}"


def _renewed() -> None:
    memory().wish()


def _model(wrong: Mapping[str, InferenceError], trace: Trace) -> None:
    options = [RUN, OWN, *catalogue()]
    if st.session_state[_key("model")] not in options:  # a link named it; the sentence below says so
        options.append(st.session_state[_key("model")])
    names = {RUN: _("The run's model: {name}", name=trace.model.name), OWN: _("My own config.json")}
    st.selectbox(
        _("Model"),
        options,
        format_func=lambda name: names.get(name, name),
        key=_key("model"),
        on_change=_own_figures,
        **KEEP,
    )
    complain("model", wrong)


def _sequences() -> None:
    st.segmented_control(
        _("Sequences"), list(SEQUENCES), format_func=lambda name: _(SEQUENCES[name]), key=_key("sequences"),
        required=True, on_change=_renewed, **KEEP,
    )  # fmt: skip


def _value_element(wrong: Mapping[str, InferenceError]) -> None:
    st.selectbox(
        _("Values in"), ["", *ELEMENT_TYPES], format_func=lambda name: name or _("same as keys"),
        key=_key("value_element"), help=_("Keys and values may be stored in different types."), **KEEP,
    )  # fmt: skip
    complain("value_element", wrong)


def _own_figures() -> None:
    """Another model: its own layers, heads and head size."""
    memory().wish(**dict.fromkeys(LAYOUT))


def _figure(label: str, name: str, wrong: Mapping[str, InferenceError], help_text: str) -> None:
    key = _key(name)
    if isinstance(st.session_state[key], str):  # a link's: the sentence below quotes it, the field cannot hold it
        st.session_state[key] = getattr(USUAL, name)
    st.number_input(label, value=None, step=1, key=key, help=help_text, **KEEP)
    complain(name, wrong)


def _config(wrong: Mapping[str, InferenceError]) -> None:
    left, right = st.columns([2, 1])
    with left:
        st.text_area(
            "config.json", key=_key("config"), height=150, on_change=_own_figures,
            placeholder='{"model_type": "llama", "num_hidden_layers": 32, …}', **KEEP,
        )  # fmt: skip
        complain("config", wrong)
    with right:
        n = st.session_state.setdefault("n configs", 0)
        file = st.file_uploader(_("Or upload it"), type=["json"], key=f"config file {n}", max_upload_size=1)
        if file is not None:
            st.session_state["n configs"] = n + 1
            st.session_state["config to take"] = file.getvalue().decode("utf-8", "replace")
            st.rerun()


def take_upload() -> None:
    """Before the controls are drawn: put an uploaded config into its field."""
    text = st.session_state.pop("config to take", None)
    if text is not None:
        st.session_state[_key("config")] = text
        _own_figures()


def _lengths(wrong: Mapping[str, InferenceError]) -> None:
    left, right = st.columns([2, 1])
    with left:
        st.text_area(
            _("One length a sequence"),
            key=_key("lengths"),
            height=120,
            placeholder="4096, 100, 7",
            on_change=_renewed,
            **KEEP,
        )
        complain("lengths", wrong)
    with right, st.container(horizontal=True, vertical_alignment="bottom"):
        st.selectbox(
            _("Distribution"), DISTRIBUTIONS, format_func=lambda name: _(NAMES[name]), key="drawn as", width=150
        )
        for label, key, usual in (
            (_("Count"), "drawn count", 32),
            (_("Mean"), "drawn mean", 4096),
            (_("Seed"), "drawn seed", 42),
        ):
            st.number_input(label, value=usual, step=1, key=key, width=110)
        st.button(_("Draw lengths"), icon=":material/casino:", on_click=_draw)
        if "drawing refused" in st.session_state:
            st.error(literal(error_text(st.session_state["drawing refused"])))


def _draw() -> None:
    state = st.session_state
    state.pop("drawing refused", None)
    try:
        drawn = draw_lengths(state["drawn as"], state["drawn count"], state["drawn mean"], state["drawn seed"])
    except InferenceError as error:
        state["drawing refused"] = error
        return
    state[_key("lengths")] = ", ".join(str(n) for n in drawn)
    _renewed()
