"""Other settings over a run: against pipelines run by hand, and against runs that a model really makes with them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from inference.branch import branch, with_settings
from inference.counterfactual import Choice, choices, parting, uniforms
from inference.engine import Generation, record
from inference.errors import RequestError, SamplingError, TraceError
from inference.request import GenerationRequest, RecordOptions
from inference.sampling import SamplingParams, choose, run_pipeline
from inference.trace import Trace
from tests.charts.runs import V, logits_of, run
from tests.embedded import embedded
from tests.tiny import PROMPT, loaded

START = SamplingParams(temperature=0.7, top_k=50, top_p=0.9, seed=11)
OTHERS = [
    SamplingParams(temperature=1.4),
    SamplingParams(temperature=1.4, top_p=0.95, order="llama.cpp"),
    SamplingParams(greedy=True, repetition_penalty=1.4),
    SamplingParams(temperature=0.9, presence_penalty=3.0),
]


def ended(generation: Generation) -> Trace:
    with generation:
        for _ in generation:
            pass
        return generation.trace()


def tokens(trace: Trace) -> list[int]:
    return [step.token_id for step in trace.steps]


def tiny_run(sampling: SamplingParams = START, **options: object) -> Trace:
    return record(
        loaded("llama"),
        GenerationRequest(prompt_ids=PROMPT, max_new_tokens=24, sampling=sampling, record=RecordOptions(**options)),
    )


def test_each_choice_is_that_of_the_pipeline_at_the_steps_own_number_and_context() -> None:
    trace, params = run(), SamplingParams(temperature=1.3, top_k=7, repetition_penalty=1.5)
    expected = [
        choose(run_pipeline(logits_of(3)[i], params, (2, 1, 4, 6, 3, 7, 19)[: 4 + i], 4, (0,)), 0.5) for i in range(3)
    ]
    found = choices(trace, params)
    assert [choice.decision.token_id for choice in found] == expected
    assert [choice.recorded_id for choice in found] == [3, 7, 19]
    assert [choice.differs for choice in found] == [a != b for a, b in zip(expected, (3, 7, 19), strict=True)]
    assert parting(found) == next(i for i in range(3) if expected[i] != (3, 7, 19)[i])


def test_the_runs_own_settings_choose_what_it_chose() -> None:
    trace = tiny_run()
    found = choices(trace, trace.sampling)
    assert [choice.decision for choice in found] == [step.decision for step in trace.steps]
    assert parting(found) is None


def test_a_greedy_run_has_the_numbers_that_its_seed_would_have_drawn() -> None:
    drawn, greedy = tiny_run(), tiny_run(SamplingParams(greedy=True, seed=11))
    assert [step.decision.draw_u for step in greedy.steps] == [None] * 24
    assert uniforms(greedy) == uniforms(drawn) == [step.decision.draw_u for step in drawn.steps]


@pytest.mark.parametrize("params", OTHERS, ids=str)
def test_up_to_where_the_texts_part_it_is_the_run_that_the_model_makes(params: SamplingParams) -> None:
    trace = tiny_run()
    made = tiny_run(replace(params, greedy=params.is_greedy, seed=11))
    found = choices(trace, params)
    at = parting(found)
    assert at is not None
    assert tokens(made)[:at] == tokens(trace)[:at]
    assert tokens(made)[at] == found[at].decision.token_id != tokens(trace)[at]


# fed again in one pass, the logits differ in their last digits: a flat draw could then fall on a neighbour
@pytest.mark.parametrize(
    ("params", "reuse"), [*((p, True) for p in OTHERS), *((p, False) for p in OTHERS[1:])], ids=str
)
def test_the_new_branch_is_the_run_that_these_settings_make_from_the_prompt(
    params: SamplingParams, reuse: bool
) -> None:
    with Generation(
        loaded("llama"), GenerationRequest(prompt_ids=PROMPT, max_new_tokens=24, sampling=START)
    ) as generation:
        for _ in generation:
            pass
        made = ended(with_settings(loaded("llama"), generation.trace(), params, generation.cache if reuse else None))
    expected = tiny_run(replace(params, greedy=params.is_greedy, seed=11))
    assert tokens(made) == tokens(expected)
    assert made.sampling == expected.sampling
    for ours, theirs in zip(made.steps, expected.steps, strict=True):
        assert ours.decision.prob == pytest.approx(theirs.decision.prob, rel=1e-3)
        assert ours.decision.n_kept == theirs.decision.n_kept
        assert ours.decision.draw_u == theirs.decision.draw_u
        assert not ours.decision.forced


def test_from_the_highest_logits_alone_the_prompt_is_run_again_to_the_same_end() -> None:
    part = tiny_run(logits=60)
    params = SamplingParams(temperature=1.4, top_k=40)
    made = ended(with_settings(loaded("llama"), part, params))
    assert made.steps[0].logits.ids is not None
    assert tokens(made) == tokens(tiny_run(replace(params, greedy=False, seed=11)))
    whole = choices(tiny_run(), params)
    for ours, theirs in zip(choices(part, params), whole, strict=True):
        assert ours.decision.token_id == theirs.decision.token_id
        assert ours.decision.raw_entropy == pytest.approx(theirs.decision.raw_entropy, rel=1e-6)
        assert ours.decision.raw_prob == pytest.approx(theirs.decision.raw_prob, rel=1e-5)
    assert {choice.decision for choice in choices(part, SamplingParams(temperature=1.4))} == {None}


def test_settings_that_change_nothing_have_nothing_to_run() -> None:
    trace = tiny_run()
    with pytest.raises(RequestError, match="chooses the same tokens at every step"):
        with_settings(loaded("llama"), trace, trace.sampling)


def test_what_the_settings_leave_open_is_off_though_the_checkpoint_asks_for_it() -> None:
    model = replace(loaded("llama"), generation_settings={"top_k": 3, "greedy": False, "repetition_penalty": 1.3})
    trace = tiny_run()
    made = ended(with_settings(model, trace, SamplingParams(temperature=1.4)))
    at = parting(choices(trace, SamplingParams(temperature=1.4)))
    assert tokens(made)[: at + 1] == tokens(tiny_run(SamplingParams(temperature=1.4, seed=11)))[: at + 1]
    assert {step.decision.n_kept for step in made.steps} == {264}
    assert (made.sampling.top_k, made.sampling.repetition_penalty) == (0, 1.0)


def test_a_token_put_in_by_hand_is_no_difference_and_stays() -> None:
    trace = tiny_run()
    other = next(i for i in range(264) if i != trace.steps[2].token_id)
    forced = ended(branch(loaded("llama"), trace, 2, other))
    found = choices(forced, SamplingParams(temperature=1.4))
    assert not found[2].differs
    assert found[2].decision.token_id == other
    at = parting(found)
    assert at is not None
    made = ended(with_settings(loaded("llama"), forced, SamplingParams(temperature=1.4)))
    assert tokens(made)[:at] == tokens(forced)[:at]
    if at > 2:
        assert made.steps[2].decision.forced


def test_another_model_and_a_run_without_logits_are_refused() -> None:
    with pytest.raises(TraceError, match="was made by"):
        with_settings(loaded("gpt2"), tiny_run(), OTHERS[0])
    with pytest.raises(TraceError, match="holds no logits"):
        choices(tiny_run(logits=False), OTHERS[0])


def test_settings_that_leave_nothing_name_the_step_of_the_run() -> None:
    everything = SamplingParams(suppress_tokens=tuple(range(V)))
    with pytest.raises(SamplingError, match=r"Step 0: suppress_tokens removed every token"):
        choices(run(), everything)


def test_what_cannot_be_told_is_no_difference() -> None:
    unknown = Choice(0, 3, 0.5, None, False)
    assert not unknown.differs
    assert parting([unknown]) is None


def test_the_embedded_model_parts_where_the_new_settings_say() -> None:
    ask = GenerationRequest(prompt="What is gravity?", chat=True, max_new_tokens=10, sampling=START)
    trace = record(embedded(), ask)
    params = SamplingParams(temperature=1.5, top_k=50)
    made = record(embedded(), replace(ask, sampling=replace(params, seed=11)))
    at = parting(choices(trace, params))
    assert at is not None
    assert tokens(made)[: at + 1] != tokens(trace)[: at + 1]
    assert tokens(made)[:at] == tokens(trace)[:at]
    np.testing.assert_array_equal(tokens(ended(with_settings(embedded(), trace, params))), tokens(made))
