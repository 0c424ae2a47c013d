"""The sampling lab's charts: what is drawn is what was computed, labels are escaped, and sentences name the figures."""

from __future__ import annotations

import numpy as np
import pytest

from charts.base import Palette
from charts.draws import draws_chart
from charts.sweeps import entropy_curve, kept_curve, probability_curves
from charts.whole_run import whole_run
from inference.counterfactual import choices
from inference.draws import draw_many, expected_band
from inference.position import Position, at_step
from inference.sampling import SamplingParams, run_pipeline
from inference.sampling_steps import Context
from inference.sweep import sweep
from tests.charts.runs import run

LIGHT = {"palette": Palette.light(), "t": str}
KITTEN = np.log(np.array([0.6, 0.2, 0.1, 0.1])).astype(np.float32)
POSITION = Position(KITTEN, Context(np.zeros(0, dtype=np.int64), 0, ()))
WORDS = ["<b>", "b", "c", "d"]


def words(ids: list[int]) -> list[str]:
    return [WORDS[i] for i in ids]


def test_probabilities_are_drawn_one_line_a_token_told_apart_without_colour() -> None:
    found = sweep(POSITION, SamplingParams(), "temperature", [0.5, 1.0, 2.0], ids=(0, 1))
    chart = probability_curves(found, ["<b>", "<b>"], 1.0, **LIGHT)
    first, second = chart.figure.data
    np.testing.assert_allclose(first.y, [0.36 / 0.42, 0.6, 0.6**0.5 / (0.6**0.5 + 0.2**0.5 + 2 * 0.1**0.5)], atol=1e-6)
    assert first.name == "&lt;b&gt;"
    assert (first.line.dash, first.marker.symbol) != (second.line.dash, second.marker.symbol)
    assert list(chart.table.columns) == ["temperature", "<b>", "<b> (2)"]
    assert chart.description == "“<b>” goes from 85.7% at temperature 0.5 to 41.8% at 2; temperature 1 is set."
    assert len(chart.figure.layout.shapes) == 1


def test_a_setting_outside_the_range_has_no_line() -> None:
    found = sweep(POSITION, SamplingParams(), "temperature", [0.5, 1.0], ids=(0,))
    assert not probability_curves(found, ["a"], 7.0, **LIGHT).figure.layout.shapes


def test_the_other_steps_stand_at_the_value_that_is_set_and_this_one_is_marked() -> None:
    found = sweep(POSITION, SamplingParams(), "temperature", [0.5, 1.0])
    chart = entropy_curve(found, np.array([0.2, 1.1, np.nan]), 1, 0.8, **LIGHT)
    line, others, here = chart.figure.data
    np.testing.assert_allclose(line.y[1], -(0.6 * np.log(0.6) + 0.2 * np.log(0.2) + 0.2 * np.log(0.1)), atol=1e-6)
    assert others.y[0] == 0.2
    assert list(here.y) == [1.1]
    assert {*others.x, *here.x} == {0.8}
    assert chart.description.endswith("the settings as they are give 0.20 to 1.10.")


def test_candidates_are_drawn_as_counted_on_a_logarithmic_axis_where_they_are_many() -> None:
    found = sweep(POSITION, SamplingParams(), "top_p", [0.5, 0.8, 1.0])
    chart = kept_curve(found, np.array([]), -1, 0.8, **LIGHT)
    assert list(chart.figure.data[0].y) == [1, 2, 4]
    assert len(chart.figure.data) == 1
    assert chart.figure.layout.yaxis.type != "log"
    assert chart.description == "With top_p 0.5 the settings leave 1, with 1 they leave 4."
    many = Position(np.zeros(500, dtype=np.float32), POSITION.context)
    chart = kept_curve(sweep(many, SamplingParams(), "top_k", [1, 500]), np.array([]), -1, 500, **LIGHT)
    assert chart.figure.layout.yaxis.type == "log"


def test_what_cannot_be_told_is_a_gap_and_is_said() -> None:
    found = sweep(at_step(run(keep=3), 0), SamplingParams(), "temperature", [0.5, 1.0], ids=(0,))
    for chart in (probability_curves(found, ["a"], 1, **LIGHT), entropy_curve(found, np.array([]), 0, 1, **LIGHT)):
        assert chart.description.startswith("The recorded logits cannot tell")
        assert np.isnan(np.asarray(chart.figure.data[0].y, dtype=float)).all()


def test_draws_are_drawn_as_counted_with_the_band_of_each_row() -> None:
    drawn = draw_many(run_pipeline(KITTEN, SamplingParams())[-1], 1000, seed=1)
    chart = draws_chart(drawn, words, 1, **LIGHT)
    bars, expected = chart.figure.data
    np.testing.assert_allclose(np.array(bars.x) * 1000, drawn.counts)
    low, high = expected_band(1000, float(drawn.probs[0]))
    assert expected.x[0] + expected.error_x.array[0] == pytest.approx(high / 1000)
    assert expected.x[0] - expected.error_x.arrayminus[0] == pytest.approx(low / 1000)
    assert chart.figure.layout.yaxis.ticktext[0] == "&lt;b&gt;"
    assert list(chart.table["observed"]) == drawn.counts.tolist()
    assert f"“<b>” came {drawn.counts[0]:,} times, expected 600" in chart.description


def test_tokens_beyond_the_rows_are_one_row() -> None:
    logits = np.zeros(40, dtype=np.float32)
    drawn = draw_many(run_pipeline(logits, SamplingParams())[-1], 1000, seed=1)
    table = draws_chart(drawn, lambda ids: [str(i) for i in ids], 1, **LIGHT).table
    assert list(table["token"])[-1] == "all other 28"
    assert table["observed"].sum() == 1000
    assert list(table["expected"])[-1] == pytest.approx(700)


def test_the_whole_run_marks_where_the_texts_part_and_names_both_tokens() -> None:
    trace = run()
    found = choices(trace, SamplingParams(greedy=True))
    chart = whole_run(trace, found, **LIGHT)
    best = [int(step.logits.values.argmax()) for step in trace.steps]
    at = next(i for i in range(3) if best[i] != (3, 7, 19)[i])
    assert chart.figure.layout.shapes[0].x0 == at
    new, old = (trace.vocabulary.token(i).display for i in (best[at], (3, 7, 19)[at]))
    assert f"part at step {at}: “{new}” instead of “{old}”" in chart.description
    assert list(chart.table["another token"]) == [a != b for a, b in zip(best, (3, 7, 19), strict=True)]
    assert list(chart.table["probability"]) == [1.0] * 3


def test_steps_that_cannot_be_told_are_counted_and_have_no_token() -> None:
    trace = run(keep=3)
    chart = whole_run(trace, choices(trace, SamplingParams(temperature=1.2)), **LIGHT)
    assert chart.description.startswith("3 steps cannot be told from the logits that were recorded.")
    assert chart.table["with these settings"].isna().all()
    assert [data.name for data in chart.figure.data] == ["cannot be told"]
