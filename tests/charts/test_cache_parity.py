"""The comparison with and without a cache, drawn from figures made by hand."""

from __future__ import annotations

import numpy as np

from charts.base import Chart, Palette
from charts.cache_parity import logit_distance, step_times, work_counts
from inference.no_cache import Parity


def parity(difference: tuple[float, ...] = (0.0, 3e-5, 1e-5), uncached_ids: tuple[int, ...] = (4, 5, 6)) -> Parity:
    return Parity(
        n_prompt=3,
        cached_s=np.array([0.03, 0.01, 0.01]),
        uncached_s=np.array([0.03, 0.04, 0.04]),
        difference=np.array(difference),
        tolerance=2e-3,
        cached_ids=np.array([4, 5, 6]),
        uncached_ids=np.array(uncached_ids),
    )


def draw(make, found: Parity) -> Chart:
    return make(found, palette=Palette.light(), t=str)


def test_times_are_in_milliseconds_and_the_medians_leave_the_prefill_out() -> None:
    chart = draw(step_times, parity())
    np.testing.assert_allclose(chart.figure.data[1].y, [30, 40, 40])
    assert chart.description == (
        "A decode step takes 10.0 ms with the cache and 40.0 ms without (medians), 4.0 × as long."
    )


def test_projections_add_up_to_3_4_5_with_the_cache_and_3_7_12_without() -> None:
    chart = draw(work_counts, parity())
    assert chart.figure.data[0].y.tolist() == [3, 4, 5]
    assert chart.figure.data[1].y.tolist() == [3, 7, 12]
    assert list(chart.table["dot products of new queries, both ways"]) == [6, 10, 15]
    assert list(chart.table["dot products without, repeated ones too"]) == [6, 16, 31]


def test_an_equal_step_leaves_a_gap_on_the_logarithmic_axis_and_is_said() -> None:
    chart = draw(logit_distance, parity())
    assert np.isnan(chart.figure.data[0].y[0])
    assert chart.description == (
        "The logits differ by at most 3.0e-05, which rounding explains (up to 2e-03). "
        "Equal to the bit at 1 of 3 steps. Both ways choose the same token at every step."
    )


def test_what_rounding_does_not_explain_and_another_token_are_said() -> None:
    said = draw(logit_distance, parity((0.1, 1.5, 0.2), (4, 9, 9))).description
    assert "differ by 1.5e+00, more than rounding explains" in said
    assert said.endswith("They choose different tokens at 2 of 3 steps, first at step 1.")


def test_lines_differ_by_dash_and_marker_too() -> None:
    first, second = draw(step_times, parity()).figure.data
    assert first.line.dash != second.line.dash
    assert first.marker.symbol != second.marker.symbol
