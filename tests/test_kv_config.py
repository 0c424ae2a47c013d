"""Configs of real classes and config.json spellings of the Hub, against figures written out by hand."""

import json
from pathlib import Path
from typing import Any

import pytest
import transformers

from inference.errors import CalculatorError
from inference.kv_memory import KVLayout

# Config class, its options, tokens, and the bytes in 16 bits written out.
BY_HAND: list[tuple[str, dict[str, Any], int, int]] = [
    ("LlamaConfig", {}, 8192, 2 * 32 * 8192 * 32 * 128 * 2),
    ("LlamaConfig", {"num_key_value_heads": 8}, 8192, 2**30),
    ("MistralConfig", {}, 8192, 2 * 32 * 4096 * 8 * 128 * 2),
    ("MistralConfig", {"sliding_window": None}, 8192, 2 * 32 * 8192 * 8 * 128 * 2),
    ("Gemma2Config", {}, 8192, 13 * (8192 + 4096) * 2 * 4 * 256 * 2),
    ("Gemma3TextConfig", {}, 8192, (4 * 8192 + 22 * 4096) * 2 * 4 * 256 * 2),
    ("Gemma3Config", {}, 8192, (4 * 8192 + 22 * 4096) * 2 * 4 * 256 * 2),
    ("Gemma3nTextConfig", {}, 8192, (4 * 8192 + 16 * 512) * 2 * 2 * 256 * 2),
    ("Gemma4TextConfig", {}, 8192, 5 * 8192 * 2 * 4 * 512 * 2 + 25 * 512 * 2 * 4 * 256 * 2),
    ("GptOssConfig", {}, 8192, 18 * (8192 + 128) * 2 * 8 * 64 * 2),
    ("DeepseekV3Config", {}, 8192, 61 * 8192 * (512 + 64) * 2),
    ("DeepseekV32Config", {}, 8192, 61 * 8192 * (512 + 64 + 128) * 2),
    ("Qwen3NextConfig", {}, 8192, 12 * 8192 * 2 * 2 * 256 * 2 + 36 * (8192 * 4 * 2 + 32 * 128 * 128 * 4)),
    ("JambaConfig", {}, 8192, 4 * 8192 * 2 * 8 * 128 * 2 + 28 * (8192 * 4 * 2 + 8192 * 16 * 4)),
    ("Mamba2Config", {}, 8192, 64 * ((8192 + 2 * 8 * 128) * 4 * 2 + 8192 * 128 * 4)),
    ("T5Config", {}, 512, 2 * 6 * 8 * 64 * 512 * 2),
    ("GPT2Config", {}, 1024, 2 * 12 * 1024 * 768 * 2),
    ("GPTNeoXConfig", {}, 2048, 2 * 44 * 2048 * 6144 * 2),
    ("OPTConfig", {}, 2048, 2 * 12 * 2048 * 768 * 2),
    ("BloomConfig", {"hidden_size": 14336, "n_layer": 70, "n_head": 112}, 2048, 2 * 70 * 2048 * 14336 * 2),
    ("FalconConfig", {}, 2048, 2 * 32 * 2048 * 1 * 64 * 2),
    ("FalconConfig", {"multi_query": False}, 2048, 2 * 32 * 2048 * 71 * 64 * 2),
    ("Qwen3Config", {"hidden_size": 1024, "num_attention_heads": 16}, 1000, 2 * 32 * 1000 * 32 * 128 * 2),
    ("Llama4TextConfig", {}, 16384, (12 * 16384 + 36 * 8192) * 2 * 8 * 128 * 2),
    ("WhisperConfig", {}, 448, 2 * 4 * 448 * 384 * 2),
]
FALCON_40B = {
    "hidden_size": 8192,
    "num_hidden_layers": 60,
    "num_attention_heads": 128,
    "num_kv_heads": 8,
    "new_decoder_architecture": True,
}


@pytest.mark.parametrize(("config_class", "options", "tokens", "expected"), BY_HAND)
def test_a_config_object_and_its_dict_give_the_figure_written_out_by_hand(
    config_class: str, options: dict[str, Any], tokens: int, expected: int
) -> None:
    config = getattr(transformers, config_class)(**options)
    assert KVLayout.from_config(config).bytes(tokens) == expected
    as_json = json.loads(json.dumps(config.to_dict(), default=str))
    assert KVLayout.from_config(as_json).bytes(tokens) == expected


def test_cross_attention_adds_its_bytes_for_each_encoder_token() -> None:
    layout = KVLayout.from_config(transformers.T5Config())
    own = 2 * 6 * 8 * 64 * 512 * 2
    assert layout.bytes(512, encoder_tokens=512) == own + 2 * 6 * 512 * 512 * 2
    assert any("encoder_tokens" in str(note) for note in layout.assumptions)


def test_falcons_new_architecture_is_counted_by_its_kv_heads_and_held_16_times_over() -> None:
    layout = KVLayout.from_config(transformers.FalconConfig(**FALCON_40B))
    assert layout.bytes(2048) == 2 * 60 * 2048 * 8 * 64 * 2
    figures = layout.engine_bytes(2048)
    assert figures["transformers dynamic"].bytes == 16 * layout.bytes(2048)
    assert figures["llama.cpp"].bytes == figures["vLLM"].bytes == layout.bytes(2048)


# Spellings of config.json files, older and odd ones: the dict, tokens, the bytes in 16 bits.
SPELLINGS: dict[str, tuple[dict[str, Any], int, int]] = {
    "gemma 2 without layer types": (
        {
            "model_type": "gemma2",
            "hidden_size": 2304,
            "num_hidden_layers": 26,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "sliding_window": 4096,
        },
        8192,
        654311424,
    ),
    "gemma 3 4b, most of it left out": (
        {
            "model_type": "gemma3",
            "text_config": {
                "model_type": "gemma3_text",
                "hidden_size": 2560,
                "num_hidden_layers": 34,
                "sliding_window": 1024,
            },
        },
        8192,
        (5 * 8192 + 29 * 1024) * 2 * 4 * 256 * 2,
    ),
    "qwen 2.5 with a window it does not use": (
        {
            "model_type": "qwen2",
            "hidden_size": 896,
            "num_hidden_layers": 24,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
            "sliding_window": 32768,
            "use_sliding_window": False,
            "max_window_layers": 21,
        },
        131072,
        131072 * 12288,
    ),
    "qwen 2.5 with the window on": (
        {
            "model_type": "qwen2",
            "hidden_size": 896,
            "num_hidden_layers": 24,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
            "sliding_window": 1000,
            "use_sliding_window": True,
            "max_window_layers": 21,
        },
        2000,
        (21 * 2000 + 3 * 1000) * 512,
    ),
    "exaone 4's pattern in letters": (
        {
            "model_type": "exaone4",
            "num_hidden_layers": 8,
            "num_attention_heads": 4,
            "head_dim": 64,
            "sliding_window": 100,
            "sliding_window_pattern": "LLLG",
        },
        1000,
        (2 * 1000 + 6 * 100) * 2 * 4 * 64 * 2,
    ),
    "falcon's first names": (
        {"model_type": "RefinedWebModel", "hidden_size": 4544, "n_layer": 32, "n_head": 71, "multi_query": True},
        2048,
        16777216,
    ),
    "starcoder": (
        {"model_type": "gpt_bigcode", "n_embd": 6144, "n_layer": 40, "n_head": 48, "multi_query": True},
        8192,
        2 * 40 * 8192 * 128 * 2,
    ),
    "dbrx": (
        {"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "attn_config": {"kv_n_heads": 8}},
        1000,
        2 * 40 * 1000 * 8 * 128 * 2,
    ),
    "keys wider than values": (
        {
            "model_type": "custom",
            "num_hidden_layers": 48,
            "num_attention_heads": 64,
            "num_key_value_heads": 4,
            "head_dim": 192,
            "v_head_dim": 128,
        },
        1000,
        48 * 1000 * 4 * (192 + 128) * 2,
    ),
    "chatglm": (
        {
            "model_type": "chatglm",
            "hidden_size": 4096,
            "num_layers": 28,
            "num_attention_heads": 32,
            "kv_channels": 128,
            "multi_query_attention": True,
            "multi_query_group_num": 2,
        },
        1000,
        2 * 28 * 1000 * 2 * 128 * 2,
    ),
    "llama's own params.json": (
        {"dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 128256},
        8192,
        2**30,
    ),
    "jamba's period": (
        {
            "model_type": "jamba",
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "attn_layer_period": 8,
            "attn_layer_offset": 4,
            "mamba_d_state": 16,
            "mamba_d_conv": 4,
            "mamba_expand": 2,
        },
        8192,
        150732800,
    ),
    "nemotron-h's pattern in letters": (
        {
            "model_type": "nemotron_h",
            "hidden_size": 4096,
            "num_hidden_layers": 5,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "hybrid_override_pattern": "M-M*E",
            "mamba_num_heads": 128,
            "mamba_head_dim": 64,
            "ssm_state_size": 128,
            "n_groups": 8,
            "conv_kernel": 4,
        },
        1000,
        1000 * 2 * 8 * 128 * 2 + 2 * ((128 * 64 + 2 * 8 * 128) * 4 * 2 + 128 * 64 * 128 * 4),
    ),
    "lfm2's indices": (
        {
            "model_type": "lfm2",
            "hidden_size": 2048,
            "num_hidden_layers": 4,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "full_attn_idxs": [2],
            "conv_L_cache": 3,
        },
        1000,
        1000 * 2 * 8 * 64 * 2 + 3 * 2048 * 3 * 2,
    ),
    "gemma 4's global head size": (
        {
            "model_type": "gemma4_text",
            "num_hidden_layers": 6,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "num_global_key_value_heads": 2,
            "attention_k_eq_v": True,
            "head_dim": 256,
            "global_head_dim": 512,
            "sliding_window": 512,
            "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
        },
        1000,
        5 * 512 * 2 * 4 * 256 * 2 + 1000 * 2 * 2 * 512 * 2,
    ),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_each_spelling_of_a_config_json_is_understood(name: str) -> None:
    config, tokens, expected = SPELLINGS[name]
    assert KVLayout.from_config(config).bytes(tokens) == expected


def test_a_heads_size_in_the_config_counts_and_hidden_over_heads_only_without_one() -> None:
    config = {"hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 8, "num_hidden_layers": 28}
    assert KVLayout.from_config(config).layers[0].key_dim == 64
    assert KVLayout.from_config({**config, "head_dim": None}).layers[0].key_dim == 64
    assert KVLayout.from_config({**config, "head_dim": 128}).layers[0].key_dim == 128
    assert KVLayout.from_config({**config, "model_type": "qwen3"}).layers[0].key_dim == 128


def test_layers_that_share_a_cache_have_a_record_and_no_positions() -> None:
    layout = KVLayout.from_config(transformers.Gemma3nTextConfig())
    kinds = [layer.kind for layer in layout.layers]
    assert kinds[20:] == ["shared"] * 15
    assert layout.positions(8192)[:5] == (512, 512, 512, 512, 8192)
    assert set(layout.positions(8192)[20:]) == {0}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model_type": "brand_new"}, "family brand_new was not checked"),
        ({"model_type": "mistral", "sliding_window": 64}, "All layers are taken as sliding"),
        ({"model_type": "llama", "layer_types": ["secret_attention"] * 2}, "secret_attention are not known"),
        ({"model_type": "llama", "layer_types": ["linear_attention"] * 2}, "state of 2 layers is not known"),
        ({"model_type": "qwen3"}, "taken: head_dim = 128"),
    ],
)
def test_what_was_assumed_for_a_config_is_said_in_a_sentence(config: dict[str, Any], words: str) -> None:
    base = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
    layout = KVLayout.from_config({**base, **config})
    assert [str(note) for note in layout.assumptions if words in str(note)]


def test_a_plain_config_of_a_known_family_needs_no_assumption() -> None:
    assert KVLayout.from_config(transformers.LlamaConfig()).assumptions == ()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (None, "not NoneType"),
        ("config.json", "not str"),
        ([1, 2], "not list"),
        (transformers.LlamaConfig, "not type"),
        ({}, "none of these: num_decoder_layers"),
        ({"num_hidden_layers": 2}, "none of these: decoder_attention_heads"),
        ({"num_hidden_layers": 2, "num_attention_heads": 4}, "none of these: hidden_size"),
        ({"num_hidden_layers": -1}, "num_hidden_layers must be a whole number from 1 to 10,000, not -1"),
        ({"num_hidden_layers": 10**12}, "not 1000000000000"),
        ({"num_hidden_layers": 2.5}, "not 2.5"),
        ({"num_hidden_layers": float("nan")}, "not nan"),
        ({"num_hidden_layers": "32"}, "not '32'"),
        ({"num_hidden_layers": True}, "not True"),
        ({"num_hidden_layers": 2, "num_attention_heads": 0, "hidden_size": 64}, "num_attention_heads"),
        ({"num_hidden_layers": 2, "num_attention_heads": 65, "hidden_size": 64}, "smaller than the 65"),
        ({"num_hidden_layers": 2, "layer_types": ["full_attention"]}, "lists 1 layer types for 2 layers"),
        ({"num_hidden_layers": 1, "num_attention_heads": 1, "layer_types": ["sliding_attention"]}, "window"),
        ({"num_hidden_layers": 2, "num_kv_shared_layers": 3}, "from 0 to 2, not 3"),
        ({"model_type": "bert", "num_hidden_layers": 12}, "keeps no KV cache"),
    ],
)
def test_a_config_that_cannot_be_used_is_refused_with_the_reason(config: object, words: str) -> None:
    with pytest.raises(CalculatorError) as raised:
        KVLayout.from_config(config)
    assert words in str(raised.value)


def test_a_file_or_a_folder_is_read_and_what_is_not_json_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(transformers.GPT2Config().to_dict()), "utf-8")
    assert KVLayout.from_file(file) == KVLayout.from_file(tmp_path) == KVLayout.from_file(str(file))
    file.write_text("{'hidden_size': 64}", "utf-8")
    with pytest.raises(CalculatorError, match="is not JSON"):
        KVLayout.from_file(file)
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CalculatorError, match="is not JSON"):
        KVLayout.from_file(file)
    file.write_text("[" * 100_000, "utf-8")
    with pytest.raises(CalculatorError, match="is not JSON"):
        KVLayout.from_file(file)
    file.write_text("[]", "utf-8")
    with pytest.raises(CalculatorError, match="not list"):
        KVLayout.from_file(file)
    with pytest.raises(CalculatorError, match="no config file at"):
        KVLayout.from_file(tmp_path / "missing.json")
