"""A stored prefix reused: transformers' own greedy tokens, counts by hand, and a stored cache that stays as it is."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from inference import reuse as reuse_module
from inference.errors import RequestError
from inference.forward import cache_prefix, cache_sizes
from inference.reuse import Reuse, common_prefix, reuse_prefix
from inference.walk import feed
from tests.tiny import N_NEW, PROMPT, ask, build, greedy, loaded

SUFFIX = (9, 8, 7, 6, 5)


def second(name: str, suffix: tuple[int, ...] = SUFFIX, block: int = 4, n_new: int = 8) -> Reuse:
    fed = tuple(token.id for token in greedy(name).tokens[:-1])
    found = reuse_prefix(loaded(name), greedy(name), ask((*fed, *suffix), max_new_tokens=n_new), block, repeats=2)
    assert found is not None
    return found


@pytest.mark.parametrize("name", ["llama", "qwen3", "gpt2", "gpt_neox", "mixtral", "deepseek_v3", "bloom", "olmo2"])
def test_both_ways_give_transformers_own_greedy_tokens(name: str) -> None:
    found = second(name)
    prompt = [*(token.id for token in greedy(name).tokens[:-1]), *SUFFIX]
    expected = build(name).generate(torch.tensor([prompt]), max_new_tokens=8, do_sample=False)[0, len(prompt) :]
    assert [token.id for token in found.fresh_tokens] == expected.tolist()
    assert [token.id for token in found.reused_tokens] == expected.tolist()
    assert found.difference < 2e-4


def test_whole_blocks_of_the_common_beginning_are_reused() -> None:
    found = second("llama")
    fed = len(PROMPT) + N_NEW - 1  # 28 positions are stored
    assert (fed, found.n_prompt, found.n_common, found.n_reused) == (28, 33, 28, 28)
    assert second("llama", block=16).n_reused == 16
    assert found.copied_bytes == 28 * 3 * 2 * 2 * 8 * 4  # positions, layers, K and V, KV heads, head dim, bytes
    assert len(found.fresh_s) == len(found.reused_s) == 2


def test_a_request_that_is_wholly_stored_computes_its_last_block_again() -> None:
    assert second("llama", suffix=()).n_reused == 24  # floor((28 - 1) / 4) blocks


def test_requests_that_share_no_block_are_refused_in_words() -> None:
    with pytest.raises(RequestError, match="Nothing can be reused"):
        reuse_prefix(loaded("llama"), greedy("llama"), ask((1, 2, 3)), 4)


def test_layers_that_have_dropped_positions_cannot_be_reused() -> None:
    with pytest.raises(RequestError, match="layers of mistral have dropped positions"):
        second("mistral")


def test_a_prompt_that_the_server_refuses_or_that_does_not_fit_is_not_fed() -> None:
    def refuse(n: int) -> None:
        raise RequestError(f"{n} are too many")

    with pytest.raises(RequestError, match="13 are too many"):
        reuse_prefix(loaded("llama"), greedy("llama"), ask(), 4, check_prompt=refuse)
    with pytest.raises(RequestError, match="reads at most 64"):
        reuse_prefix(loaded("llama"), greedy("llama"), ask(tuple(range(60))), 4)


def test_the_stored_cache_is_copied_and_never_grows_or_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = []

    def watched(cache, fresh, n):
        if not stored:
            stored.append((cache, [layer.keys.clone() for layer in cache.layers]))
        return cache_prefix(cache, fresh, n)

    monkeypatch.setattr(reuse_module, "cache_prefix", watched)
    second("llama")
    cache, before = stored[0]
    assert cache_sizes(cache)[0].tolist() == [28, 28, 28]
    assert all(torch.equal(layer.keys, keys) for layer, keys in zip(cache.layers, before, strict=True))


def test_a_copy_shares_no_memory_with_what_was_stored() -> None:
    model = loaded("llama")
    stored = model.forward.new_cache()
    feed(model, np.array(PROMPT), stored)
    copied = cache_prefix(stored, model.forward.new_cache(), 5)
    assert copied is not None
    for one, other in zip(stored.layers, copied.layers, strict=True):
        assert one.keys.untyped_storage().data_ptr() != other.keys.untyped_storage().data_ptr()


def test_common_beginnings_by_hand() -> None:
    assert common_prefix(np.array([1, 2, 3]), np.array([1, 2, 4, 5])) == 2
    assert common_prefix(np.array([1, 2]), np.array([1, 2, 4])) == 2
    assert common_prefix(np.array([7]), np.array([8])) == 0


def test_it_stops_between_passes_when_it_is_cancelled() -> None:
    assert reuse_prefix(loaded("llama"), greedy("llama"), ask(), 4, cancelled=lambda: True) is None
