"""Charts of schedules and of a real batch, against schedules worked out by hand and a batch made up of known parts."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from charts.base import Palette
from charts.batched import batch_grid, batch_times, verdict
from charts.serving import latency_chart, schedule_chart, serving_metrics, serving_table
from inference.measured import Fit, Place
from inference.serving import ServingRequest, continuous, one_at_a_time, static
from inference.step_costs import StepCosts
from inference.tokens import Token

LOOK = {"palette": Palette.light(), "t": str}
PLACE = Place("AMD EPYC, 2 cores", "SmolLM2", "cpu", "float32")
ROUND = StepCosts(Fit(1, 0, 0), (0.1,) * 4, 64, 0.0, 256, 256, PLACE)
REQUESTS = [ServingRequest(0, 10, 3), ServingRequest(0, 20, 5), ServingRequest(0.5, 10, 1)]
SCHEDULES = [one_at_a_time(REQUESTS, ROUND), static(REQUESTS, ROUND, 2), continuous(REQUESTS, ROUND, 2)]


def bars(chart, kind: str) -> list[tuple[float, float, float]]:
    """Row, from and to of the bars of a kind."""
    (found,) = [trace for trace in chart.figure.data if trace.name == kind]
    starts = np.asarray(found.base, dtype=float)
    return [
        (float(y), round(float(start), 6), round(float(start + took), 6))
        for y, start, took in zip(found.y, starts, found.x, strict=True)
    ]


def test_every_policy_has_its_rows_on_one_time_axis() -> None:
    chart = schedule_chart(SCHEDULES, PLACE, **LOOK)
    # rows 0-2 are one at a time, from 4.5 on static, from 9 on continuous
    assert bars(chart, "wasted place") == [(4.5, 1.2, 1.4)]
    assert (0, 0, 1) in bars(chart, "prefill")
    assert (4.5, 0, 1) in bars(chart, "prefill")
    assert (5.5, 1, 1.4) in bars(chart, "decode")
    assert (11, 0.5, 2.2) in bars(chart, "waiting")
    assert (10, 2.2, 3.2) in bars(chart, "stands still for others")
    (marks,) = [trace for trace in chart.figure.data if trace.name == "first token"]
    assert list(marks.x) == pytest.approx([1, 2.2, 3.6, 1, 1, 2.4, 1, 2, 3.2])
    assert list(chart.figure.layout.yaxis.ticktext)[:3] == ["1 · 10 → 3", "2 · 20 → 5", "3 · 10 → 1"]


def test_the_schedule_says_that_it_is_simulated_from_costs_of_the_machine() -> None:
    chart = schedule_chart(SCHEDULES, PLACE, **LOOK)
    assert chart.description == (
        "A simulation from passes measured on AMD EPYC, 2 cores, SmolLM2, float32; the labels say prompt → new tokens. "
        "One at a time: done after 3.60 s, 2.5 tok/s. Static batches: done after 2.40 s, 3.7 tok/s. "
        "Continuous batch: done after 3.40 s, 2.6 tok/s."
    )


def test_the_table_has_every_request_under_every_policy() -> None:
    table = serving_table(SCHEDULES, str)
    assert table["request"].tolist() == [1, 2, 3] * 3
    first, last = table.iloc[4], table.iloc[2]
    assert (first["policy"], first["TTFT (s)"], first["TPOT (ms)"], first["done (s)"]) == (
        "Static batches", 1.0, "100.0", 1.4,
    )  # fmt: skip
    assert (last["waits (s)"], last["TTFT (s)"], last["TPOT (ms)"]) == (2.1, 3.1, "needs two tokens")


def test_each_policy_has_its_throughput_and_what_it_wasted() -> None:
    found = serving_metrics(SCHEDULES, str)
    # 9 tokens in 3.6 s, in just above 2.4 s, and in 3.4 s
    assert [metric.value for metric in found] == ["2.5 tok/s", "3.7 tok/s", "2.6 tok/s"]
    # TTFT of 1, 2.2 and 3.1 s one at a time
    assert found[0].note == "done after 3.60 s · mean TTFT 2.10 s"
    # 2 × 20 + 10 positions of prompts, 4 steps of 2 rows; 10 + 2 of them padding
    assert found[1].note == "done after 2.40 s · mean TTFT 1.30 s · 20.7% padding"


def test_the_waits_of_each_request_and_who_is_first_and_fastest() -> None:
    chart = latency_chart(SCHEDULES, **LOOK)
    ttft, tpot = chart.figure.data[0], chart.figure.data[1]
    assert list(ttft.y) == pytest.approx([1, 2.2, 3.1])
    assert list(tpot.y) == pytest.approx([100, 100, np.nan], nan_ok=True)
    # continuous: A stands still for B, B for C: 0.6 s and 0.35 s a token
    assert chart.description == (
        "Simulated: requests see their first token soonest with “Static batches”, after 1.30 s on average. "
        "From then on “One at a time” is the fastest, 100.0 ms a token, and “Continuous batch” the slowest, 475.0 ms."
    )
    assert chart.table["of them padding"].tolist() == [0, 12, 0]
    assert chart.table["mean wait (s)"].tolist() == pytest.approx([1.1, 0.3, 0.9], abs=1e-3)
    single = [one_at_a_time([ServingRequest(0, 5, 1)], ROUND)]
    assert latency_chart(single, **LOOK).description.endswith("A TPOT needs two tokens.")


def token(text: str, id: int = 1) -> Token:
    return Token(id, text.encode())


def row(n_prompt: int, said: list[str], alone: list[str], alone_s: list[float], parting=None, difference=1e-5):
    """A row of a batch; its first prompt token looks like markup."""
    return SimpleNamespace(
        prompt=(token("<b>"), *[token("p")] * (n_prompt - 1)),
        tokens=tuple(map(token, said)),
        alone=tuple(map(token, alone)),
        difference=difference,
        parting=parting,
        alone_s=tuple(alone_s),
    )


def batch(*rows, length: int = 4, seconds: tuple[float, ...] = (0.5, 0.1, 0.1)):
    return SimpleNamespace(place=PLACE, rows=rows, length=length, seconds=seconds)


SHORT = row(2, ["a"], ["a"], [0.2])
LONG = row(4, ["a", "b", "c"], ["a", "b", "c"], [0.4, 0.08, 0.08])


def test_the_grid_counts_padding_and_places_after_the_end() -> None:
    chart = batch_grid(batch(SHORT, LONG), **LOOK)
    # 4 places of prompt and 2 steps after it; the token chosen last is never fed
    assert chart.figure.data[0].z.tolist() == [[0, 0, 1, 1, 3, 3], [1, 1, 1, 1, 2, 2]]
    assert chart.description == (
        "2 prompts were padded on the left to 4 positions; 4 of all 12 positions fed were padding or rows that had "
        "ended, 33%."
    )
    texts = chart.figure.data[0].customdata[..., 1]
    assert texts[0].tolist() == ["", "", "&lt;b&gt;", "p", "", ""]
    assert texts[1].tolist()[4:] == ["a", "b"]


def test_a_wide_grid_draws_the_newest_and_says_so() -> None:
    chart = batch_grid(batch(row(300, ["a"], ["a"], [0.1]), length=300, seconds=(0.5,)), **LOOK)
    assert chart.figure.data[0].z.shape == (1, 160)
    assert chart.figure.data[0].x[0] == 140
    assert chart.description.endswith("The newest 160 are drawn.")
    assert chart.table["prompt tokens"].tolist() == [300]


def test_the_batchs_times_stand_against_its_rows_alone_added_up() -> None:
    chart = batch_times(batch(SHORT, LONG), **LOOK)
    together, alone = chart.figure.data
    assert together.y[1:].tolist() == pytest.approx([100, 100])
    assert alone.y[1:].tolist() == pytest.approx([80, 80])
    # 4 tokens in 0.7 s, and alone in 0.2 + 0.4 + 0.08 + 0.08
    assert chart.description == (
        "Measured on AMD EPYC, 2 cores, SmolLM2, float32: the prefill took 500.0 ms instead of 600.0 ms, and the whole "
        "batch 700.0 ms instead of 760.0 ms: 5.7 tok/s instead of 5.3."
    )


def test_the_simulations_costs_are_held_against_the_real_batch() -> None:
    said = batch_times(batch(SHORT, LONG), ROUND, **LOOK).description
    assert said.endswith("The costs of the simulation would have made it 1.00 s and 1.20 s.")
    elsewhere = StepCosts(Fit(1, 0, 0), (0.1,) * 4, 64, 0.0, 256, 256, Place("other", "SmolLM2", "cpu", "float32"))
    assert "simulation" not in batch_times(batch(SHORT, LONG), elsewhere, **LOOK).description


def test_the_verdict_says_which_row_parts_where_and_by_how_little() -> None:
    assert verdict(batch(SHORT, LONG), str).startswith(
        "Each of the 2 rows chose the same tokens in the batch as alone; logits differ by 1.0e-05 at most"
    )
    parted = row(
        2, ["a", "x"], ["a", "b"], [0.2, 0.1], SimpleNamespace(step=1, gap=0.0018, difference=0.004), difference=0.004
    )
    assert verdict(batch(LONG, parted), str) == (
        "Row 2 parts from its run alone at step 1: there the two tokens lie 0.0018 logits apart, and batch and run "
        "alone differ by up to 0.004. All other rows chose the same tokens both ways."
    )
