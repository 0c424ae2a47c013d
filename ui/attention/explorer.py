"""The attention page below its title: the step, and the sections, of which only the open one is drawn."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from inference.trace import Trace
from ui.attention.forcing import teacher_forcing
from ui.attention.heads import heads
from ui.attention.lens import logit_lens
from ui.attention.masks import masks
from ui.components.player import player
from ui.i18n import _

STRIP_HEIGHT = 84

Section = Callable[[Trace, int], None]


@st.fragment
def explorer(trace: Trace) -> None:
    """Everything about the run on show; moving to another step runs this part of the page alone."""
    step = player(trace, _asked_step(), t=_, key="attention-player", height=STRIP_HEIGHT)
    st.session_state["step"] = step
    if not trace.steps:
        st.text(_("This run was stopped before its first token, so it holds no attention."))
        return
    st.query_params["step"] = str(step)
    sections: dict[str, Section] = {
        _("Heads"): heads,
        _("Masks"): masks,
        _("Teacher forcing"): lambda trace, step: teacher_forcing(trace),
        _("Logit lens"): logit_lens,
    }
    tabs = st.tabs(list(sections), key="section", on_change="rerun")
    for tab, section in zip(tabs, sections.values(), strict=True):
        if tab.open:
            with tab:
                section(trace, step)


def _asked_step() -> int:
    """The step of the link when it is opened, and later the one that the reader is on."""
    if "attention opened" not in st.session_state:
        st.session_state["attention opened"] = True
        linked = st.query_params.get("step", "")
        if linked.isdecimal():
            st.session_state["step"] = int(linked)
    return int(st.session_state.get("step", 0))
