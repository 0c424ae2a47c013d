"""Sweeps on this machine: prefill against prompt length, a decode step against context, a prompt in chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import streamlit as st

from charts.sweep_times import CHARTS
from inference.errors import N_
from inference.measured import Sweep, sweep_table
from inference.trace import Trace
from ui import session
from ui.cards import chart_card
from ui.i18n import _
from ui.timing.measuring import can_run, measure_button, measured, queue_measurement
from ui.worker import Work

if TYPE_CHECKING:
    from inference.models import LoadedModel

SHORTEST, USUAL, LONGEST = 16, 256, 4096
ROUNDS, MOST_ROUNDS = 3, 9
BATCHES, BATCH_CONTEXT = (1, 2, 4, 8, 16), 64


@dataclass(frozen=True, slots=True)
class Kind:
    """A sweep's words: its title, what is measured, and what its button says."""

    title: str
    about: str
    button: str


KINDS = {
    "prefill": Kind(
        N_("Prefill time"),
        N_("One pass over prompts of growing length: a part grows with the tokens, attention with their square."),
        N_("Measure the prefill"),
    ),
    "decode": Kind(
        N_("Decode step time"),
        N_("One step after contexts of growing length, with the cache and without: without it, all is fed again."),
        N_("Measure a step"),
    ),
    "chunked": Kind(
        N_("Chunked prefill"),
        N_("The longest prompt, fed in chunks: other requests could take a step between two of them."),
        N_("Measure chunks"),
    ),
    "batch": Kind(
        N_("Batch size"),
        N_("One step of 1 to 16 sequences at once: weights are read once for all, so together they are faster."),
        N_("Measure batches"),
    ),
}


def sweeps(trace: Trace) -> None:
    """What to measure, and what was measured."""
    st.text(
        _(
            "The model runs for real, with nothing recorded. Each point is measured in several rounds, after one that "
            "warms up; marks are medians, bars reach from the fastest round to the slowest."
        )
    )
    if not can_run(trace):
        return
    longest, rounds = _asked(trace)
    if not longest:
        st.text(_("The model's context is too short for a sweep."))
        return
    found = []
    names = list(KINDS)
    for pair in (names[:2], names[2:]):
        for column, name in zip(st.columns(2), pair, strict=True):
            with column:
                found.append(_section(name, trace, longest, rounds))
    _export([sweep for sweep in found if sweep is not None])


def lengths(longest: int) -> list[int]:
    """Powers of two up to the longest."""
    return [n for n in (2**p for p in range(4, 13)) if n <= longest]


def offered_lengths(trace: Trace) -> list[int]:
    """The longest prompts that a sweep may reach; a decode sweep needs a place more for each round."""
    room = min(trace.model.context_length or LONGEST, session.limits().prompt_tokens) - MOST_ROUNDS - 1
    return lengths(min(room, LONGEST))[2:]


def _asked(trace: Trace) -> tuple[int, int]:
    """The longest prompt and the rounds, as chosen."""
    offered = offered_lengths(trace)
    if not offered:
        return 0, 0
    with st.container(horizontal=True, vertical_alignment="bottom"):
        usual = offered.index(USUAL) if USUAL in offered else len(offered) - 1
        longest = st.selectbox(_("Longest"), offered, usual, format_func="{:,}".format, key="sweep-longest", width=140)
        rounds = st.number_input(_("Rounds"), 1, MOST_ROUNDS, ROUNDS, key="sweep-rounds", width=140)
    return longest, rounds


def _section(name: str, trace: Trace, longest: int, rounds: int) -> Sweep | None:
    kind = KINDS[name]
    work, fed = _work(name, trace, lengths(longest), rounds), _fed(name, longest, rounds)
    measure_button(f"sweep {name}", _(kind.button), trace, work, fed)
    found: Sweep | None = measured(f"sweep {name}", trace, _(kind.title))
    if found is None:
        with st.container(border=True, height="stretch"):
            st.subheader(_(kind.title), anchor=False)
            st.text(_(kind.about))
    else:
        chart_card(CHARTS[name](found, palette=session.palette(), t=_), f"sweep-{name}", t=_)
    return found


def queue_usual(name: str, trace: Trace) -> None:
    """Queue a sweep as it is offered at first, for another part of the page that needs it."""
    longest = max(n for n in (*offered_lengths(trace), SHORTEST) if n <= USUAL)
    queue_measurement(f"sweep {name}", trace, _work(name, trace, lengths(longest), ROUNDS), _fed(name, longest, ROUNDS))


def _fed(name: str, longest: int, rounds: int) -> int:
    """Tokens that a sweep feeds in all."""
    places = lengths(longest)
    return {
        "chunked": longest * len(places) * (rounds + 1),
        "batch": sum(BATCHES) * (BATCH_CONTEXT + rounds),
    }.get(name, sum(places) * (rounds + 1))


def _work(name: str, trace: Trace, places: Sequence[int], rounds: int) -> Work:
    ids = np.array([token.id for token in trace.tokens], dtype=np.int64)

    def work(model: LoadedModel, progress: Callable[[float], None], cancelled: Callable[[], bool]) -> Sweep | None:
        from inference.time_sweeps import batch_times, chunk_times, decode_times, prefill_times

        if name == "prefill":
            return prefill_times(model, ids, places, rounds, progress, cancelled)
        if name == "decode":
            return decode_times(model, ids, places, rounds, True, progress, cancelled)
        if name == "batch":
            return batch_times(model, ids, min(BATCH_CONTEXT, places[-1]), BATCHES, rounds, progress, cancelled)
        return chunk_times(model, ids, places[-1], places[1:], rounds, progress, cancelled)

    return work


def _export(found: Sequence[Sweep]) -> None:
    if found:
        table = pd.concat([sweep_table(sweep) for sweep in found])
        st.download_button(
            _("Download all rounds (CSV)"), table.to_csv(index=False), "sweeps.csv", "text/csv",
            icon=":material/download:", on_click="ignore",
        )  # fmt: skip
