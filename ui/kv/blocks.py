"""The cache in blocks, requests that share them, and a stored prefix reused for real."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from charts.blocks import block_table, reserved_and_used
from inference.blocks import MAX_BLOCKS, MAX_REQUESTS, Placement, PoolRequest, simulate
from inference.errors import CalculatorError
from inference.kv_layers import MAX_PAGE
from inference.trace import Trace
from ui import session
from ui.cards import chart_card
from ui.i18n import _, error_text
from ui.kv.reuse import reuse
from ui.literal import literal

BLOCK_SIZE, POOL = 16, 24
# name, prefix, its tokens, own tokens, still running
USUAL = (
    ("1", "A", 100, 20, False),
    ("2", "A", 100, 44, True),
    ("3", "B", 64, 30, False),
    ("4", "A", 100, 12, False),
    ("5", "C", 150, 40, False),
    ("6", "B", 64, 10, False),
)


def blocks(trace: Trace) -> None:
    """The run's own blocks, the pool, and the stored prefix."""
    st.text(
        _("A cache in blocks reserves whole blocks; a full block is shared by every request that begins with its text.")
    )
    with st.container(horizontal=True, vertical_alignment="bottom"):
        block_size = st.number_input(_("Positions a block"), 1, MAX_PAGE, BLOCK_SIZE, key="block-size", width=160)
        pool = st.number_input(_("Blocks in the pool"), 1, MAX_BLOCKS, POOL, key="pool", width=160)
    left, right = st.columns([2, 3])
    if trace.steps:
        with left:
            chart_card(reserved_and_used(trace, block_size, palette=session.palette(), t=_), "blocks-reserved", t=_)
    with right:
        requests, problem = _table()
    _shared(requests, problem, block_size, pool)
    reuse(trace, block_size)


def _table() -> tuple[list[PoolRequest], str]:
    """The requests as edited, and what is wrong with them."""
    with st.container(border=True, height="stretch"):
        st.subheader(_("Requests and their prefixes"), anchor=False)
        st.text(
            _("Requests come one after another; those with the same prefix begin alike. Change, add or remove rows.")
        )
        edited = st.data_editor(_usual(), num_rows="dynamic", hide_index=True, column_config=_columns(), key="requests")
    return _requests(edited)


def _shared(requests: list[PoolRequest], problem: str, block_size: int, pool: int) -> None:
    placements: tuple[Placement, ...] = ()
    try:
        placements = simulate(requests, pool, block_size)
    except CalculatorError as error:
        problem = error_text(error)
    if problem:
        st.error(literal(problem))
    elif placements:
        chart_card(block_table(placements, palette=session.palette(), t=_), "blocks-table", t=_)


def _usual() -> pd.DataFrame:
    return pd.DataFrame(list(USUAL), columns=["name", "prefix", "prefix_tokens", "own_tokens", "stays"])


def _columns() -> dict[str, Any]:
    column = st.column_config
    return {
        "name": column.TextColumn(_("request"), max_chars=40),
        "prefix": column.TextColumn(_("prefix"), max_chars=40),
        "prefix_tokens": column.NumberColumn(_("prefix tokens"), min_value=0, step=1),
        "own_tokens": column.NumberColumn(_("own tokens"), min_value=0, step=1),
        "stays": column.CheckboxColumn(_("still running")),
    }


def _requests(edited: pd.DataFrame) -> tuple[list[PoolRequest], str]:
    """The rows that have been filled in, and what is wrong with the first that has not."""
    rows = edited.astype(object).where(edited.notna(), None).to_dict("records")
    if len(rows) > MAX_REQUESTS:
        return [], _("There are {n} requests; at most {limit} are served.", n=len(rows), limit=MAX_REQUESTS)
    found = []
    for number, row in enumerate(rows, start=1):
        if row["prefix_tokens"] is None or row["own_tokens"] is None:
            return [], _("Row {n} lacks a number of tokens: fill it in, or remove the row.", n=number)
        name = row["name"] or str(number)
        found.append(
            PoolRequest(
                name, row["prefix"] or "", int(row["prefix_tokens"]), int(row["own_tokens"]), bool(row["stays"])
            )
        )
    return found, ""
