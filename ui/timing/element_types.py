"""float32 against bfloat16 on this processor: the run's model in both, their speed, bytes, and what it changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import streamlit as st

from charts.element_types import divergences, parting_text, speeds
from inference.trace import Trace
from ui import session
from ui.cards import chart_card
from ui.components.token_rows import Chip, Row, token_rows
from ui.i18n import _
from ui.kv.work import outcome, run_button
from ui.model_key import ELEMENTS, instructions, model_key, parted, why_not
from ui.timing.measuring import TOKENS_A_STEP, can_run
from ui.worker import Work

if TYPE_CHECKING:
    from inference.element_types import TwoTypes
    from inference.models import LoadedModel

USUAL_STEPS, MOST_STEPS = 32, 256
PASSES = 2 * (1 + 4)  # over the run's tokens, in both types; a round of the prefill warms up
NAME = "element types"


def element_types(trace: Trace) -> None:
    """What is compared, the button, and what was found."""
    if reason := why_not():
        st.text(_(reason))
        return
    st.text(
        _(
            "This processor has {instructions}. The run's tokens are fed to its model in float32 and in bfloat16, and "
            "both write on from the prompt greedily. They take turns at every pass; passes that warm up do not count.",
            instructions=tuple(instructions()),
        )
    )
    if not trace.steps:
        st.text(_("This run was stopped before its first token, so there is nothing to compare."))
        return
    if not can_run(trace):
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        steps = st.number_input(_("Decode steps"), 4, MOST_STEPS, USUAL_STEPS, key="type-steps", width=140)
        fed = PASSES * len(trace.tokens) + 2 * TOKENS_A_STEP * steps
        run_button(NAME, _("Compare both types"), trace, _work(trace, steps), fed // TOKENS_A_STEP)
    found: TwoTypes | None = outcome(NAME, trace, _("Loading the model in both types, then running both by turns"))
    if found is not None:
        _show(found)


def _work(trace: Trace, steps: int) -> Work:
    store, name = session.models(), parted(session.model_name(trace))[0]

    def work(model: LoadedModel, progress: Callable[[float], None], cancelled: Callable[[], bool]) -> TwoTypes | None:
        from inference.element_types import compare

        # the queue's own model is one of the two
        pair = [
            model if model.element == element else store.get(model_key(name, element), lambda _: None)
            for element in ELEMENTS
        ]
        return compare(pair[0], pair[1], trace, steps, progress, cancelled)

    return work


def _show(found: TwoTypes) -> None:
    palette = session.palette()
    left, right = st.columns([2, 3])
    with left:
        chart_card(speeds(found, palette=palette, t=_), "type-speeds", t=_)
    with right:
        chart_card(divergences(found, palette=palette, t=_), "type-divergences", t=_)
    with st.container(border=True, key="type-texts-card"):
        st.subheader(_("Both greedy texts"), anchor=False)
        st.text(parting_text(found, _))
        token_rows(_rows(found), label=_("Both greedy texts"), key="type-texts")


def _rows(found: TwoTypes) -> list[Row]:
    """The tokens of both texts, the first that differs marked."""
    return [
        Row(
            side.element,
            [
                Chip(token.display, kind="chosen" if step == found.parting else "plain")
                for step, token in enumerate(side.written)
            ],
        )
        for side in found.sides
    ]
