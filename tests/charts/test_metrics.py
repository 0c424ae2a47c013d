"""The figures of a step against sums worked out from the hand-made run."""

import math

import numpy as np
import pytest

from charts.metrics import metrics, running_metrics
from inference.errors import TraceError
from inference.sampling import SamplingParams
from tests.charts.runs import CACHE_BYTES, logits_of, run


def values(step: int) -> dict[str, tuple[str, str]]:
    trace = run(sampling=SamplingParams(temperature=2.0))
    return {metric.label: (metric.value, metric.note) for metric in metrics(trace, step, str)}


def softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores.astype(np.float64))
    return weights / weights.sum()


def test_token_probability_and_entropy_are_raw_with_the_settings_below() -> None:
    logits = logits_of(3)[1]
    raw, after = softmax(logits), softmax(logits / 2.0)
    shown = values(1)
    assert shown["Token"] == ("·mat", "id 7 · bytes 20 6D 61 74")
    rank = int((logits > logits[7]).sum()) + 1
    assert shown["Probability"] == (f"{raw[7]:.2%}", f"after settings {after[7]:.2%} · rank {rank}")
    entropies = [-(p * np.log(p)).sum() for p in (raw, after)]
    assert shown["Entropy"] == (f"{entropies[0]:.2f} nats", f"after settings {entropies[1]:.2f}")


def test_the_first_bytes_of_a_long_token_stand_for_it() -> None:
    shown = metrics(run(chosen=(16,)), 0, str)[0]
    assert (shown.value, shown.note) == ("·a·very·long·token·indeed", "id 16 · bytes 20 61 20 76…")


def test_time_and_speed_leave_the_recording_out() -> None:
    assert values(0)["Step time"] == ("21.0 ms", "of which choosing 1.0 ms")
    assert values(0)["Tokens per second"] == (f"{4 / 0.021:.1f}", "prefill of 4 tokens")
    assert values(2)["Tokens per second"] == (f"{2 / (0.022 + 0.023):.1f}", f"this step {1 / 0.023:.1f}")


def test_the_cache_grows_by_the_prompt_and_then_by_a_position() -> None:
    assert values(0)["KV cache"] == ("1.00 KiB", "+1.00 KiB · 4 positions")
    assert 4 * 2 * CACHE_BYTES == 1024
    assert values(2)["KV cache"] == ("1.50 KiB", "+256 B · 6 positions")


def test_the_log_probability_is_the_sum_of_the_steps_and_perplexity_its_geometric_mean() -> None:
    logits = logits_of(3)
    each = [math.log(softmax(logits[i])[token]) for i, token in enumerate((3, 7, 19))]
    total, perplexity = running_metrics(run(), 2, str)
    assert total.value == f"{sum(each):.2f} nats"
    assert total.note == f"sum over 3 tokens; this one {each[2]:+.2f}"
    assert perplexity.value == f"{math.exp(-sum(each) / 3):.2f}"


def test_every_figure_but_the_token_has_a_trend() -> None:
    shown = (*metrics(run(), 1, str), *running_metrics(run(), 1, str))
    assert [metric.label for metric in shown if metric.trend is None] == ["Token"]
    assert all(metric.help.endswith(".") for metric in shown)


def test_a_step_that_the_run_does_not_have_is_refused() -> None:
    with pytest.raises(TraceError, match="There is no step 3; the run has 3"):
        metrics(run(), 3, str)
