"""Small trend lines as SVG paths."""

import re

import numpy as np

from charts.trend import HEIGHT, MARGIN, WIDTH, trend


def points(path: str) -> np.ndarray:
    return np.array([[float(x), float(y)] for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path)])


def test_the_lowest_value_lies_at_the_bottom_and_the_highest_at_the_top() -> None:
    line = trend([2, 4, 3], step=1)
    assert points(line.path).tolist() == [[3, HEIGHT - MARGIN], [60, MARGIN], [WIDTH - MARGIN, HEIGHT / 2]]
    assert (line.x, line.y) == (60, MARGIN)


def test_a_constant_series_and_a_single_value_lie_in_the_middle() -> None:
    assert set(points(trend([5, 5, 5], 0).path)[:, 1]) == {HEIGHT / 2}
    single = trend([7], 0)
    assert (single.x, single.y) == (WIDTH / 2, HEIGHT / 2)


def test_a_value_that_is_not_finite_leaves_a_gap() -> None:
    line = trend([1, 2, np.nan, 3, np.inf, 2], step=2)
    assert re.sub(r"[\d. ]", "", line.path) == "MLMM"
    assert line.y is None
    assert line.x == 48.6


def test_a_long_series_is_thinned_and_keeps_its_peaks() -> None:
    series = np.zeros(4000)
    series[[1234, 2777]] = 9, -9
    drawn = points(trend(series, 0).path)
    assert len(drawn) <= 120
    assert {MARGIN, HEIGHT - MARGIN} <= set(drawn[:, 1])
    assert (np.diff(drawn[:, 0]) >= 0).all()
