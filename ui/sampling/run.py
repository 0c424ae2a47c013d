"""The settings over the whole run: where they would have chosen another token, and the new branch run for real."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

import streamlit as st

from charts.whole_run import whole_run
from inference.counterfactual import Choice, choices, parting
from inference.sampling_params import SamplingParams
from inference.trace import Trace
from ui import session
from ui.branches import leave, run_tree
from ui.cards import chart_card
from ui.i18n import _
from ui.worker import Start

if TYPE_CHECKING:
    from inference.engine import Generation
    from inference.forward import Cache
    from inference.models import LoadedModel


def run_choices(trace: Trace, params: SamplingParams) -> list[Choice]:
    """What the settings would choose at each step; the latest answer is kept, since another step asks the same."""
    kept = st.session_state.get("lab choices")
    if kept is not None and kept[0]() is trace and kept[1] == params:
        found: list[Choice] = kept[2]
        return found
    found = choices(trace, params)
    st.session_state["lab choices"] = (weakref.ref(trace), params, found)
    return found


def over_the_run(trace: Trace, params: SamplingParams, found: Sequence[Choice]) -> None:
    """The button that runs the new branch, the session's runs, and the chart."""
    at = parting(found)
    nothing = at is None and all(choice.decision is not None for choice in found)
    with st.container(horizontal=True):
        label = _("Run it with these settings") if at is None else _("Run on from step {step}", step=at)
        if st.button(label, icon=":material/call_split:", key="run branch", disabled=nothing):
            leave(trace, at or 0, lambda bounded, cache: _start(bounded, params, cache))
        run_tree()
    chart_card(whole_run(trace, found, palette=session.palette(), t=_), "whole-run", t=_)


def _start(trace: Trace, params: SamplingParams, cache: Cache | None) -> Start:
    def start(model: LoadedModel) -> Generation:
        from inference.branch import with_settings

        return with_settings(model, trace, params, cache)

    return start
