"""The run with its cache in 8 and 4 bits: errors, channels that stand out, and what changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import streamlit as st

from charts.quantised import channels, effect, head_errors, summary
from inference.quantise import FORMATS
from inference.trace import Trace
from ui import session
from ui.cards import chart_card
from ui.i18n import _
from ui.kv.work import outcome, run_button
from ui.worker import Work

if TYPE_CHECKING:
    from inference.cache_quantise import Quantised
    from inference.models import LoadedModel

USUAL = ["q8_0", "q4_0"]
ANY_HEAD = ["int8"]
BLOCK = 32
USUAL_STEPS, MOST_STEPS = 24, 256


def quantised(trace: Trace) -> None:
    """Asks for the formats, and shows what each costs and saves."""
    st.text(
        _(
            "The run's tokens are fed again with a cache that is rounded after each pass: q8_0 and int8 keep 8 bits a "
            "number, q4_0 and q4_1 keep 4, each with a 16-bit scale for a block."
        )
    )
    if not trace.steps:
        st.text(_("This run was stopped before its first token, so there is nothing to repeat."))
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        usual = USUAL if trace.model.head_dim % BLOCK == 0 else ANY_HEAD
        names = st.multiselect(_("Formats"), list(FORMATS), usual, key="formats", width=360)
        steps = st.number_input(_("Steps"), 1, MOST_STEPS, USUAL_STEPS, key="quantised-steps", width=140)
        steps = min(steps, len(trace.steps))
        if names:
            run_button(
                "quantised", _("Run with each format"), trace, _formats(trace, names, steps), steps * (1 + len(names))
            )
        else:
            st.text(_("Choose at least one format."))
    found: Quantised | None = outcome("quantised", trace, _("Running with the exact cache and each format, by turns"))
    if found is not None:
        _show(found)


def _formats(trace: Trace, names: Sequence[str], steps: int) -> Work:
    def work(model: LoadedModel, progress: Callable[[float], None], cancelled: Callable[[], bool]) -> Quantised | None:
        from inference.cache_quantise import run_quantised

        return run_quantised(model, trace, names, steps, progress, cancelled)

    return work


@st.fragment
def _show(found: Quantised) -> None:
    palette = session.palette()
    with st.container(border=True):
        st.subheader(_("Bytes and effect"), anchor=False)
        st.dataframe(summary(found, _), hide_index=True)
        st.text(
            _("The bytes are those of the format; while it runs, the rounded numbers are held in the model's own type.")
        )
    with st.container(horizontal=True):
        kinds = {"keys": _("Keys"), "values": _("Values")}
        kind = st.segmented_control(
            _("Channels of"),
            list(kinds),
            format_func=kinds.__getitem__,
            default="keys",
            required=True,
            key="channels-of",
        )
        chosen = st.selectbox(
            _("Format"), range(len(found.formats)), format_func=lambda i: found.formats[i].name, width=140
        )
    shown = {
        "quantised-effect": effect(found, palette=palette, t=_),
        "quantised-errors": head_errors(found, chosen, palette=palette, t=_),
        "quantised-channels": channels(found, kind, palette=palette, t=_),
    }
    for column, (key, chart) in zip(st.columns(len(shown)), shown.items(), strict=True):
        with column:
            chart_card(chart, key, t=_)
