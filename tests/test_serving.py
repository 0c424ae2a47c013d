"""Schedules by hand: a prefill takes 1 s and a decode step 0.1 s; and what holds for any requests."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from inference.errors import RequestError
from inference.measured import Fit, Line, Place, Sweep
from inference.serving import Schedule, ServingRequest, continuous, one_at_a_time, static
from inference.step_costs import StepCosts

PLACE = Place("a machine", "a model", "cpu", "float32")
ROUND = StepCosts(Fit(1, 0, 0), (0.1,) * 4, 64, 0.0, 256, 256, PLACE)
A, B, C = ServingRequest(0, 10, 3), ServingRequest(0, 20, 5), ServingRequest(0.5, 10, 2)


def times(schedule: Schedule) -> list[list[float]]:
    return [pytest.approx(one.token_s) for one in schedule.served]


def spans(schedule: Schedule, row: int) -> list[tuple[str, float, float]]:
    return [(kind, round(start, 9), round(end, 9)) for kind, start, end in schedule.served[row].spans]


def test_one_at_a_time_each_waits_until_the_one_before_has_ended() -> None:
    found = one_at_a_time([A, B, C], ROUND)
    assert times(found) == [[1, 1.1, 1.2], [2.2, 2.3, 2.4, 2.5, 2.6], [3.6, 3.7]]
    assert [one.queue_s for one in found.served] == pytest.approx([0, 1.2, 2.1])
    assert [one.ttft_s for one in found.served] == pytest.approx([1, 2.2, 3.1])
    assert [one.tpot_s for one in found.served] == pytest.approx([0.1, 0.1, 0.1])
    assert spans(found, 2) == [("waiting", 0.5, 2.6), ("prefill", 2.6, 3.6), ("decode", 3.6, 3.7)]
    assert (found.policy, found.n_tokens, found.n_padded) == ("one", 10, 0)
    assert found.makespan_s == pytest.approx(3.7)
    assert found.throughput == pytest.approx(10 / 3.7)


def test_a_static_batch_runs_until_its_longest_has_ended_and_pays_for_every_row() -> None:
    found = static([A, B, C], ROUND, 2)
    # A and B are prefilled together; B's five tokens keep the batch until 1.4, then C has the machine
    assert times(found) == [[1, 1.1, 1.2], [1, 1.1, 1.2, 1.3, 1.4], [2.4, 2.5]]
    assert spans(found, 0) == [("prefill", 0, 1), ("decode", 1, 1.2), ("padding", 1.2, 1.4)]
    assert [one.queue_s for one in found.served] == pytest.approx([0, 0, 0.9])
    # prefills of 2 × 20 and 10 positions, of which 10 are padding; 4 steps of 2 rows, 2 of them ended, and one step
    assert (found.n_fed, found.n_padded) == (40 + 10 + 8 + 1, 10 + 2)
    assert found.padded_share == pytest.approx(12 / 59)


def test_a_static_batch_waits_for_others_no_longer_than_it_may() -> None:
    assert times(static([A, C], ROUND, 2, max_wait_s=1)) == [[1.5, 1.6, 1.7], [1.5, 1.6]]  # full at 0.5
    assert times(static([A, C], ROUND, 2, max_wait_s=0.2)) == [[1.2, 1.3, 1.4], [2.4, 2.5]]
    assert times(static([A, C], ROUND, 3, max_wait_s=0.7)) == [[1.7, 1.8, 1.9], [1.7, 1.8]]  # never full


def test_in_a_continuous_batch_the_others_stand_still_for_a_newcomers_prefill() -> None:
    found = continuous([A, B, C], ROUND, 2)
    # prefills of A and B until 2; steps at 2.1 and 2.2, A leaves; C is prefilled until 3.2, B stands still; then on
    assert times(found) == [[1, 2.1, 2.2], [2, 2.1, 2.2, 3.3, 3.4], [3.2, 3.3]]
    assert spans(found, 0) == [("prefill", 0, 1), ("stalled", 1, 2), ("decode", 2, 2.2)]
    assert spans(found, 1) == [
        ("waiting", 0, 1), ("prefill", 1, 2), ("decode", 2, 2.2), ("stalled", 2.2, 3.2), ("decode", 3.2, 3.4),
    ]  # fmt: skip
    assert spans(found, 2) == [("waiting", 0.5, 2.2), ("prefill", 2.2, 3.2), ("decode", 3.2, 3.3)]
    assert (found.n_fed, found.n_padded) == (40 + 7, 0)
    assert found.makespan_s == pytest.approx(3.4)


def test_with_chunks_the_others_take_a_step_after_each_piece() -> None:
    costs = replace(ROUND, prefill=Fit(0, 0.05, 0))  # 0.05 s a prompt token
    first, second = ServingRequest(0, 20, 4), ServingRequest(0.5, 40, 2)
    whole = continuous([first, second], costs, 2)
    assert times(whole) == [[1, 3.1, 3.2, 3.3], [3, 3.1]]
    chunked = continuous([first, second], costs, 2, chunk=16)
    assert chunked.policy == "chunked"
    # first: 16 and 4 tokens until 1. second: 16 until 1.8, step, 16 until 2.7, step, 8 until 3.2, step
    assert times(chunked) == [[1, 1.9, 2.8, 3.3], [3.2, 3.4]]
    assert spans(chunked, 1)[:3] == [("waiting", 0.5, 1), ("prefill", 1, 1.8), ("stalled", 1.8, 1.9)]


def test_a_request_of_one_token_ends_with_its_prefill_and_has_no_tpot() -> None:
    for found in (one_at_a_time([ServingRequest(0, 5, 1)], ROUND), continuous([ServingRequest(0, 5, 1)], ROUND, 4)):
        assert found.served[0].tpot_s is None
        assert found.served[0].token_s == (1,)


def test_requests_are_served_in_the_order_of_arrival_and_answered_in_their_own() -> None:
    late, early = ServingRequest(5, 10, 1), ServingRequest(2, 10, 1)
    for found in (one_at_a_time([late, early], ROUND), static([late, early], ROUND, 2)):
        assert times(found) == [[6], [3]]
        assert found.makespan_s == pytest.approx(4)  # from 2, the first arrival


def test_costs_grow_with_the_rows_the_prompt_and_the_context() -> None:
    costs = StepCosts(Fit(1, 0.5, 0.25), (0.1, 0.3), 10, 0.01, 256, 256, PLACE)
    assert costs.prefill_s(4) == 1 + 0.5 * 4 + 0.25 * 16
    assert costs.prefill_s(4, rows=3) == 1 + 3 * (2 + 4)
    assert costs.prefill_s(1, done=3) + costs.prefill_s(3) == costs.prefill_s(4) + 1  # the fixed part once more
    assert costs.decode_s([5, 10]) == pytest.approx(0.3)  # shorter contexts count as the measured one
    assert costs.decode_s([12, 15]) == pytest.approx(0.3 + 0.01 * (2 + 5))
    # the k-th step follows prompt + k - 1 positions: 0.1 s after 10, 0.11 s after 11
    assert continuous([ServingRequest(0, 10, 3)], replace(costs, prefill=Fit(1, 0, 0)), 1).served[0].token_s == (
        pytest.approx((1, 1.1, 1.21))
    )


def swept(kind: str, name: str, x: list[int], seconds: list[float], fixed: int = 0, place: Place = PLACE) -> Sweep:
    return Sweep(kind, place, (Line(name, np.array(x), np.array([seconds])),), fixed)


SWEEPS = {
    "prefill": swept("prefill", "prefill", [10, 20, 40], [1.2, 1.4, 1.8]),
    "decode": swept("decode", "cached", [10, 110], [0.1, 0.2]),
    "batch": swept("batch", "batch", [1, 2, 4], [0.1, 0.12, 0.2], 64),
}


def test_costs_are_had_from_three_sweeps() -> None:
    costs = StepCosts.of(SWEEPS)
    assert costs.prefill_s(100) == pytest.approx(1 + 0.02 * 100)
    assert costs.steps_s == pytest.approx((0.1, 0.12, 0.16, 0.2))  # 3 lies between 2 and 4
    assert costs.position_s == pytest.approx(0.001)
    assert (costs.context, costs.largest_batch, costs.longest_prompt, costs.longest_context) == (64, 4, 40, 110)
    assert costs.place == PLACE


@pytest.mark.parametrize("kind", SWEEPS)
def test_a_sweep_that_is_missing_is_named(kind: str) -> None:
    title = {"prefill": "Prefill time", "decode": "Decode step time", "batch": "Batch size"}[kind]
    with pytest.raises(RequestError, match=f"“{title}” has not been measured"):
        StepCosts.of({name: sweep for name, sweep in SWEEPS.items() if name != kind})


def test_sweeps_of_two_models_are_not_put_together() -> None:
    other = swept("batch", "batch", [1, 2], [1, 2], 64, replace(PLACE, model="another"))
    with pytest.raises(RequestError, match="different models or machines"):
        StepCosts.of({**SWEEPS, "batch": other})


@pytest.mark.parametrize(
    ("requests", "slots", "chunk", "said"),
    [
        ([], 1, None, "There are 0 requests; 1 to 16 can be scheduled."),
        ([A] * 17, 1, None, "There are 17 requests"),
        ([A], 5, None, "A batch of 5 was not measured; the slots are 1 to 4."),
        ([A], 0, None, "A batch of 0"),
        ([A], 1, 15, "A chunk has 15 tokens; it needs at least 16."),
        ([A, ServingRequest(0, 0, 3)], 1, None, "Request 2 arrives at 0 s with 0 prompt tokens"),
        ([ServingRequest(0, 1, 513)], 1, None, "an answer 1 to 512 tokens"),
        ([ServingRequest(float("nan"), 1, 1)], 1, None, "Request 1 arrives at nan s"),
        ([ServingRequest(-1, 1, 1)], 1, None, "an arrival is 0 to 600 s"),
    ],
)
def test_numbers_out_of_range_are_named_with_the_limit(requests, slots, chunk, said) -> None:
    with pytest.raises(RequestError, match=said):
        continuous(requests, ROUND, slots, chunk)


def drawn(seed: int) -> tuple[list[ServingRequest], StepCosts, int]:
    """Requests, costs and slots at random."""
    draw = random.Random(seed)
    requests = [
        ServingRequest(draw.choice([0, 0, draw.uniform(0, 5)]), draw.randint(1, 60), draw.randint(1, 20))
        for _ in range(draw.randint(1, 8))
    ]
    steps = np.cumsum([draw.uniform(0.01, 0.1) for _ in range(4)])
    fitted = Fit(draw.uniform(0, 0.5), draw.uniform(0.001, 0.01), draw.uniform(0, 1e-4))
    return requests, StepCosts(fitted, tuple(map(float, steps)), 8, draw.uniform(0, 1e-3), 60, 80, PLACE), 3


def of_every_policy(seed: int) -> list[Schedule]:
    requests, costs, slots = drawn(seed)
    chunked = continuous(requests, costs, slots, chunk=16)
    waiting = static(requests, costs, slots, max_wait_s=1.5)
    return [
        one_at_a_time(requests, costs), static(requests, costs, slots), waiting,
        continuous(requests, costs, slots), chunked,
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_every_request_gets_its_tokens_one_after_the_other_and_its_time_is_accounted_for(seed: int) -> None:
    for schedule in of_every_policy(seed):
        for request, one in zip(drawn(seed)[0], schedule.served, strict=True):
            assert len(one.token_s) == request.n_new
            assert all(before < after for before, after in pairwise(one.token_s))
            assert one.queue_s >= 0
            assert one.spans[0].start_s == request.arrival_s
            assert all(before.end_s == after.start_s for before, after in pairwise(one.spans))
            assert [span.end_s for span in one.spans if span.kind in ("prefill", "decode")][-1] == one.finish_s


@pytest.mark.parametrize("seed", range(40))
def test_the_machine_runs_one_kind_of_pass_at_a_time_for_no_more_rows_than_slots(seed: int) -> None:
    slots = drawn(seed)[2]
    for schedule in of_every_policy(seed):
        most = 1 if schedule.policy == "one" else slots
        work = [s for one in schedule.served for s in one.spans if s.kind in ("prefill", "decode", "padding")]
        borders = sorted({edge for span in work for edge in (span.start_s, span.end_s)})
        for start, end in pairwise(borders):
            going = [span.kind for span in work if span.start_s <= start and end <= span.end_s]
            assert len(going) <= most
            assert len(set(going) - {"padding"}) <= 1
            if schedule.policy != "static":
                assert going.count("prefill") <= 1


@pytest.mark.parametrize("seed", range(40))
def test_only_static_batches_feed_padding_and_all_policies_feed_the_same_without_it(seed: int) -> None:
    one, *statics, joined, chunked = of_every_policy(seed)
    assert one.n_padded == joined.n_padded == chunked.n_padded == 0
    needed = sum(request.n_prompt + request.n_new - 1 for request in drawn(seed)[0])
    assert {schedule.n_fed - schedule.n_padded for schedule in (one, *statics, joined, chunked)} == {needed}


@pytest.mark.parametrize("seed", range(40))
def test_where_all_come_at_once_and_find_a_slot_a_continuous_batch_ends_no_later_than_a_static_one(seed: int) -> None:
    requests, costs, slots = drawn(seed)
    requests = [replace(request, arrival_s=0.0) for request in requests[:slots]]
    costs = replace(costs, prefill=replace(costs.prefill, fixed=0.0))  # a batch would pay it only once
    ends = [policy(requests, costs, slots).makespan_s for policy in (continuous, static)]
    assert ends[0] <= ends[1] + 1e-9


@pytest.mark.parametrize("seed", range(40))
def test_a_lone_request_is_served_alike_by_all(seed: int) -> None:
    requests, costs, slots = drawn(seed)
    alone = requests[:1]
    expected = pytest.approx(one_at_a_time(alone, costs).served[0].token_s)
    assert static(alone, costs, slots).served[0].token_s == expected
    assert continuous(alone, costs, slots).served[0].token_s == expected
