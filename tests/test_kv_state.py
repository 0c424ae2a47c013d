"""The KV state of every step against each architecture's own rule, and runs that share a model against runs alone."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedConfig

from inference.engine import generate, record
from inference.request import GenerationRequest
from inference.sampling import SamplingParams
from inference.trace import Trace
from tests.tiny import CHUNKS, FULL, LINEAR, N_NEW, NAMES, PROMPT, WHOLE, WINDOW, ask, build, greedy, loaded

MLA_FAMILIES = ("deepseek_v2", "deepseek_v3", "deepseek_v32")
MANY_HEADS = ("bloom", "falcon_alibi", "gpt2", "gpt_neo", "gpt_neox", "gptj", "mpt", "opt")
SLIDING_IN_CONFIG = ("sliding_attention", "chunked_attention")


def elements_a_position(name: str, config: PreTrainedConfig, layer: int) -> int:
    """Numbers that a layer keeps of one position."""
    if name in MLA_FAMILIES:  # one latent and one rotated key for all heads; V3.2 adds the key of its indexer
        return config.kv_lora_rank + config.qk_rope_head_dim + getattr(config, "index_head_dim", 0)
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    if name == "gemma4_text":  # its full layers have wider heads
        head_dim = config.per_layer_config[layer].head_dim
        assert head_dim == (16 if config.layer_types[layer] == FULL else 12)
    if name in MANY_HEADS or name == "falcon_grouped":  # the latter repeats its two KV heads before it caches them
        kv_heads = heads
    elif name in ("gpt_bigcode", "falcon"):  # one KV head for all
        kv_heads = 1
    else:
        kv_heads = config.num_key_value_heads
    return 2 * kv_heads * head_dim


def windows(name: str, config: PreTrainedConfig) -> list[int | None]:
    """The window of every layer; `None` for all positions, 0 for a layer without keys of its own."""
    if name in ("mistral", "phi3"):  # a window and no layer types: it holds for all layers
        return [WINDOW] * config.num_hidden_layers
    # granite, GPT-Neo and the like have no kinds of layer in the cache; GPT-Neo's local layers keep every key
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    found: list[int | None] = [
        0 if kind in (LINEAR, "conv") else WINDOW if kind in SLIDING_IN_CONFIG else None for kind in kinds
    ]
    shared = getattr(config, "num_kv_shared_layers", 0)  # these read the cache of an earlier layer
    return found[: len(found) - shared] + [0] * shared


def constant_bytes(name: str, config: PreTrainedConfig, layer: int, element_bytes: int) -> int:
    """Bytes of a state that does not grow."""
    if name == "lfm2" and config.layer_types[layer] == "conv":
        return config.conv_L_cache * config.hidden_size * element_bytes
    if name in ("bamba", "jamba") and config.layer_types[layer] == LINEAR:
        inner, state = config.mamba_expand * config.hidden_size, config.mamba_d_state
        channels = inner + (2 * config.mamba_n_groups * state if name == "bamba" else 0)
        return (channels * config.mamba_d_conv + inner * state) * element_bytes
    if name == "qwen3_next" and config.layer_types[layer] == LINEAR:
        keys = config.linear_num_key_heads * config.linear_key_head_dim
        values = config.linear_num_value_heads * config.linear_value_head_dim
        convolution = (2 * keys + values) * config.linear_conv_kernel_dim * element_bytes
        return convolution + values * config.linear_key_head_dim * 4  # the recurrent state is float32 in any model
    return 0


def check_states(name: str, trace: Trace, element_bytes: int) -> None:
    config = build(name).config
    held = windows(name, config)
    for step, (positions, nbytes) in enumerate(zip(trace.kv.positions, trace.kv.nbytes, strict=True)):
        # the token just chosen is not in the cache; transformers keeps W - 1 positions of a window of W between passes
        fed = trace.n_prompt + step
        expected = [fed if window is None else min(fed, max(window - 1, 0)) for window in held]
        assert positions.tolist() == expected
        assert nbytes.tolist() == [
            n * elements_a_position(name, config, layer) * element_bytes
            + constant_bytes(name, config, layer, element_bytes)
            for layer, n in enumerate(expected)
        ]


@pytest.mark.parametrize(("name", "prefill_chunk"), CHUNKS)
def test_positions_and_bytes_follow_the_architectures_rule(name: str, prefill_chunk: int | None) -> None:
    trace = greedy(name, prefill_chunk)
    assert len(trace.steps) == N_NEW
    check_states(name, trace, element_bytes=4)


@pytest.mark.parametrize("name", ["deepseek_v3", "gemma2", "llama", "qwen3_next"])
def test_a_bfloat16_model_holds_half_the_bytes_but_for_the_recurrent_state(name: str) -> None:
    check_states(name, greedy(name, dtype=torch.bfloat16), element_bytes=2)


@pytest.mark.parametrize("name", NAMES)
def test_what_was_added_less_what_was_dropped_is_what_is_held(name: str) -> None:
    kv, held = greedy(name).kv, windows(name, build(name).config)
    assert np.array_equal((kv.added - kv.dropped).cumsum(axis=0), kv.positions)
    for layer, window in enumerate(held):
        if window == 0:
            assert not kv.added[:, layer].any()
        else:
            assert kv.added[:, layer].tolist() == [len(PROMPT)] + [1] * (N_NEW - 1)
        if window:
            assert kv.dropped[:, layer].tolist() == [len(PROMPT) - (window - 1)] + [1] * (N_NEW - 1)
        else:
            assert not kv.dropped[:, layer].any()


def other(name: str) -> GenerationRequest:
    """A request that differs in all that a shared state could mix up."""
    sampling = SamplingParams(temperature=1.2, top_p=0.9, seed=3)
    chunk = None if name in WHOLE else 4
    return ask(PROMPT[::-1][:10], max_new_tokens=12, sampling=sampling, prefill_chunk=chunk)


def contents(trace: Trace) -> list[Any]:
    """Everything a trace holds but its times."""
    found: list[Any] = [trace.finish, [t.id for t in trace.tokens]]
    for step in trace.steps:
        found += [step.decision, step.text, step.logits.values, step.hidden, *(step.weights or ())]
        found += [step.kv.positions, step.kv.nbytes, step.kv.added, step.kv.dropped]
        for router in step.router:
            found += [router.layer, router.logits, router.experts, router.weights]
        if step.attention is not None:
            found += [*step.attention.queries, *step.attention.keys, *step.attention.visible]
    return found


def assert_same(first: Trace, second: Trace) -> None:
    pairs = list(zip(contents(first), contents(second), strict=True))
    assert all(np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b for a, b in pairs)


@pytest.mark.parametrize("name", NAMES)
def test_two_runs_advanced_in_turn_are_what_they_are_alone(name: str) -> None:
    model = loaded(name)
    alone = record(model, other(name))
    first, second = generate(model, ask()), generate(model, other(name))
    for _ in range(N_NEW):
        next(first)
        next(second, None)
    assert (len(first.steps), len(second.steps)) == (N_NEW, 12)
    assert next(first, None) is None
    assert_same(first.trace(), greedy(name))
    assert_same(second.trace(), alone)


@pytest.mark.parametrize("name", ["bloom", "gemma2", "gpt_oss", "llama", "qwen3_next"])
def test_two_threads_on_one_model_make_the_traces_that_they_make_alone(name: str) -> None:
    model, requests, found = loaded(name), [ask(), other(name)], {}
    alone = [record(model, request) for request in requests]

    def work(index: int) -> None:
        found[index] = [record(model, requests[index]) for _ in range(3)]

    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, expected in enumerate(alone):
        assert len(found[index]) == 3
        for trace in found[index]:
            assert_same(trace, expected)
