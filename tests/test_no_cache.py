"""With and without a cache: logits of transformers' own uncached generate, and work counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from inference.cache_counts import dot_products, projected
from inference.errors import TraceError
from inference.no_cache import both_ways
from inference.walk import feed
from tests.tiny import N_NEW, PROMPT, Follow, build, greedy, loaded

FAMILIES = ["bloom", "falcon", "gemma2", "gpt2", "llama", "mistral", "mixtral", "qwen3_next"]
TIGHT = {"qwen3_next": 2e-3}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_pass_without_a_cache_gives_the_logits_of_generate_without_a_cache(name: str) -> None:
    trace = greedy(name)
    out = build(name).generate(
        torch.tensor([PROMPT]),
        max_new_tokens=N_NEW,
        do_sample=False,
        use_cache=False,
        logits_processor=[Follow([token.id for token in trace.tokens])],
        output_logits=True,
        return_dict_in_generate=True,
    )
    for step in (0, 5, N_NEW - 1):
        logits, _ = feed(loaded(name), trace.context_ids(step), None)
        np.testing.assert_allclose(logits, out.logits[step][0].numpy(), rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", FAMILIES)
def test_both_ways_agree_within_rounding_and_choose_the_same_tokens(name: str) -> None:
    trace = greedy(name)
    shares: list[float] = []
    parity = both_ways(loaded(name), trace, N_NEW, progress=shares.append)
    assert parity is not None
    assert parity.difference.max() < TIGHT.get(name, 2e-4)
    assert parity.difference[1:].max() > 0 or name == "gpt_bigcode"
    assert parity.cached_ids.tolist() == parity.uncached_ids.tolist() == [step.token_id for step in trace.steps]
    assert len(parity.cached_s) == len(parity.uncached_s) == N_NEW
    assert shares[-1] == 1.0


def test_a_position_fault_in_the_cached_way_is_far_above_the_tolerance() -> None:
    model, trace = loaded("llama"), greedy("llama")
    context, cache = trace.context_ids(5), loaded("llama").forward.new_cache()
    feed(model, context[1:-1], cache)  # the first position is missing, so that all others are one too early
    faulty, _ = feed(model, context[-1:], cache)
    right, _ = feed(model, context, None)
    assert np.abs(faulty - right).max() > 100 * 2e-3


def test_it_stops_between_passes_when_it_is_cancelled() -> None:
    asked: list[bool] = []

    def cancelled() -> bool:
        asked.append(True)
        return len(asked) > 3

    assert both_ways(loaded("llama"), greedy("llama"), N_NEW, cancelled=cancelled) is None
    assert len(asked) == 4


def test_another_model_than_the_runs_is_refused() -> None:
    with pytest.raises(TraceError, match="The run was made by llama, and gpt2 is loaded"):
        both_ways(loaded("gpt2"), greedy("llama"), 2)


def test_a_thousand_tokens_project_500500_positions_without_a_cache_and_1000_with_one() -> None:
    assert projected(1, 1000, cached=False).sum() == 500_500
    assert projected(1, 1000, cached=True).sum() == 1000
    assert dot_products(1, 1000, cached=True).sum() == 500_500


def test_a_prompt_of_three_and_two_new_tokens_by_hand() -> None:
    assert projected(3, 2, cached=True).tolist() == [3, 1]
    assert projected(3, 2, cached=False).tolist() == [3, 4]
    assert dot_products(3, 2, cached=True).tolist() == [6, 4]  # 1 + 2 + 3, then 4
    assert dot_products(3, 2, cached=False).tolist() == [6, 10]
