"""One setting through a range: each value is what the pipeline itself gives for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from inference.position import Position, at_step
from inference.sampling import SamplingParams, run_pipeline
from inference.sampling_steps import Context
from inference.sweep import sweep
from tests.charts.runs import run

CONTEXT = Context(np.array([1, 2, 3], dtype=np.int64), 2, (0,))
LOGITS = np.random.default_rng(1).normal(0, 2, 500).astype(np.float32)
KITTEN = Position(np.log(np.array([0.6, 0.2, 0.1, 0.1])).astype(np.float32), CONTEXT)


@pytest.mark.parametrize(
    ("name", "values"),
    [("temperature", [0.0, 0.2, 1.0, 1.9]), ("top_p", [0.0, 0.3, 0.9, 1.0]), ("top_k", [1, 7, 100, 600])],
)
def test_each_value_is_what_the_whole_pipeline_gives(name: str, values: list[float]) -> None:
    params = SamplingParams(temperature=0.8, top_p=0.9, repetition_penalty=1.3, order="llama.cpp")
    found = sweep(Position(LOGITS, CONTEXT), params, name, values, ids=(3, 40, 41))
    for row, value in enumerate(values):
        expected = run_pipeline(LOGITS, replace(params, **{name: value}), CONTEXT.ids.tolist(), 2, (0,))[-1]
        assert found.n_kept[row] == expected.kept.sum()
        np.testing.assert_allclose(found.probs[row], expected.probs[[3, 40, 41]], atol=1e-7)
        probs = expected.probs[expected.kept].astype(np.float64)
        assert found.entropy[row] == pytest.approx(-(probs * np.log(probs)).sum(), abs=1e-6)


def test_the_kitten_by_hand() -> None:
    found = sweep(KITTEN, SamplingParams(), "top_p", [0.5, 0.8, 0.81, 1.0], ids=(0, 1))
    np.testing.assert_array_equal(found.n_kept, [1, 2, 3, 4])
    np.testing.assert_allclose(found.probs[1], [0.75, 0.25], atol=1e-6)
    np.testing.assert_allclose(found.entropy[1], -0.75 * np.log(0.75) - 0.25 * np.log(0.25), atol=1e-6)
    squares = np.array([0.36, 0.04, 0.01, 0.01]) / 0.42
    cooled = sweep(KITTEN, SamplingParams(greedy=True), "temperature", [0.5], ids=range(4))
    np.testing.assert_allclose(cooled.probs[0], squares, atol=1e-6)


def test_what_the_highest_logits_cannot_tell_is_not_a_number() -> None:
    trace = run(keep=6)
    found = sweep(at_step(trace, 0), SamplingParams(), "top_k", [1, 5, 7, 20], ids=(0,))
    np.testing.assert_array_equal(np.isnan(found.n_kept), [False, False, True, True])
    np.testing.assert_array_equal(np.isnan(found.probs[:, 0]), [False, False, True, True])
