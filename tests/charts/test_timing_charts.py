"""Charts of time: where a run's bars lie, what fits and rooflines say, and which figures are measured."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from charts.base import Palette
from charts.latency import itl_histogram, speed_metrics, typed_metrics, why_they_differ
from charts.roofline import Expected, expected_chart, roofline
from charts.sweep_times import batch_chart, chunk_chart, decode_chart, prefill_chart
from charts.timeline import parts, timeline
from inference.measured import Line, Place, Sweep
from inference.metrics import parse_times, speed
from inference.roofline import Device, Load
from inference.trace import Trace
from tests.charts.runs import run

LOOK = {"palette": Palette.light(), "t": str}
PLACE = Place("AMD EPYC, 2 cores", "SmolLM2", "cpu", "float32")


def recorded() -> Trace:
    """Tokens known at 0.1, 0.125 and 0.15 s; choosing 1 ms, recording 0.5 ms; a prefill of two chunks."""
    trace = run()
    first = replace(trace.steps[0].timing, forward_s=0.05, passes_s=(0.03, 0.02))
    steps = [
        replace(
            step,
            decision=replace(step.decision, forced=False),
            timing=first if i == 0 else replace(step.timing, passes_s=(step.timing.forward_s,)),
        )
        for i, step in enumerate(trace.steps)
    ]
    return replace(trace, steps=tuple(steps), tokenise_s=0.002)


def test_every_part_lies_where_the_steps_times_say() -> None:
    found = {part.name: part.spans for part in parts(recorded(), 0.3, str)}
    assert list(found) == ["queue and loading", "tokenise", "prefill", "decode", "choose", "record"]
    assert found["queue and loading"].tolist() == [[-0.3, 0]]
    assert found["tokenise"].tolist() == [[0, 0.002]]
    # known at 0.1 s, chosen within 1 ms: the passes fill 50 ms before that
    np.testing.assert_allclose(found["prefill"], [[0.049, 0.079], [0.079, 0.099]])
    np.testing.assert_allclose(found["decode"], [[0.103, 0.124], [0.127, 0.149]])
    np.testing.assert_allclose(found["choose"][0], [0.099, 0.1])
    np.testing.assert_allclose(found["record"][-1], [0.15, 0.1505])


def test_the_timeline_says_what_took_most_and_that_a_queue_is_not_known() -> None:
    chart = timeline(recorded(), **LOOK)
    # 50 ms of prefill against 43 of decode, 2 of tokenising, 3 of choosing and 1.5 of recording
    assert chart.description.startswith("As recorded: 3 tokens in 150.0 ms; prefill took most of it, 50%.")
    assert "queue is not known" in chart.description
    assert chart.table["in all (ms)"].tolist() == pytest.approx([2, 50, 43, 3, 1.5])
    assert "queue" not in timeline(recorded(), 0.2, **LOOK).description


def test_a_branch_shows_no_prefill_and_none_of_the_steps_it_took_over_only_its_own_wait() -> None:
    for first in (1, 2):  # left at step 0 and at step 1; nothing but the count tells it
        found = {part.name: part.spans for part in parts(replace(recorded(), taken_over=first), 0.3, str)}
        assert list(found) == ["queue and loading", "tokenise", "decode", "choose", "record"]
        np.testing.assert_allclose(found["decode"], [[0.103, 0.124], [0.127, 0.149]][first - 1 :])
        assert len(found["choose"]) == len(found["record"]) == 3 - first


def test_the_lessons_times_are_shown_as_200_ms_50_ms_and_20() -> None:
    found = typed_metrics(parse_times("0.20 0.25"), str)
    assert [(metric.label, metric.value) for metric in found] == [
        ("TTFT", "200.0 ms"),
        ("TPOT", "50.0 ms"),
        ("Decode tok/s", "20.0"),
        ("Request tok/s", "8.0"),
    ]
    said = why_they_differ(parse_times("0.20 0.25"), str)
    assert said == (
        "After the first token 20.0 tok/s; over the whole request 8.0, because 80% of its time passes before the "
        "first token."
    )


def test_one_token_needs_a_second() -> None:
    found = {metric.label: metric for metric in typed_metrics(parse_times("0.2"), str)}
    assert (found["TPOT"].value, found["TPOT"].note) == ("–", "needs two tokens")
    assert (found["Decode tok/s"].value, found["Decode tok/s"].note) == ("–", "needs two tokens")
    assert why_they_differ(parse_times("0.2"), str) == ""
    assert itl_histogram(parse_times("0.2"), **LOOK).description == "Needs two tokens."


def test_a_runs_six_figures() -> None:
    found = speed_metrics(speed(recorded()), str)
    assert [metric.value for metric in found] == ["100.0 ms", "25.0 ms", "25.0 ms", "80.0", "40.0", "20.0"]


def test_the_histogram_counts_every_latency_once() -> None:
    chart = itl_histogram(parse_times("1 1.1 1.3 1.6 2.0"), **LOOK)
    assert chart.table["tokens"].sum() == 4
    assert chart.description.startswith("As recorded: half of the 4 tokens after the first came within 250.0 ms")


def line(name: str, x: list[int], *rounds: list[float]) -> Line:
    return Line(name, np.array(x), np.array(rounds))


def test_a_prefill_chart_shows_medians_spread_parts_and_the_machine() -> None:
    x = np.array([16, 32, 64, 128])
    exact = 0.001 * x + 1e-5 * x**2
    chart = prefill_chart(Sweep("prefill", PLACE, (Line("prefill", x, np.array([exact] * 3)),)), **LOOK)
    assert chart.description == (
        "Measured on AMD EPYC, 2 cores, SmolLM2, float32: 128 tokens took 291.8 ms, 439 tok/s. "
        "Fitted: 1 ms a token and 10 µs a token squared, which is 56% of the longest."
    )
    assert [trace.name for trace in chart.figure.data] == ["fit", "linear part", "quadratic part", "measured"]
    assert chart.table["quadratic part (ms)"].tolist() == pytest.approx([2.56, 10.24, 40.96, 163.84])


def test_a_fit_without_a_quadratic_part_says_so() -> None:
    x = np.array([16, 32, 64])
    sweep = Sweep("prefill", PLACE, (Line("prefill", x, 0.001 * x[None]),))
    assert "A linear and a quadratic part cannot be told apart here" in prefill_chart(sweep, **LOOK).description


def test_a_decode_chart_compares_the_two_ways_at_the_longest_context() -> None:
    lines = (line("cached", [16, 64], [0.05, 0.06], [0.05, 0.04]), line("uncached", [16, 64], [0.1, 0.2], [0.1, 0.3]))
    chart = decode_chart(Sweep("decode", PLACE, lines), **LOOK)
    assert chart.description == (
        "Measured on AMD EPYC, 2 cores, SmolLM2, float32: a step after 64 positions takes 50.0 ms with the cache. "
        "Without it, 250.0 ms: 5.0 × as long."
    )
    bars = chart.figure.data[0].error_y
    assert (bars.array.tolist(), bars.arrayminus.tolist()) == (pytest.approx([0, 10]), pytest.approx([0, 10]))
    assert chart.figure.layout.yaxis.type == "log"
    assert decode_chart(Sweep("decode", PLACE, lines[:1]), **LOOK).figure.layout.yaxis.type is None


def test_a_chunk_chart_counts_passes_and_names_the_fastest() -> None:
    sweep = Sweep("chunked", PLACE, (line("chunked", [3, 4, 8], [0.4, 0.2, 0.3]),), fixed=8)
    chart = chunk_chart(sweep, **LOOK)
    assert chart.table["passes"].tolist() == [3, 2, 1]
    assert chart.description.endswith(
        "8 tokens take 300.0 ms in one pass and 400.0 ms in chunks of 3; fastest are chunks of 4."
    )


def test_the_roofline_tells_measured_limits_and_what_bounds_each_pass() -> None:
    device = Device("AMD EPYC, 2 cores", 20e9, 100e9)
    reached = [
        SimpleNamespace(phase="prefill", tokens=64, load=Load(20e9, 1e9), seconds=0.4, limit_s=0.2, share=0.5),
        SimpleNamespace(phase="decode", tokens=64, load=Load(1e9, 1e9), seconds=0.2, limit_s=0.05, share=0.25),
    ]
    chart = roofline(SimpleNamespace(place=PLACE, device=device, passes=reached), **LOOK)
    assert chart.description == (
        "Measured on AMD EPYC, 2 cores, SmolLM2, float32: 20.0 GB/s read, 100 GFLOP/s; they meet at 5.0 FLOPs a byte. "
        "Prefill is bound by computing: 400.0 ms, 50% of the limit. "
        "Decode is bound by reading: 200.0 ms, 25% of the limit."
    )
    marks = [trace for trace in chart.figure.data if trace.mode == "markers"]
    assert [(mark.name, float(mark.x[0]), float(mark.y[0])) for mark in marks] == [
        ("prefill", 20.0, 50.0),
        ("decode", 1.0, 5.0),
    ]


def test_other_devices_are_computed_sorted_and_marked_where_the_model_does_not_fit() -> None:
    found = [Expected("A", 50.0, 100.2, 3), Expected("B", 200.0, None, 0), Expected("C", 10.0, None, None)]
    chart = expected_chart(found, "Llama", 4096, **LOOK)
    assert chart.description == (
        "Computed, not measured: bandwidth ÷ (weights + KV read) for Llama after 4,096 positions. "
        "At most 50 tok/s a sequence on A."
    )
    assert chart.table["device"].tolist() == ["B", "A", "C"]
    assert list(chart.figure.data[0].text) == ["does not fit", "50", "10"]
    assert chart.table["crossover batch"].tolist()[1] == 101


def test_a_batch_chart_tells_the_speed_of_all_and_the_wait_of_each() -> None:
    sweep = Sweep("batch", PLACE, (line("batch", [1, 16], [0.05, 0.2], [0.05, 0.1], [0.04, 0.4]),), fixed=64)
    chart = batch_chart(sweep, **LOOK)
    assert chart.description == (
        "Measured on AMD EPYC, 2 cores, SmolLM2, float32: 16 sequences at once make 80.0 tok/s together and one alone "
        "20.0; each waits 200.0 ms for its token instead of 50.0 ms."
    )
    rate, wait = chart.figure.data
    assert (rate.y.tolist(), wait.y.tolist()) == (pytest.approx([20, 80]), pytest.approx([50, 200]))
    assert wait.yaxis == "y2"
