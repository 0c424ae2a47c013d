"""Each family for real: a tiny random model runs, its cache's tensors are counted, and the formula must equal them.

bfloat16 throughout, so that a state kept in float32 shows.
"""

from typing import Any

import pytest
import torch
import transformers
from transformers import DynamicCache, EncoderDecoderCache, StaticCache

from inference.kv_families import FAMILY_DEFAULTS, MEASURED
from inference.kv_memory import KVLayout
from tests.kv_tiny_models import BASE, ENCODER_DECODERS, FAMILIES

N_PROMPT, N_NEW, BATCH = 9, 5, 2
TOKENS = N_PROMPT + N_NEW


def build(model_class: str, config_class: str, options: dict[str, Any]) -> Any:
    """A tiny random bfloat16 model of that class."""
    torch.manual_seed(0)
    config = getattr(transformers, config_class)(vocab_size=97, **options)
    return getattr(transformers, model_class)(config).to(torch.bfloat16).eval()


def tensor_bytes(cache: Any) -> int:
    """Bytes of all tensors that the layers of a cache hold."""
    total = 0
    for layer in cache.layers:
        named = [getattr(layer, name, None) for name in ("keys", "values", "indexer_keys")]
        states = [*getattr(layer, "conv_states", {}).values(), *getattr(layer, "recurrent_states", {}).values()]
        total += sum(tensor.nbytes for tensor in [*named, *states] if tensor is not None)
    return total


@torch.no_grad()
def fill(model: Any, cache: Any) -> None:
    """Prefill, then decode one position at a time, until the cache has seen `TOKENS` positions."""
    ids = torch.randint(3, 90, (BATCH, TOKENS))
    model(input_ids=ids[:, :N_PROMPT], cache=cache, use_cache=True)
    for position in range(N_PROMPT, TOKENS):
        model(input_ids=ids[:, position : position + 1], cache=cache, use_cache=True)


def test_every_family_that_is_called_measured_is_measured_here() -> None:
    assert {*FAMILIES, *ENCODER_DECODERS} == MEASURED


@pytest.mark.parametrize("family", FAMILIES)
def test_the_formula_equals_the_tensors_of_a_real_cache(family: str) -> None:
    model = build(*FAMILIES[family])
    assert model.config.model_type == family
    cache = DynamicCache(config=model.config)
    fill(model, cache)
    for config in (model.config, model.config.to_dict()):
        layout = KVLayout.from_config(config)
        figures = layout.engine_bytes(TOKENS, BATCH, "bfloat16")
        assert figures["transformers dynamic"].bytes == tensor_bytes(cache)
        exact = not any(layer.window or layer.expanded for layer in layout.layers if layer.kind != "latent")
        assert (layout.bytes(TOKENS, BATCH, "bfloat16") == tensor_bytes(cache)) == exact
        assert not any("not checked" in str(note) for note in layout.assumptions)


@pytest.mark.parametrize("family", ENCODER_DECODERS)
def test_self_and_cross_attention_equal_the_tensors_of_a_real_cache(family: str) -> None:
    model = build(*ENCODER_DECODERS[family])
    encoder_ids, decoder_ids = torch.randint(3, 90, (BATCH, 11)), torch.randint(3, 90, (BATCH, TOKENS))
    with torch.no_grad():
        cache = model(input_ids=encoder_ids, decoder_input_ids=decoder_ids, use_cache=True).cache
    assert isinstance(cache, EncoderDecoderCache)
    layout = KVLayout.from_config(model.config)
    own, cross = tensor_bytes(cache.self_attention_cache), tensor_bytes(cache.cross_attention_cache)
    assert layout.bytes(TOKENS, BATCH, "bfloat16") == own
    assert layout.bytes(TOKENS, BATCH, "bfloat16", encoder_tokens=11) == own + cross
    assert cross == 11 * BATCH * layout.bytes_per_encoder_token("bfloat16")


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "deepseek_v3", "falcon", "qwen3_next"])
def test_a_static_cache_holds_its_capacity_or_the_window_at_once(family: str) -> None:
    model = build(*FAMILIES[family])
    cache = StaticCache(config=model.config, max_cache_len=40)
    fill(model, cache)
    figures = KVLayout.from_config(model.config).engine_bytes(TOKENS, BATCH, "bfloat16", capacity=40)
    assert figures["transformers static"].bytes == tensor_bytes(cache)


@pytest.mark.parametrize("window", [1, 2, 8, 13, 14, 15])
def test_a_window_of_w_keeps_w_minus_1_positions_and_a_window_of_1_keeps_all(window: int) -> None:
    model = build("MistralForCausalLM", "MistralConfig", {**BASE, "head_dim": 16, "sliding_window": window})
    cache = DynamicCache(config=model.config)
    fill(model, cache)
    kept = TOKENS if window == 1 else min(TOKENS, window - 1)
    assert cache.layers[0].keys.shape[-2] == kept
    figures = KVLayout.from_config(model.config).engine_bytes(TOKENS, BATCH, "bfloat16")
    assert figures["transformers dynamic"].bytes == tensor_bytes(cache)


def test_a_window_that_qwen_does_not_use_is_full_attention_in_formula_and_cache() -> None:
    options = {**BASE, "use_sliding_window": False, "sliding_window": 8, "max_window_layers": 1}
    model = build("Qwen2ForCausalLM", "Qwen2Config", options)
    cache = DynamicCache(config=model.config)
    fill(model, cache)
    for config in (model.config, {**model.config.to_dict(), **options, "layer_types": None}):
        assert KVLayout.from_config(config).bytes(TOKENS, BATCH, "bfloat16") == tensor_bytes(cache)


@pytest.mark.parametrize("family", FAMILY_DEFAULTS)
def test_what_a_config_leaves_out_is_filled_in_as_the_config_class_does(family: str) -> None:
    full = transformers.CONFIG_MAPPING[family]().to_dict()
    derived = ("layer_types", "per_layer_config", "_sliding_window_pattern", "no_rope_layers")
    bare = {k: v for k, v in full.items() if k not in FAMILY_DEFAULTS[family] and k not in derived}
    from_bare, from_full = KVLayout.from_config(bare), KVLayout.from_config(full)
    assert from_bare.layers == from_full.layers
    assert any("leaves out" in str(note) for note in from_bare.assumptions)
