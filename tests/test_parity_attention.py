"""Attention weights, visible positions, router choices and hidden states against models that were never wrapped."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from inference import probe, recorder
from inference.attention import widen
from inference.errors import ModelError, TraceError
from inference.models import wrap
from inference.trace import Trace
from tests.scripted import byte_tokenizer
from tests.tiny import (
    CHUNKS,
    NAMES,
    PROMPT,
    SLIDING,
    WINDOW,
    attention_layers,
    build,
    fed_ids,
    followed,
    greedy,
    loaded,
    reference,
    small_config,
)

# Families whose weights are not computed from queries and keys: what is kept instead, and why.
NOT_TAKEN = "it does not take an attention function from outside"
NOT_RECORDED = {
    "bloom": ("eager", NOT_TAKEN),
    "deepseek_v32": ("eager", "it masks keys for attention functions of its own choice only"),
    "falcon": ("eager", NOT_TAKEN),
    # transformers adds the position bias once with SDPA and twice in eager mode
    "falcon_alibi": ("none", "its eager attention gives other logits than its own default"),
    "falcon_grouped": ("eager", NOT_TAKEN),
    "gpt_neo": ("eager", NOT_TAKEN),
    # its sinks act on the output after the weights
    "granite_swa": ("eager", "weights computed from its queries and keys differ from its own"),
    "mpt": ("eager", NOT_TAKEN),
}
SHOWN = [name for name in NAMES if name != "falcon_alibi"]
SINKS = {"gpt_oss"}
STREAMS = {"gemma3n_text"}  # its layers hand on four streams at once, none of which is the hidden state
# Several keys tie at the end of its choice, and another shape of the pass settles ties differently.
TIES = {"deepseek_v32"}
ROUTED = {
    "deepseek_v2": [1, 2],  # the first layer is dense
    "deepseek_v3": [1, 2],
    "gpt_oss": [0, 1, 2],
    "jamba": [1],  # every second layer
    "mixtral": [0, 1, 2],
    "qwen3_moe": [0, 1, 2],
    "qwen3_next": [0, 1, 2],
}
# One float32 rounding of a score of about 30 moves a weight by 1e-5 of itself, and the layers below add their own.
# A wrong mask, scale, cap or sink moves it by 1e-2 and more.
ATOL = 2e-4


def expected_weights(name: str, trace: Trace) -> list[np.ndarray]:
    """[H, T, T] of every attention layer, zeros where a query sees nothing."""
    if name not in TIES:
        return list(reference(name, fed_ids(trace)).attention)
    # eager generate, step by step, instead of one uncached pass
    n_tokens, steps = len(fed_ids(trace)), followed(trace, "eager").attentions
    layers = []
    for layer in range(trace.model.n_layers):
        weights = np.zeros((trace.model.n_heads, n_tokens, n_tokens), dtype=np.float32)
        for index, given in enumerate(steps):
            rows = given[layer][0].numpy()
            first = trace.first_position(index)
            weights[:, first : first + rows.shape[1], : rows.shape[2]] = rows
        layers.append(weights)
    return layers


def rows_of(trace: Trace, step: int) -> slice:
    first = trace.first_position(step)
    return slice(first, first + len(trace.steps[step].fed_ids))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_each_family_is_recorded_or_says_why_not(name: str, dtype: torch.dtype) -> None:
    facts = loaded(name, dtype).facts
    assert (facts.attention, facts.attention_note) == NOT_RECORDED.get(name, ("recorded", ""))


CHUNKED = [(name, chunk) for name, chunk in CHUNKS if name in SHOWN and not (chunk and name in TIES)]


@pytest.mark.parametrize(("name", "prefill_chunk"), CHUNKED)
def test_weights_of_every_step_and_layer_are_the_eager_ones_on_key_positions(
    name: str, prefill_chunk: int | None
) -> None:
    trace = greedy(name, prefill_chunk)
    layers = attention_layers(name)
    for layer, expected in zip(layers, expected_weights(name, trace), strict=True):
        for step in range(len(trace.steps)):
            rows = rows_of(trace, step)
            found = trace.attention(step, layer)
            assert found.shape == (trace.model.n_heads, rows.stop - rows.start, rows.stop)
            np.testing.assert_allclose(found, expected[:, rows, : rows.stop], rtol=0, atol=ATOL)
            assert (found[expected[:, rows, : rows.stop] == 0] == 0).all()


@pytest.mark.parametrize(("name", "prefill_chunk"), CHUNKED)
def test_visible_marks_exactly_the_cells_that_eager_attention_leaves_above_zero(
    name: str, prefill_chunk: int | None
) -> None:
    trace = greedy(name, prefill_chunk)
    for layer, expected in zip(attention_layers(name), expected_weights(name, trace), strict=True):
        for step in range(len(trace.steps)):
            rows = rows_of(trace, step)
            seen = (expected[:, rows, : rows.stop] > 0).any(axis=0)
            assert np.array_equal(trace.visible(step, layer), seen)


@pytest.mark.parametrize("name", SHOWN)
def test_rows_sum_to_one_or_to_less_with_sinks(name: str) -> None:
    trace = greedy(name)
    sums = np.concatenate(
        [
            trace.attention(step, layer).sum(axis=-1).ravel()
            for step in range(len(trace.steps))
            for layer in attention_layers(name)
        ]
    )
    if name in SINKS:
        assert sums.max() <= 1 + 1e-5
        assert (sums < 0.99).any()
    else:
        np.testing.assert_allclose(sums, 1, atol=1e-5)


@pytest.mark.parametrize("name", ["gemma2", "gpt_oss", "llama", "mistral", "qwen3"])
def test_bfloat16_weights_are_near_the_eager_ones(name: str) -> None:
    trace = greedy(name, dtype=torch.bfloat16)
    expected = reference(name, fed_ids(trace), torch.bfloat16).attention
    differences = [
        np.abs(trace.attention(step, layer) - expected[layer][:, rows_of(trace, step), : rows_of(trace, step).stop])
        for step in range(len(trace.steps))
        for layer in range(trace.model.n_layers)
    ]
    # eager weights are rounded to 8 bits, and so is everything in the layers below; unrelated weights differ by 0.1
    assert np.mean(np.concatenate([d.ravel() for d in differences])) < 0.005
    assert max(d.max() for d in differences[:1]) < 0.05


def test_a_model_whose_weights_cannot_be_shown_says_so_when_they_are_asked_for() -> None:
    trace = greedy("falcon_alibi")
    with pytest.raises(TraceError, match="gives other logits than its own default"):
        trace.attention(0, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("name", "left_out"),
    [
        ("gemma2", {"softcap": None}),
        ("gpt_oss", {"sinks": None}),
        ("granite", {"scale": 0.4}),
        ("llama", {"scale": 0.3}),
    ],
)
def test_a_term_that_the_record_leaves_out_is_noticed_at_loading(
    name: str, left_out: dict, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = recorder._spec

    def forgetful(*args):
        return replace(spec(*args), **left_out)

    monkeypatch.setattr(recorder, "_spec", forgetful)
    facts = wrap(build(name, dtype=dtype), byte_tokenizer(), name).facts
    assert facts.attention == "eager"
    assert facts.attention_note == "weights computed from its queries and keys differ from its own"


def test_a_mask_with_gaps_is_not_recorded_as_a_span() -> None:
    kept = recorder.Recorder(position=2)
    query, key = torch.zeros(1, 2, 1, 4), torch.zeros(1, 2, 3, 4)
    kept.keep(torch.nn.Identity(), query, key, torch.tensor([[[[True, False, True]]]]), {})
    kept.settle(kept.tensors())
    assert kept.inexact == "its mask has gaps"
    assert not kept.layer_calls


def test_keys_that_are_no_positions_are_not_recorded() -> None:
    kept = recorder.Recorder(position=2)
    kept.keep(torch.nn.Identity(), torch.zeros(1, 2, 1, 4), torch.zeros(1, 2, 4, 4), None, {})
    kept.settle(kept.tensors())
    assert kept.inexact == "its keys are not positions"
    assert not kept.layer_calls


@pytest.mark.parametrize("family", ["openai-gpt", "recurrent_gemma", "rwkv"])
def test_a_model_that_remembers_outside_the_cache_is_refused(family: str) -> None:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(small_config(family)).eval()
    with torch.no_grad():
        for values in model.parameters():
            values.mul_(4)
    with pytest.raises(ModelError, match=f"{family} does not keep what it has read in a KV cache"):
        probe.probe(model, "float32")


@pytest.mark.parametrize(("name", "prefill_chunk"), [case for case in CHUNKS if case[0] in ROUTED])
def test_router_choices_are_those_of_the_router_modules(name: str, prefill_chunk: int | None) -> None:
    trace = greedy(name, prefill_chunk)
    seen: list[tuple[torch.Tensor, ...]] = []
    model = build(name)
    routers = [module for module in model.modules() if type(module).__name__.lower().endswith("topkrouter")]
    for module in routers:
        module.register_forward_hook(lambda module, args, output: seen.append(output))
    with torch.no_grad():
        model(torch.tensor([fed_ids(trace)]), use_cache=False)
    assert [r.layer for r in trace.steps[0].router] == ROUTED[name]
    for step in trace.steps:
        for (logits, weights, experts), record in zip(seen, step.router, strict=True):
            rows = rows_of(trace, step.index)
            np.testing.assert_allclose(record.logits, logits[rows].numpy(), rtol=0, atol=1e-3)
            by_expert, expected = np.argsort(record.experts), np.argsort(experts[rows].numpy())
            assert np.array_equal(np.sort(record.experts), np.sort(experts[rows].numpy()))
            np.testing.assert_allclose(
                np.take_along_axis(record.weights, by_expert, 1),
                np.take_along_axis(weights[rows].numpy(), expected, 1),
                atol=1e-3,
            )


@pytest.mark.parametrize(("name", "prefill_chunk"), [case for case in CHUNKS if case[0] not in TIES | STREAMS])
def test_hidden_states_are_the_layers_outputs_and_the_last_one_is_before_the_final_norm(
    name: str, prefill_chunk: int | None
) -> None:
    trace = greedy(name, prefill_chunk)
    expected = reference(name, fed_ids(trace))
    for step in trace.steps:
        last = rows_of(trace, step.index).stop - 1
        assert step.hidden.shape == (trace.model.n_layers, trace.model.hidden_size)
        np.testing.assert_allclose(step.hidden, np.stack([h[last] for h in expected.hidden]), rtol=0, atol=1e-2)
        # transformers' output_hidden_states are the same, but for its last, which is after the final norm
        np.testing.assert_allclose(step.hidden[:-1], np.stack([h[last] for h in expected.given]), rtol=0, atol=1e-2)
        assert not np.allclose(step.hidden[-1], expected.normed[last], atol=0.1)


@pytest.mark.parametrize("name", sorted(STREAMS))
def test_a_model_whose_layers_hand_on_several_streams_has_no_hidden_states(name: str) -> None:
    assert all(step.hidden is None for step in greedy(name).steps)


def test_bfloat16_hidden_states_keep_the_bits_of_the_layers_outputs() -> None:
    trace = greedy("llama", dtype=torch.bfloat16)
    found: list[torch.Tensor] = []
    model = build("llama", dtype=torch.bfloat16)
    for layer in model.model.layers:
        layer.register_forward_hook(lambda module, args, output: found.append(output[0, -1]))
    with torch.no_grad():
        model(torch.tensor([PROMPT]))
    expected = torch.stack(found).float().numpy()
    assert np.array_equal(widen(trace.steps[0].hidden, "bfloat16"), expected)


def test_a_model_whose_layers_differ_in_head_dim_loads_as_it_comes() -> None:
    model = build("gemma4_text")
    model.config.allow_global_per_layer_attribute_access = False  # as in a checkpoint
    assert wrap(model, byte_tokenizer(), "gemma4_text").facts.attention == "recorded"


@pytest.mark.parametrize("name", ["cohere2", "gemma2", "gemma3_text", "gemma3n_text", "gpt_oss", "mistral", "phi3"])
def test_the_window_of_a_layer_is_what_the_config_gives_it(name: str) -> None:
    config = build(name).config
    kinds = getattr(config, "layer_types", None) or [SLIDING] * config.num_hidden_layers
    assert [spec.window for spec in loaded(name).layers] == [WINDOW if kind == SLIDING else None for kind in kinds]


def test_the_window_is_past_in_these_tests() -> None:
    trace = greedy("mistral")
    assert trace.visible(0, 0)[-1].sum() == WINDOW
    assert trace.visible(len(trace.steps) - 1, 0).sum() == WINDOW
