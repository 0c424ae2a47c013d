"""Dropping positions when the cache passes a limit: a real run under each policy, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import streamlit as st

from charts.eviction import cache_over_time, continuation, policy_name
from inference.trace import Trace
from ui import session
from ui.cards import chart_card
from ui.i18n import _, sentences
from ui.kv.work import outcome, run_button
from ui.worker import Work

if TYPE_CHECKING:
    from inference.eviction import Evictions, PolicyRun
    from inference.models import LoadedModel

LIMIT_KIB = 1024
SINKS = 4
NEW_TOKENS, MOST_TOKENS = 48, 256  # the model is busy for nine times as many passes
RULES = ("window", "sinks", "clear", "stop")


def cleanup(trace: Trace) -> None:
    """Asks for the limit, and shows what each policy made of the cache and of the text."""
    st.text(
        _(
            "The prompt is continued once without a limit, and once under each policy. Positions keep their numbers: "
            "what is left stays rotated as it was, and later tokens count on."
        )
    )
    if not trace.steps or not trace.kv.positions[0].max(initial=0):
        st.text(_("This run has no keys and values to drop."))
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        limit = _limit(trace)
        sinks = st.number_input(_("First positions kept"), 1, 1024, SINKS, key="sinks", width=150)
        most = min(session.limits().new_tokens, MOST_TOKENS)
        n_new = st.number_input(_("New tokens"), 1, most, min(NEW_TOKENS, most), key="cleanup-tokens", width=130)
        if 0 < limit <= sinks:
            st.text(_("Keep fewer first positions than the limit of {n}.", n=limit))
        elif limit:
            work = _policies(trace, limit, sinks, n_new)
            run_button("cleanup", _("Run every policy"), trace, work, n_new * (1 + 2 * len(RULES)))
    found: Evictions | None = outcome("cleanup", trace, _("Running the prompt under each policy"))
    if found is not None:
        _show(found)


def _limit(trace: Trace) -> int:
    """The limit in positions, asked for in KiB or in positions; 0 where it holds none."""
    kv = trace.kv
    each = int(kv.nbytes[0].sum()) // int(kv.positions[0].max())
    units = {"KiB": _("Limit in KiB"), "positions": _("Limit in positions")}
    unit = st.selectbox(_("Unit"), list(units), format_func=lambda name: units[name], key="cleanup-unit", width=190)
    if unit == "positions":
        usual = max(1, LIMIT_KIB * 1024 // each)
        return st.number_input(_("Limit"), 1, 1_000_000, usual, key="limit-positions", width=130)
    kib = st.number_input(_("Limit"), 1, 2**30, LIMIT_KIB, key="limit-kib", width=130)
    limit = int(kib) * 1024 // each
    said = _("= {n} positions of {each:,} bytes", n=limit, each=each)
    st.text(said if limit else _("One position takes {each:,} bytes: raise the limit.", each=each))
    return limit


def _policies(trace: Trace, limit: int, sinks: int, n_new: int) -> Work:
    def work(model: LoadedModel, progress: Callable[[float], None], cancelled: Callable[[], bool]) -> Evictions | None:
        from inference.eviction import Rule, run_policies

        rules = [Rule(policy, limit, sinks) for policy in RULES]
        return run_policies(model, trace, rules, n_new, progress, cancelled)

    return work


def _show(found: Evictions) -> None:
    palette = session.palette()
    left, right = st.columns(2)
    with left:
        chart_card(cache_over_time(found, palette=palette, t=_), "cleanup-sizes", t=_)
    with right:
        chart_card(continuation(found, palette=palette, t=_), "cleanup-continuation", t=_)
    _texts((found.unlimited, *found.runs))


def _texts(runs: Sequence[PolicyRun]) -> None:
    """What each policy wrote, and where it parts from the unlimited run."""
    columns = [column for _row in range(-(-len(runs) // 3)) for column in st.columns(3)]
    for column, run in zip(columns, runs, strict=False):
        with column, st.container(border=True, height="stretch"):
            st.subheader(policy_name(run, _), anchor=False)
            st.text(_about(run, runs[0]))
            st.code(run.text, language=None, wrap_lines=True)


def _about(run: PolicyRun, unlimited: PolicyRun) -> str:
    """Where a run parts from the unlimited one, what was dropped, and why it ended."""
    ends = {
        "eos": _("It ends by itself after {n} tokens.", n=len(run.tokens)),
        "length": _("It ends at the limit of {n} new tokens.", n=len(run.tokens)),
        "full": _("The cache was full after {n} tokens.", n=len(run.tokens)),
    }
    said = [ends[run.finish]]
    if run.dropped.any():
        said.append(_("{n} positions were dropped.", n=int(run.dropped.sum())))
    if run.parted is not None:
        own, other = run.tokens[run.parted].display, unlimited.tokens[run.parted].display
        said.append(_("At step {step} it chose {own} instead of {other}.", step=run.parted, own=own, other=other))
    elif run is not unlimited:
        said.append(_("It chose the same tokens as without a limit."))
    return sentences(said)
