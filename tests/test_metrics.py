"""The figures of speed: times typed by hand, and a run on a clock that the test turns."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from inference.branch import branch, with_settings
from inference.engine import Generation, generate
from inference.errors import RequestError, TraceError, TraceFileError
from inference.metrics import Speed, parse_times, speed, taken_over
from inference.request import GenerationRequest
from inference.sampling import SamplingParams
from inference.stopping import Finish
from inference.trace import Trace
from inference.trace_io import dump, load
from tests.charts.runs import run
from tests.scripted import tiny_model


def timed(*at_s: float, finish: Finish | None = None) -> Trace:
    """A hand-made run whose tokens were known at these seconds."""
    trace = run(chosen=[3] * len(at_s), finish=finish)
    steps = [
        replace(step, timing=replace(step.timing, at_s=at), decision=replace(step.decision, forced=False))
        for step, at in zip(trace.steps, at_s, strict=True)
    ]
    return replace(trace, steps=tuple(steps))


def test_first_token_at_0_20_s_and_second_at_0_25_s_make_200_ms_50_ms_and_20_tokens_a_second() -> None:
    found = parse_times("0.20, 0.25")
    assert found.ttft_s == 0.20
    assert found.tpot_s == pytest.approx(0.05)
    assert found.decode_tok_s == pytest.approx(20.0)
    assert found.request_tok_s == pytest.approx(8.0)  # 2 ÷ 0.25, which is not 20
    assert found.itl_s.tolist() == pytest.approx([0.05])


def test_a_single_token_has_a_ttft_and_needs_a_second_one_for_the_rest() -> None:
    found = parse_times("0.2")
    assert found.ttft_s == 0.2
    assert found.tpot_s is found.decode_tok_s is found.itl_percentile_s(95) is None
    assert found.request_tok_s == pytest.approx(5.0)


def test_tpot_is_the_mean_of_the_latencies_and_percentiles_are_between_the_nearest_two() -> None:
    found = parse_times("1\n1.1\n1.3；1.6，2.0")  # latencies 100, 200, 300, 400 ms
    assert found.tpot_s == pytest.approx(0.25)
    assert found.itl_percentile_s(50) == pytest.approx(0.25)
    assert found.itl_percentile_s(95) == pytest.approx(0.385)  # 300 + 0.85 · 100


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "There are 0 times; from 1 to 10000 can be used."),
        ("0.2 soon", "Time 2 must be a number of seconds above 0 and below a million, not soon."),
        ("0.2 nan", "Time 2 must be a number of seconds above 0 and below a million, not nan."),
        ("-1", "Time 1 must be a number of seconds above 0 and below a million, not -1."),
        ("0.25 0.20", "Time 2 is 0.2 s and does not come after the one before it, 0.25 s."),
        ("0.2 0.2", "Time 2 is 0.2 s and does not come after the one before it, 0.2 s."),
    ],
)
def test_typed_times_that_cannot_be_are_named(text: str, said: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_times(text)
    assert str(caught.value).startswith(said)


def test_the_end_token_counts_or_not() -> None:
    trace = timed(0.2, 0.3, 0.6, finish=Finish("eos", token_id=3))
    assert speed(trace).n == 3
    assert speed(trace).tpot_s == pytest.approx(0.2)
    without = speed(trace, count_eos=False)
    assert without.n == 2
    assert without.tpot_s == pytest.approx(0.1)
    by_length = timed(0.2, 0.3, 0.6)
    assert speed(by_length, count_eos=False).n == 3


def test_a_run_of_the_end_token_alone_has_nothing_to_count_without_it() -> None:
    trace = timed(0.2, finish=Finish("eos", token_id=3))
    with pytest.raises(TraceError, match="no token whose time can be counted"):
        speed(trace, count_eos=False)


def test_prefill_speed_is_that_of_its_forward_passes() -> None:
    found = speed(timed(0.2, 0.3))
    assert (found.n_prompt, found.prefill_s) == (4, 0.02)
    assert found.prefill_tok_s == pytest.approx(200.0)


def test_steps_taken_over_by_a_branch_do_not_count_and_leave_no_ttft() -> None:
    trace = timed(0.2, 0.3, 0.1, 0.2, 0.4)  # the clock starts anew at the third
    assert taken_over(trace) == 2
    found = speed(trace)
    assert (found.n, found.ttft_s, found.prefill_tok_s, found.request_tok_s) == (3, None, None, None)
    assert found.tpot_s == pytest.approx(0.15)


def test_a_token_put_in_by_hand_ends_what_was_taken_over_even_if_the_clock_goes_on() -> None:
    trace = timed(0.2, 0.3, 0.4, 0.5)
    steps = list(trace.steps)
    steps[1] = replace(steps[1], decision=replace(steps[1].decision, forced=True))
    assert taken_over(replace(trace, steps=tuple(steps))) == 2
    assert taken_over(trace) == 0


def test_a_recorded_run_on_a_clock_that_gives_a_second_a_reading() -> None:
    ticks = iter(range(10_000))
    request = GenerationRequest(prompt="ab", max_new_tokens=3, sampling=SamplingParams(greedy=True), ignore_eos=True)
    generation = Generation(tiny_model(), request, clock=lambda: float(next(ticks)))
    for _ in generation:
        pass
    found = speed(generation.trace())
    at_s = generation.trace().timing.at_s
    assert found.ttft_s == at_s[0]
    assert np.array_equal(found.itl_s, np.diff(at_s))
    # every step reads the clock as often as every other one, so that all latencies are the same whole number
    assert found.itl_s[0] == found.itl_s[1] == found.tpot_s == int(found.itl_s[0]) > 0
    assert found.prefill_s == 1.0
    assert generation.trace().versions["machine"]


ASKED = GenerationRequest(prompt="ab", max_new_tokens=5, sampling=SamplingParams(greedy=True), ignore_eos=True)


def ticking(generation: Generation, first: float = 1) -> Generation:
    """A run on a clock that gives a second a reading, `first` at its first reading after the start at 0."""
    ticks = count(first)
    generation.began, generation.clock = 0.0, lambda: float(next(ticks))
    return generation


def of_branch(generation: Generation, first: float) -> tuple[Trace, Speed]:
    """A branch on its own clock, driven to its end, and its figures."""
    list(ticking(generation, first))
    return generation.trace(), speed(generation.trace())


def test_a_branch_at_the_first_step_has_only_the_tokens_after_it_to_count() -> None:
    left = ticking(generate(tiny_model(), ASKED))
    list(left)
    # a step reads the clock as it begins, around its pass, after it and after the choice: token 1 at 1 + 4 seconds
    assert left.trace().timing.at_s.tolist() == [5, 11, 17, 23, 29]
    assert taken_over(left.trace()) == 0
    for cache in (None, left.cache):
        trace, found = of_branch(branch(tiny_model(), left.trace(), 0, 7, cache), first=100)
        assert trace.timing.at_s.tolist() == [5, 104, 110, 116, 122]
        assert (taken_over(trace), found.n, found.at_s.tolist()) == (1, 4, [104, 110, 116, 122])
        assert (found.ttft_s, found.prefill_s, found.prefill_tok_s, found.request_tok_s) == (None, None, None, None)
        assert (found.tpot_s, found.decode_tok_s) == (6, pytest.approx(1 / 6))


def test_a_branch_at_a_later_step_counts_from_its_own_first_pass_with_the_cache_reused() -> None:
    left = ticking(generate(tiny_model(), ASKED))
    list(left)
    trace, found = of_branch(branch(tiny_model(), left.trace(), 2, 7, left.cache), first=1)
    assert trace.timing.at_s.tolist() == [5, 11, 17, 5, 11]
    assert (taken_over(trace), found.n, found.ttft_s, found.prefill_s, found.tpot_s) == (3, 2, None, None, 6)


def test_other_settings_that_part_at_the_first_step_leave_no_ttft_even_if_the_clock_seems_to_go_on() -> None:
    left = ticking(generate(tiny_model(), ASKED))
    list(left)
    first_token = left.steps[0].token_id
    others = SamplingParams(greedy=True, suppress_tokens=(first_token,))
    generation = with_settings(tiny_model(), left.trace(), others)
    trace, found = of_branch(generation, first=100)
    assert (trace.steps[0].token_id == first_token, trace.steps[0].decision.forced) == (False, False)
    assert trace.timing.at_s.tolist() == [5, 104, 110, 116, 122]  # the first one is the other run's
    assert (found.taken_over, found.n, found.ttft_s, found.request_tok_s) == (1, 4, None, None)
    assert taken_over(load(dump(trace))) == 1


def test_a_branch_that_only_puts_a_token_in_has_no_time_of_its_own() -> None:
    left = ticking(generate(tiny_model(), ASKED))
    next(left)
    generation = branch(tiny_model(), left.trace(), 0, 7, max_new_tokens=1)
    assert len(list(generation)) == 1
    with pytest.raises(TraceError, match="no token whose time can be counted"):
        speed(generation.trace())


def test_a_run_file_whose_count_of_taken_over_steps_cannot_be_is_refused() -> None:
    trace = timed(0.2, 0.3)
    for wrong in (3, -1):
        with pytest.raises(TraceFileError, match="another run's"):
            load(dump(replace(trace, taken_over=wrong)))
