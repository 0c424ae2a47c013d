"""Blocks and a reused prefix, drawn from cases counted by hand."""

from __future__ import annotations

import numpy as np

from charts.base import Palette
from charts.blocks import COMPUTED, FOUND, PARTIAL, block_table, reserved_and_used, reuse_times
from inference.blocks import PoolRequest, simulate
from inference.reuse import Reuse
from tests.charts.runs import CACHE_BYTES, run


def test_six_positions_in_blocks_of_four_reserve_eight_and_waste_two() -> None:
    chart = reserved_and_used(run(), 4, palette=Palette.light(), t=str)
    assert list(chart.table["used"]) == [4, 5, 6]
    assert list(chart.table["reserved"]) == [4, 8, 8]
    assert list(chart.table["wasted"]) == [0, 3, 2]
    assert chart.description == (
        f"At the end 6 positions lie in 2 blocks of 4: 2 places, {2 * 2 * CACHE_BYTES} B, are wasted."
    )


def placed(size: int = 8):
    requests = [PoolRequest("<b>first</b>", "A", 8, 2, stays=True), PoolRequest("second", "A", 8, 4, stays=True)]
    return simulate([*requests, PoolRequest("third", "B", 0, 24)], size, block_size=4)


def test_each_cell_is_a_block_found_computed_or_not_full() -> None:
    chart = block_table(placed(), palette=Palette.dark(), t=str)
    heat = chart.figure.data[0]
    assert heat.z[0].tolist() == [COMPUTED, COMPUTED, PARTIAL]
    assert heat.z[1].tolist() == [FOUND, FOUND, COMPUTED]
    assert heat.text[:2].tolist() == [["0", "1", "2"], ["0", "1", "3"]]
    assert np.isnan(heat.z[2]).all()
    assert chart.figure.layout.yaxis.ticktext[0].startswith("&lt;b&gt;")


def test_the_sentence_counts_what_is_saved_and_names_what_has_no_room() -> None:
    chart = block_table(placed(), palette=Palette.light(), t=str)
    assert chart.description == (
        "The requests prefill 14 tokens; 8 are found in shared blocks and saved. No room for: third."
    )
    assert list(chart.table["blocks lacking"]) == [0, 0, 2]


def test_blocks_given_up_are_counted() -> None:
    requests = [PoolRequest(name, name, 8, 0) for name in "abc"]
    chart = block_table(simulate(requests, 4, block_size=4), palette=Palette.light(), t=str)
    assert "2 blocks were given up to make room" in chart.description
    assert list(chart.table["blocks given up for it"]) == ["", "", "1, 0"]


def test_medians_are_bars_and_every_try_is_a_point() -> None:
    found = Reuse(
        n_prompt=20,
        n_common=17,
        n_reused=16,
        fresh_s=np.array([0.04, 0.02, 0.03]),
        reused_s=np.array([0.01, 0.01, 0.02]),
        copied_bytes=100,
        difference=0.0,
        tolerance=1e-3,
        fresh_tokens=(),
        reused_tokens=(),
    )
    chart = reuse_times(found, palette=Palette.light(), t=str)
    np.testing.assert_allclose(chart.figure.data[0].y, [30, 10])
    assert chart.figure.data[1].y.tolist() == [40, 20, 30]
    assert chart.description == (
        "The prefill takes 30.0 ms from nothing and 10.0 ms with the copied prefix: 3.0 × as fast (medians)."
    )
