"""The KV cache's growth against sizes worked out by hand."""

import numpy as np

from charts.base import Chart, Palette
from charts.kv_growth import kv_growth
from inference.trace import Trace
from tests.charts.runs import CACHE_BYTES, run


def draw(trace: Trace, step: int) -> Chart:
    return kv_growth(trace, step, palette=Palette.dark(), t=str)


def test_the_lines_are_the_bytes_of_all_layers_in_the_unit_of_the_axis() -> None:
    chart = draw(run(), 1)
    so_far, later, this_step = chart.figure.data
    kib = np.array([4, 5, 6]) * 2 * CACHE_BYTES / 1024
    assert chart.figure.layout.yaxis.title.text == "KiB"
    np.testing.assert_allclose(so_far.y, kib[:2])
    np.testing.assert_allclose(later.y, kib[1:])
    np.testing.assert_allclose(this_step.y, kib[1:2])
    assert list(later.x) == [1, 2]


def test_the_current_step_is_marked_with_its_size() -> None:
    figure = draw(run(), 1).figure
    assert (figure.layout.shapes[0].x0, figure.layout.shapes[0].x1) == (1, 1)
    assert figure.layout.annotations[0].text == "<b>1.25 KiB</b>"


def test_the_table_has_what_was_fed_and_what_is_held_after_each_step() -> None:
    table = draw(run(), 0).table
    assert list(table["positions fed"]) == [4, 1, 1]
    assert list(table["positions held"]) == [4, 5, 6]
    assert list(table["bytes"]) == [n * 2 * CACHE_BYTES for n in (4, 5, 6)]
    np.testing.assert_allclose(draw(run(), 0).figure.data[1].y * 1024, table["bytes"])


def test_the_sentence_says_that_the_chosen_token_is_not_in_the_cache_yet() -> None:
    said = draw(run(), 2).description
    assert said == (
        "After step 2 the cache holds 6 positions in 2 layers, 1.50 KiB in all; the token just chosen is not in it yet."
    )


def test_a_run_of_one_step_is_drawn() -> None:
    chart = draw(run(chosen=(3,)), 0)
    assert list(chart.figure.data[2].x) == [0]
