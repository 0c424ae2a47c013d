"""What the highest logits of a step settle: never anything that the hidden ones could change."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.errors import SamplingError, TraceError
from inference.position import Position, at_step, of_highest, settled
from inference.sampling import SamplingParams, run_pipeline
from inference.sampling_steps import Context
from tests.charts.runs import V, logits_of, run

CONTEXT = Context(np.array([2, 1, 4, 6], dtype=np.int64), 4, (0,))
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.sampled_from([0.3, 0.8, 1.0, 1.7]),
        "top_k": st.integers(1, V),
        "top_p": st.floats(0, 1),
        "min_p": st.floats(0, 1),
        "typical_p": st.floats(0.05, 1),
        "epsilon_cutoff": st.floats(0, 0.2),
        "eta_cutoff": st.floats(0, 0.2),
        "top_h": st.floats(0.05, 1),
        "repetition_penalty": st.floats(0.5, 3),
        "presence_penalty": st.floats(-2, 2),
        "suppress_tokens": st.lists(st.integers(0, V - 1), max_size=3).map(tuple),
        "greedy": st.just(True),
        "order": st.sampled_from(["transformers", "llama.cpp", "vllm"]),
    },
)


def partial(logits: np.ndarray, keep: int, context: Context = CONTEXT) -> Position:
    kept = np.argsort(-logits, kind="stable")[:keep].astype(np.int64)
    log_z = float(np.log(np.exp(logits.astype(np.float64)).sum()))
    return of_highest(logits[kept], kept, log_z, len(logits), context)


@given(st.integers(0, 10_000), st.integers(1, V), SETTINGS)
def test_what_is_settled_is_what_all_the_logits_give(seed: int, keep: int, settings: dict) -> None:
    logits = logits_of(1, seed)[0]
    params, context = SamplingParams(**settings), CONTEXT
    try:
        if not settled(partial(logits, keep), params):
            return
    except SamplingError:
        return
    ids, arguments = context.ids.tolist(), (context.n_prompt, context.eos_ids)
    known = run_pipeline(partial(logits, keep).logits, params, ids, *arguments)[-1]
    truth = run_pipeline(logits, params, ids, *arguments)[-1]
    np.testing.assert_array_equal(known.kept, truth.kept)
    np.testing.assert_allclose(known.probs, truth.probs, atol=1e-6)


KNOWN = np.log(np.array([0.5, 0.2, 0.1, 0.05, *[0.15 / 16] * 16])).astype(np.float32)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"top_k": 3}, True),
        ({"top_k": 4}, False),  # one that was not recorded could be tied with the fourth
        ({"temperature": 0.6, "top_k": 3, "top_p": 0.9}, True),
        ({"top_p": 0.75}, True),  # 0.5 + 0.2 < 0.75 <= 0.5 + 0.2 + 0.1, whatever the others are
        ({"top_p": 0.9}, False),  # reaches into the others
        ({"temperature": 0.5, "top_p": 0.9}, True),  # squares: 0.25 : 0.04 : 0.01, all others at most 0.0095 together
        ({"temperature": 2.0, "top_p": 0.9}, False),
        ({"min_p": 0.15}, True),  # cut at 0.075
        ({"min_p": 0.05}, False),  # cut at 0.025, and one of the others could be 0.05
        ({"greedy": True}, True),
        ({}, False),
        ({"typical_p": 0.5}, False),
        ({"top_k": 3, "typical_p": 0.5}, True),
        ({"top_k": 3, "repetition_penalty": 1.2}, True),
        ({"top_k": 3, "repetition_penalty": 0.5}, False),  # could lift tokens 4 and 6, which were not recorded
        ({"top_k": 3, "sequence_bias": (((9,), 3.0),)}, False),
        ({"top_k": 3, "sequence_bias": (((2,), 3.0),)}, True),
    ],
    ids=str,
)
def test_four_recorded_logits_settle(settings: dict, expected: bool) -> None:
    assert settled(partial(KNOWN, 4), SamplingParams(**settings)) is expected


def test_a_position_of_a_recorded_step_has_its_logits_its_context_and_the_mass_of_the_others() -> None:
    whole, part = at_step(run(), 1), at_step(run(keep=6), 1)
    assert whole.whole
    assert whole.n_recorded == V
    assert whole.context.ids.tolist() == [2, 1, 4, 6, 3]
    assert not part.whole
    assert part.n_recorded == 6
    np.testing.assert_array_equal(part.logits[part.recorded], whole.logits[part.recorded])
    assert part.knows(int(whole.logits.argmax()))
    assert not part.knows(int(whole.logits.argmin()))
    expected = run_pipeline(whole.logits, SamplingParams())[0].probs[part.recorded]
    np.testing.assert_allclose(run_pipeline(part.logits, SamplingParams())[0].probs[part.recorded], expected, rtol=1e-5)
    others = np.exp(whole.logits[~part.recorded].astype(np.float64)).sum()
    assert np.exp(part.log_rest) == pytest.approx(others, rel=1e-6)


def test_a_run_without_logits_is_refused() -> None:
    with pytest.raises(TraceError, match="holds no logits"):
        at_step(run(keep=0), 0)
