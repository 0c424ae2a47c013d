"""Sweeps on a clock that counts what the model is fed: order, warm-up, medians, cancelling; and the fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from inference.errors import RequestError
from inference.forward import Forward, PassResult, n_cached
from inference.measured import Fit, Line, fit, sweep_table
from inference.models import LoadedModel
from inference.time_sweeps import batch_of, batch_times, chunk_times, decode_times, prefill_times
from inference.walk import feed, feed_rows
from tests.scripted import tiny_model

IDS = np.array([1, 2, 3])


class Counting(Forward):
    """A model whose every pass takes 10 + Q + K seconds on a clock of its own; K is what the cache held before."""

    def __init__(self, real: Forward) -> None:
        super().__init__(real.model, real.eager_weights)
        self.now, self.passes = 0.0, []
        self.slow_first = 1000.0

    def __call__(self, ids, cache, recorder, weights, last_only=True) -> PassResult:
        held = 0 if cache is None else n_cached(cache)
        result = super().__call__(ids, cache, recorder, weights, last_only)
        self.now += 10 + len(ids) + held + self.slow_first
        self.slow_first = 0.0
        self.passes.append((len(ids), held))
        return result

    def clock(self) -> float:
        return self.now


def counting() -> tuple[LoadedModel, Counting]:
    forward = Counting(tiny_model().forward)
    return replace(tiny_model(), forward=forward), forward


def test_prefill_times_are_those_of_one_pass_a_length_without_the_round_that_warms_up() -> None:
    model, forward = counting()
    shares: list[float] = []
    sweep = prefill_times(model, IDS, [4, 8], 2, shares.append, clock=forward.clock)
    assert sweep is not None
    (line,) = sweep.lines
    assert line.x.tolist() == [4, 8]
    assert line.seconds.tolist() == [[14, 18], [14, 18]]  # the first pass of all took 1,014
    assert forward.passes == [(4, 0), (8, 0)] * 3
    assert shares[-1] == 1.0
    assert shares == sorted(shares)
    assert sweep.place.model == "tiny"
    assert "cores" in sweep.place.machine


def test_decode_steps_follow_a_filled_cache_and_without_it_everything_is_fed_again() -> None:
    model, forward = counting()
    sweep = decode_times(model, IDS, [4, 8], 1, clock=forward.clock)
    assert sweep is not None
    cached, uncached = sweep.lines
    assert cached.seconds.tolist() == [[10 + 1 + 5, 10 + 1 + 9]]  # the round that warmed up wrote one position
    assert uncached.seconds.tolist() == [[15, 19]]
    assert forward.passes.count((1, 4)) == 1
    assert forward.passes.count((5, 0)) == 2


def test_a_prompt_in_chunks_takes_the_sum_of_its_passes() -> None:
    model, forward = counting()
    sweep = chunk_times(model, IDS, 8, [3, 8], 1, clock=forward.clock)
    assert sweep is not None
    # chunks of 3, 3 and 2 after 0, 3 and 6 positions: 13 + 16 + 18; or all 8 at once
    assert sweep.lines[0].seconds.tolist() == [[47, 18]]
    assert sweep.fixed == 8


def test_a_sweep_stops_before_its_next_point_when_it_is_cancelled() -> None:
    model, forward = counting()
    found = prefill_times(model, IDS, [4, 8], 2, cancelled=lambda: len(forward.passes) == 3, clock=forward.clock)
    assert found is None
    assert len(forward.passes) == 3


def test_a_length_beyond_the_context_is_refused_with_both_numbers() -> None:
    with pytest.raises(RequestError, match="needs 65 positions; tiny reads at most 64"):
        prefill_times(tiny_model(), IDS, [8, 65], 1)


def test_a_model_that_takes_no_chunks_is_refused() -> None:
    model, forward = counting()
    forward.takes_chunks = False
    with pytest.raises(RequestError, match="cannot be prefilled in chunks"):
        chunk_times(model, IDS, 8, [4], 1)


def test_the_fit_finds_the_parts_that_times_were_made_of() -> None:
    x = np.array([16, 32, 64, 128, 256, 512])
    found = fit(x, 0.01 + 0.002 * x + 3e-6 * x**2)
    assert (found.fixed, found.linear, found.quadratic) == pytest.approx((0.01, 0.002, 3e-6))
    assert found.parts(np.array([100])).ravel().tolist() == pytest.approx([0.01, 0.2, 0.03])


def test_no_part_of_a_fit_is_negative_where_long_prompts_are_cheaper_a_token() -> None:
    x = np.array([16, 32, 64, 128, 256])
    found = fit(x, 0.02 + 0.001 * x - 1e-6 * x**2)
    assert found.quadratic == 0
    assert min(found.fixed, found.linear) >= 0
    assert found.linear == pytest.approx(0.001, rel=0.3)


def test_two_points_are_fitted_exactly_by_two_parts() -> None:
    found = fit(np.array([10, 20]), np.array([0.3, 0.5]))
    assert found.parts(np.array([10, 20])).sum(axis=0).tolist() == pytest.approx([0.3, 0.5])
    assert isinstance(found, Fit)


def test_medians_and_spread_are_those_of_the_rounds() -> None:
    line = Line("prefill", np.array([4, 8]), np.array([[1.0, 5.0], [9.0, 6.0], [2.0, 7.0]]))
    assert line.median_s.tolist() == [2.0, 6.0]
    assert [edge.tolist() for edge in line.spread_s] == [[1.0, 5.0], [9.0, 7.0]]


def test_the_export_has_every_round_with_its_machine() -> None:
    model, forward = counting()
    sweep = prefill_times(model, IDS, [4, 8], 2, clock=forward.clock)
    assert sweep is not None
    table = sweep_table(sweep)
    assert table[["tokens", "round", "seconds"]].to_numpy().tolist() == [[4, 0, 14], [8, 0, 18], [4, 1, 14], [8, 1, 18]]
    assert set(table["machine"]) == {sweep.place.machine}


def test_each_row_of_a_batch_gives_the_logits_of_its_sequence_alone() -> None:
    model = tiny_model()
    rows = batch_of(np.array([5, 9, 3, 7]), 3, 6)
    assert rows.tolist() == [[5, 9, 3, 7, 5, 9], [9, 3, 7, 5, 9, 3], [3, 7, 5, 9, 3, 7]]
    cache = model.forward.new_cache()
    feed_rows(model, rows[:, :5], cache)
    together, _ = feed_rows(model, rows[:, 5:], cache)
    alone = np.stack([feed(model, row, None)[0] for row in rows])
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-4)  # float32, added up in another order
    assert np.abs(alone[0] - alone[1]).max() > 0.1


def test_a_batch_is_timed_for_one_step_after_its_context() -> None:
    ticks = iter(np.arange(100.0))
    sweep = batch_times(tiny_model(), IDS, 4, [1, 2], 2, clock=lambda: float(next(ticks)))
    assert sweep is not None
    assert sweep.lines[0].seconds.tolist() == [[1, 1], [1, 1]]
    assert sweep.fixed == 4
    assert next(ticks) == 12  # two readings a step: two sizes, two rounds and one that warms up
