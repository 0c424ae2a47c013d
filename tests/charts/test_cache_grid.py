"""The cache's grid against cells counted by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from charts.base import Palette
from charts.cache_grid import EMPTY, LEFT, NEW, REUSED, cache_grid, cell_states
from charts.cache_metrics import cache_metrics
from charts.layer_bytes import layer_bytes
from inference.cache_check import layer_checks
from inference.trace import KVState, Trace
from tests.charts.runs import CACHE_BYTES, run
from ui.i18n import catalogue


def sliding(trace: Trace, keep: int) -> Trace:
    """The hand-made run as if layer 1 kept the newest `keep` positions."""
    steps, before = [], 0
    for step in trace.steps:
        fed = trace.n_prompt + step.index
        held = min(fed, keep)
        kv = step.kv
        positions = np.array([fed, held])
        dropped = np.array([0, before + int(kv.added[1]) - held])
        steps.append(replace(step, kv=KVState(positions, positions * CACHE_BYTES, kv.added, dropped)))
        before = held
    return replace(trace, steps=tuple(steps))


def test_the_prefill_lights_the_prompt_and_each_decode_step_one_column() -> None:
    trace = run()  # four prompt tokens, three steps: six positions are ever fed
    assert cell_states(trace, 0).tolist() == [[NEW] * 4 + [EMPTY] * 2] * 2
    assert cell_states(trace, 2).tolist() == [[REUSED] * 5 + [NEW]] * 2


def test_a_layer_with_a_window_loses_its_oldest_position() -> None:
    trace = sliding(run(), keep=3)
    assert cell_states(trace, 0)[1].tolist() == [LEFT, NEW, NEW, NEW, EMPTY, EMPTY]
    assert cell_states(trace, 1)[1].tolist() == [EMPTY, LEFT, REUSED, REUSED, NEW, EMPTY]
    assert cell_states(trace, 1)[0].tolist() == [REUSED] * 4 + [NEW, EMPTY]


def test_the_sentence_and_the_table_count_the_cells() -> None:
    chart = cache_grid(sliding(run(), keep=3), 1, palette=Palette.light(), t=str)
    assert chart.description == "Step 1 lit 2 cells and reused 6. 1 were dropped."
    assert list(chart.table["reused"]) == [4, 2]
    assert list(chart.table["dropped in this step"]) == [0, 1]


def test_in_chinese_the_sentences_follow_each_other_at_once() -> None:
    trace, t = sliding(run(), keep=0), catalogue("zh-Hans").gettext
    said = cache_grid(trace, 1, palette=Palette.light(), t=t).description
    assert said == "第 1 步点亮了 1 个格子，复用了 4 个。没有自己的键的层：1。"


def test_a_long_run_is_pooled_to_at_most_256_columns_that_show_the_newest_state() -> None:
    trace = run(prompt=[1] * 700)
    new, reused = (one.z[0] for one in cache_grid(trace, 1, palette=Palette.dark(), t=str).figure.data[0:4:2])
    assert len(new) == 234  # 702 positions, three to a column
    assert np.flatnonzero(np.isfinite(reused)).tolist() == list(range(233))
    assert np.flatnonzero(np.isfinite(new)).tolist() == [233]


def test_each_state_is_a_picture_of_its_own_and_no_cell_is_in_two() -> None:
    figure = cache_grid(sliding(run(), keep=3), 1, palette=Palette.light(), t=str).figure
    pictures = np.isfinite([one.z for one in figure.data[::2]])
    assert pictures.sum(axis=0).tolist() == [[1] * 6] * 2
    assert [one.name for one in figure.data[1::2]] == [
        "computed in this step", "reused", "dropped in this step", "not there",
    ]  # fmt: skip
    assert pictures[:, 1].argmax(axis=0).tolist() == [3, 2, 1, 1, 0, 3]  # the layer with the window


def test_the_figures_of_a_step_are_positions_and_bytes() -> None:
    computed, reused, held, grown = cache_metrics(run(), 2, str)
    assert (computed.value, reused.value) == ("1", "5")
    assert reused.note == "without a cache: all 6 again"
    assert held.note == f"{2 * 6 * CACHE_BYTES:,} bytes"
    assert grown.value == f"{2 * CACHE_BYTES} B"
    assert cache_metrics(run(), 0, str)[3].note == "the prefill's block"


def test_bars_are_measured_bytes_and_marks_the_formula() -> None:
    trace = sliding(run(), keep=3)
    chart = layer_bytes(layer_checks(trace, 2), palette=Palette.light(), t=str)
    bars, marks = chart.figure.data
    assert bars.y.tolist() == [6 * CACHE_BYTES, 3 * CACHE_BYTES]
    assert marks.y.tolist() == [6 * CACHE_BYTES] * 2
    assert list(chart.table["difference"]) == [0, -3 * CACHE_BYTES]
    assert chart.description.startswith("1 of 2 layers hold exactly")


def test_a_few_layers_and_positions_are_numbered_one_by_one() -> None:
    small = cache_grid(run(), 0, palette=Palette.light(), t=str).figure.layout
    assert (small.xaxis.dtick, small.yaxis.dtick) == (1, 1)
    long = cache_grid(run(prompt=[1] * 700), 0, palette=Palette.light(), t=str).figure.layout
    assert (long.xaxis.dtick, long.xaxis.nticks) == (None, 12)
