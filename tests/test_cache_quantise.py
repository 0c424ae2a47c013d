"""A run with a quantised cache, against a loop of transformers' own model and cache with the gguf package's numbers."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from inference.cache_quantise import Quantised, run_quantised
from inference.engine import record
from inference.errors import CalculatorError
from inference.models import LoadedModel, wrap
from inference.trace import Trace
from tests.scripted import byte_tokenizer
from tests.tiny import COMMON, N_NEW, PROMPT, ask, greedy, loaded

NAMES = ("q8_0", "q4_0")


def wide() -> LlamaForCausalLM:
    """A tiny llama whose heads have 32 dimensions, so that a block fits."""
    config = LlamaConfig(
        **COMMON,
        hidden_size=128,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return LlamaForCausalLM(config).eval()


@cache
def model() -> LoadedModel:
    return wrap(wide(), byte_tokenizer(), "wide")


@cache
def trace() -> Trace:
    return record(model(), ask())


@cache
def found() -> Quantised:
    result = run_quantised(model(), trace(), NAMES, N_NEW)
    assert result is not None
    return result


def by_hand(name: str) -> list[np.ndarray]:
    """Logits [V] of every step of a never wrapped model whose cache is rounded after each pass."""
    kind, plain, held, logits = GGMLQuantizationType[name.upper()], wide(), DynamicCache(), []
    for step in range(N_NEW):
        fed = trace().context_ids(step)[trace().first_position(step) :]
        with torch.no_grad():
            logits.append(plain(torch.tensor(fed)[None], cache=held).logits[0, -1].numpy())
        for layer in held.layers:
            for part in ("keys", "values"):
                whole = getattr(layer, part).clone()
                newest = whole[0, :, -len(fed) :].numpy()
                whole[0, :, -len(fed) :] = torch.tensor(dequantize(quantize(newest, kind), kind))
                setattr(layer, part, whole)
    return logits


@pytest.mark.parametrize("name", NAMES)
def test_logits_differ_by_what_a_loop_with_transformers_own_cache_differs(name: str) -> None:
    run = next(one for one in found().formats if one.name == name)
    exact = [step.logits.values for step in trace().steps]
    for step, logits in enumerate(by_hand(name)):
        assert run.difference[step] == pytest.approx(np.abs(exact[step] - logits).max(), abs=1e-4)
        p, q = (torch.tensor(one).double().log_softmax(0) for one in (exact[step], logits))
        expected = torch.nn.functional.kl_div(q, p, log_target=True, reduction="sum").item()
        assert run.divergence[step] == pytest.approx(expected, abs=1e-4)
        assert run.ids[step] == logits.argmax()


def test_the_prefill_is_exact_and_four_bits_are_worse_than_eight() -> None:
    eight, four = found().formats
    assert eight.difference[0] < 1e-5
    assert four.difference[0] < 1e-5
    assert 0 < eight.difference[1:].max() < four.difference[1:].max()
    assert found().exact_ids.tolist() == [step.token_id for step in trace().steps]


def test_errors_and_peaks_are_those_of_the_keys_of_the_recorded_run() -> None:
    for layer in (0, 1):
        numbers = found().layers[layer]
        keys = trace().keys(N_NEW - 1, layer)
        np.testing.assert_allclose(numbers.key_peaks, np.abs(keys).max(axis=1), rtol=1e-5)
        for at, name in enumerate(NAMES):
            kind = GGMLQuantizationType[name.upper()]
            stored = dequantize(quantize(keys, kind), kind)
            expected = [np.linalg.norm(stored[g] - keys[g]) / np.linalg.norm(keys[g]) for g in range(2)]
            np.testing.assert_allclose(numbers.key_errors[at], expected, rtol=1e-3)


def test_bytes_are_those_of_the_blocks() -> None:
    positions = len(PROMPT) + N_NEW - 1
    numbers = 2 * 2 * 2 * 32 * positions  # layers, keys and values, KV heads, head dim
    assert found().exact_nbytes == 4 * numbers
    assert [run.nbytes for run in found().formats] == [numbers // 32 * 34, numbers // 32 * 18]


def test_a_head_size_that_blocks_do_not_divide_is_refused_in_words() -> None:
    with pytest.raises(CalculatorError, match="do not divide the head size 8"):
        run_quantised(loaded("llama"), greedy("llama"), ["q8_0"], 4)


@pytest.mark.parametrize("name", ["gemma2", "mistral", "qwen3_next", "deepseek_v3", "bloom"])
def test_int8_rows_work_for_any_head_size_and_kind_of_layer(name: str) -> None:
    result = run_quantised(loaded(name), greedy(name), ["int8"], N_NEW)
    assert result is not None
    assert 0 < np.median(result.formats[0].difference[1:]) < 0.5  # of logits that spread by 2.3 and more
    assert all(0 < layer.key_errors.max() < 0.02 for layer in result.layers)


def test_it_stops_between_passes_when_it_is_cancelled() -> None:
    assert run_quantised(model(), trace(), NAMES, 4, cancelled=lambda: True) is None
