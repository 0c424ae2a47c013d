"""Two element types drawn from figures made by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from charts.base import Palette
from charts.element_types import divergences, parting_text, speed_table, speeds
from inference.element_types import Effect, Side, TwoTypes
from inference.tokens import Token
from tests.charts.runs import vocabulary

WORDS = vocabulary()


def tokens(*ids: int) -> tuple[Token, ...]:
    return tuple(WORDS.token(i) for i in ids)


EXACT = Side("float32", 4 * 2**20, 4096, np.array([0.1, 0.2, 0.3]), np.array([0.05, 0.04, 0.02]), tokens(1, 4, 6))
COARSE = Side("bfloat16", 2 * 2**20, 2048, np.array([0.05, 0.1, 0.4]), np.array([0.02, 0.025, 0.04]), tokens(1, 4, 7))
FOUND = TwoTypes(
    machine="a machine",
    model="a model",
    sides=(EXACT, COARSE),
    effect=Effect(
        np.array([0, 1e-3, 3e-3, 4e-3]), np.array([0, 0.1, 0.5, 0.2]), np.array([0, 0.05, 0.1, 0.05]),
        np.array([[1, 1], [4, 4], [12, 6], [7, 7]]),
    ),
    tokens=tokens(2, 1, 12, 6),
    likeliest=((WORDS.token(1),) * 2, (WORDS.token(4),) * 2, tokens(12, 6), (WORDS.token(7),) * 2),
    n_prompt=2,
    n_cached=6,
)  # fmt: skip


def test_speeds_are_those_of_the_median_step_with_the_slowest_and_the_fastest() -> None:
    chart = speeds(FOUND, palette=Palette.light(), t=str)
    first, second = chart.figure.data
    assert (first.x[0], second.x[0]) == (25, 40)
    assert (first.error_x.arrayminus[0], first.error_x.array[0]) == (5, 25)  # 20 to 50 tok/s
    assert first.marker.pattern.shape != second.marker.pattern.shape  # not by colour alone
    assert second.marker.pattern.fillmode == "overlay"  # else the lines replace the bar
    assert chart.description == (
        "Measured on a machine, a model: float32 decodes 25.0 tok/s and bfloat16 40.0, 1.60 × as fast; the prompt "
        "takes 200.0 ms and 100.0 ms."
    )


def test_the_table_has_times_with_their_spread_and_bytes() -> None:
    rows = speed_table(FOUND, str).to_numpy().tolist()
    assert rows == [
        ["decode, median", "25.0 tok/s", "40.0 tok/s"],
        ["a step, median", "40.0 ms", "25.0 ms"],
        ["a step, fastest and slowest", "20.0 ms – 50.0 ms", "20.0 ms – 40.0 ms"],
        ["prefill of 2 tokens", "200.0 ms", "100.0 ms"],
        ["prefill, fastest and slowest", "100.0 ms – 300.0 ms", "50.0 ms – 400.0 ms"],
        ["weights", "4.00 MiB", "2.00 MiB"],
        ["KV cache after 6 positions", "4.00 KiB", "2.00 KiB"],
    ]


def test_positions_with_another_likeliest_token_are_marked_and_counted() -> None:
    chart = divergences(FOUND, palette=Palette.dark(), t=str)
    line, marked = chart.figure.data
    assert np.isnan(line.y[0])  # nothing to show on a logarithmic axis
    np.testing.assert_allclose(line.y[1:], [1e-3, 3e-3, 4e-3])
    assert (marked.x.tolist(), marked.y.tolist()) == ([2], [3e-3])
    assert chart.table["another one"].tolist() == [False, False, True, False]
    assert chart.description == (
        "Fed the same 4 tokens, logits differ by 0.5 at most and 0.05 on average, the next-token distributions by "
        "0.004 nats at most and 0.002 on average (KL divergence); the likeliest token is the same at 3 of 4 positions "
        "(75.0%)."
    )


def test_tokens_in_hovers_are_no_markup() -> None:
    hovers = " ".join(divergences(FOUND, palette=Palette.light(), t=str).figure.data[0].hovertext)
    assert "<b>" not in hovers
    assert "&lt;b&gt;" in hovers


def test_where_the_greedy_texts_part_is_said() -> None:
    one, other = WORDS.token(6).display, WORDS.token(7).display
    assert parting_text(FOUND, str) == (f"Greedily, they part at step 2: float32 writes “{one}”, bfloat16 “{other}”.")
    same = replace(FOUND, sides=(EXACT, replace(COARSE, written=EXACT.written)))
    assert parting_text(same, str) == "Greedily, both types write the same 3 tokens after the prompt."
