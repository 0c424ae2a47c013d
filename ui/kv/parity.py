"""The same run with the cache and without it, both for real."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import streamlit as st

from charts.cache_parity import logit_distance, step_times, work_counts
from inference.cache_counts import dot_products, projected
from inference.trace import Trace
from ui import session
from ui.cards import chart_card
from ui.i18n import _
from ui.kv.work import outcome, run_button
from ui.worker import Work

if TYPE_CHECKING:
    from inference.models import LoadedModel
    from inference.no_cache import Parity

USUAL_STEPS, MOST_STEPS = 24, 1024
MOST_POSITIONS = 50_000  # fed without a cache; the model is busy for so long


def parity(trace: Trace) -> None:
    """Asks for the two runs, and shows what they took and whether they agree."""
    st.text(
        _(
            "The run's tokens are fed again, step by step, with the cache and without: without it, every step "
            "computes the keys and values of all positions anew."
        )
    )
    if not trace.steps:
        st.text(_("This run was stopped before its first token, so there is nothing to repeat."))
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        most = most_steps(trace)
        steps = min(most, st.number_input(_("Steps"), 1, MOST_STEPS, USUAL_STEPS, key="parity-steps", width=140))
        without = int(projected(trace.n_prompt, steps, cached=False).sum())
        run_button("parity", _("Run both ways"), trace, _both_ways(trace, steps), without // 8 + steps)
    if most < len(trace.steps):
        st.text(
            _(
                "At most {n} steps: without a cache, more would feed over {positions:,} positions.",
                n=most,
                positions=MOST_POSITIONS,
            )
        )
    found: Parity | None = outcome("parity", trace, _("Running with the cache and without, by turns"))
    if found is not None:
        _charts(found)
    _formula(trace)


def most_steps(trace: Trace) -> int:
    """How many steps the run without a cache may repeat; at least one."""
    fed = projected(trace.n_prompt, len(trace.steps), cached=False).cumsum()
    return max(1, int((fed <= MOST_POSITIONS).sum()))


def _both_ways(trace: Trace, steps: int) -> Work:
    def work(model: LoadedModel, progress: Callable[[float], None], cancelled: Callable[[], bool]) -> Parity | None:
        from inference.no_cache import both_ways

        return both_ways(model, trace, steps, progress, cancelled)

    return work


def _charts(found: Parity) -> None:
    palette = session.palette()
    charts = {"parity-times": step_times, "parity-work": work_counts, "parity-logits": logit_distance}
    for column, (key, make) in zip(st.columns(len(charts)), charts.items(), strict=True):
        with column:
            chart_card(make(found, palette=palette, t=_), key, t=_)


def _formula(trace: Trace) -> None:
    """The counts in general, and for this run's own length."""
    rows = []
    for n_prompt, n_new in ((1, 10), (1, 100), (1, 1000), (trace.n_prompt, len(trace.steps))):
        cached, uncached = (int(projected(n_prompt, n_new, cached=way).sum()) for way in (True, False))
        pairs = int(dot_products(n_prompt, n_new, cached=True).sum())
        rows.append(
            {
                _("prompt tokens"): n_prompt,
                _("new tokens"): n_new,
                _("projected with the cache"): cached,
                _("projected without"): uncached,
                _("dot products of new queries, both ways"): pairs,
            }
        )
    with st.container(border=True):
        st.subheader(_("In general"), anchor=False)
        st.text(
            _(
                "From a single token, n tokens take n projections a layer with the cache and 1 + 2 + … + n = n · (n + "
                "1) ÷ 2 without. Each new query still meets every key before it: those dot products stay. What the "
                "cache saves is computing old positions again."
            )
        )
        st.dataframe(rows, hide_index=True)
