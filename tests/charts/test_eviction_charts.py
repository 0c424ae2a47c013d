"""Policies drawn from runs made by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd

from charts.base import Palette
from charts.eviction import cache_over_time, continuation
from inference.eviction import Evictions, PolicyRun, Rule
from inference.tokens import Token

TOKENS = tuple(Token(i, bytes([97 + i])) for i in range(3))


def made(policy, positions: list[int], logprobs: list[float]) -> PolicyRun:
    held = np.array(positions)
    return PolicyRun(
        rule=Rule(policy, limit=4, sinks=2),
        tokens=TOKENS[: len(held)],
        text="abc"[: len(held)],
        positions=held,
        nbytes=held * 512,
        dropped=np.zeros_like(held),
        logprobs=np.array(logprobs),
        parted=None,
        finish="length",
    )


FOUND = Evictions(
    made("none", [4, 5, 6], [-1.0, -0.5, -0.25]),
    (made("clear", [4, 0, 1], [-1.0, -0.5, -4.0]), made("stop", [4, 5], [-1.0, -0.5, np.nan])),
)


def test_sizes_are_drawn_in_the_unit_of_the_largest_and_tabled_as_positions() -> None:
    chart = cache_over_time(FOUND, palette=Palette.light(), t=str)
    assert [line.y.tolist() for line in chart.figure.data] == [[2, 2.5, 3], [2, 0, 0.5], [2, 2.5]]
    assert chart.description.startswith("The limit is 4 positions, 2.00 KiB; without it the cache ends at 3.00 KiB.")
    assert list(chart.table["Clear all"]) == [4, 0, 1]
    assert chart.table["Stop"].isna().tolist() == [False, False, True]
    assert isinstance(chart.table, pd.DataFrame)


def test_the_continuation_is_a_running_sum_and_its_cost_is_against_no_limit() -> None:
    chart = continuation(FOUND, palette=Palette.dark(), t=str)
    assert chart.figure.data[0].y.tolist() == [-1.0, -1.5, -1.75]
    assert chart.figure.data[1].y.tolist() == [-1.0, -1.5, -5.5]
    assert chart.description == (
        "Log-probability of the same 3 tokens, summed: -1.8 nats without a limit. Against it: Clear all: -3.8."
    )


def test_a_policy_that_stopped_ends_its_line() -> None:
    chart = continuation(FOUND, palette=Palette.dark(), t=str)
    assert np.isnan(chart.figure.data[2].y).tolist() == [False, False, True]
