"""What engines hold: padding, blocks, windows, devices; and every argument that is refused."""

import math
from typing import Any

import pytest
import transformers

from inference.errors import CalculatorError
from inference.kv_memory import KVLayout
from inference.prefix import prefix_sharing
from tests.kv_data import CATALOGUE

LLAMA_3_1_8B = KVLayout.from_geometry(32, 8, 128)
TOKEN = 131072  # bytes a token of Llama 3.1 8B in 16 bits
GEMMA_3_27B = KVLayout.from_catalogue(CATALOGUE["Gemma 3 27B (text)"])
GEMMA_TOKEN = 8192  # bytes a token and layer of Gemma 3 27B: 16 heads, head size 128
QWEN3_NEXT = KVLayout.from_catalogue(CATALOGUE["Qwen3-Next 80B-A3B"])


def held(layout: KVLayout, engine: str, tokens: Any, *args: Any, **options: Any) -> int | None:
    return layout.engine_bytes(tokens, *args, **options)[engine].bytes


def test_transformers_pads_a_batch_to_its_longest_sequence() -> None:
    assert held(LLAMA_3_1_8B, "transformers dynamic", [100, 4096, 7]) == 3 * 4096 * TOKEN


def test_llama_cpp_pads_the_context_to_256_cells_and_reserves_the_capacity() -> None:
    assert held(LLAMA_3_1_8B, "llama.cpp", 1) == 256 * TOKEN
    assert held(LLAMA_3_1_8B, "llama.cpp", 257) == 512 * TOKEN
    assert held(LLAMA_3_1_8B, "llama.cpp", 257, capacity=8192) == 8192 * TOKEN
    assert held(LLAMA_3_1_8B, "llama.cpp", [5, 300], element="q8_0") == 2 * 512 * 69632


def test_llama_cpps_windows_have_the_physical_batch_on_top() -> None:
    full, sliding = 10, 52
    assert held(GEMMA_3_27B, "llama.cpp", 8192) == (full * 8192 + sliding * 1536) * GEMMA_TOKEN
    assert held(GEMMA_3_27B, "llama.cpp", 8192, n_ubatch=2048) == (full * 8192 + sliding * 3072) * GEMMA_TOKEN
    assert held(GEMMA_3_27B, "llama.cpp", 1000) == (full + sliding) * 1024 * GEMMA_TOKEN


def test_llama_cpp_keeps_states_in_float32_with_one_convolution_column_less() -> None:
    attention = 12 * 8192 * 2 * 2 * 256 * 2
    assert held(QWEN3_NEXT, "llama.cpp", 8192) == attention + 36 * (8192 * 3 * 4 + 524288 * 4)


def test_vllm_rounds_each_sequence_up_to_blocks() -> None:
    assert held(LLAMA_3_1_8B, "vLLM", [17, 8193, 16]) == (2 + 513 + 1) * 16 * TOKEN
    assert held(LLAMA_3_1_8B, "vLLM", 17, page_size=32) == 32 * TOKEN


def test_vllm_frees_blocks_that_left_the_window_and_without_the_hybrid_manager_keeps_all() -> None:
    window = KVLayout.from_geometry(32, 8, 128, window=4096)
    assert held(window, "vLLM", 4096) == 256 * 16 * TOKEN
    # After 10,000 positions 5,905 are outside the window of the next one: 369 of 625 blocks are free.
    assert held(window, "vLLM", 10_000) == (625 - 369) * 16 * TOKEN
    # A block goes as soon as its last position is out of the next one's window.
    assert held(window, "vLLM", 4110) == 257 * 16 * TOKEN
    assert held(window, "vLLM", 4111) == (257 - 1) * 16 * TOKEN
    assert held(window, "vLLM, hybrid manager off", 10_000) == 625 * 16 * TOKEN


def test_vllm_pads_mixed_layers_to_groups_of_equal_size() -> None:
    # 10 full layers and 52 sliding ones make 6 groups of 10: 8 padding layers.
    window_blocks = 512 - (8192 - 1024 + 1) // 16
    expected = (10 * 512 + 60 * window_blocks) * 16 * GEMMA_TOKEN
    assert held(GEMMA_3_27B, "vLLM", 8192) == expected
    # 13 and 12 layers are nearly as many: one group each, of 13.
    nearly = KVLayout.from_geometry(25, 1, 64, window=16, full_layers=13)
    assert held(nearly, "vLLM", 160) == (13 * 10 + 13 * 1) * 16 * 256


def test_an_engine_without_such_a_cache_says_so_instead_of_giving_a_figure() -> None:
    figures = LLAMA_3_1_8B.engine_bytes(100, element="q4_0")
    assert figures["transformers dynamic"].bytes is figures["vLLM"].bytes is None
    assert str(figures["vLLM"].note) == "vLLM has no q4_0 cache."
    assert figures["llama.cpp"].bytes == 256 * 36864
    assert held(LLAMA_3_1_8B, "transformers static", 100, element="int4_group64") is None
    t5 = KVLayout.from_config(transformers.T5Config())
    assert held(t5, "vLLM", 100) is None
    assert held(t5, "llama.cpp", 100, encoder_tokens=512) == 256 * t5.bytes_per_token()


def test_transformers_quantised_cache_keeps_new_positions_in_16_bits_until_there_are_128() -> None:
    def dynamic(tokens: int, new: int) -> int | None:
        return held(LLAMA_3_1_8B, "transformers dynamic", tokens, element="int4_group64", new_tokens=new)

    assert dynamic(1000, 0) == 1000 * 36864
    assert dynamic(1127, 127) == 1000 * 36864 + 127 * TOKEN
    assert dynamic(1128, 128) == 1128 * 36864
    assert held(LLAMA_3_1_8B, "transformers dynamic", 1000, element="fp8", new_tokens=100) == 1000 * TOKEN // 2
    assert held(GEMMA_3_27B, "transformers dynamic", 1000, element="int4_group64") is None


def test_mla_is_held_expanded_by_older_transformers_71_times_the_latent() -> None:
    v3 = KVLayout.from_config(transformers.DeepseekV3Config())
    assert held(v3, "transformers, expanded", 1000) == 1000 * 61 * 128 * (192 + 128) * 2
    assert v3.attention == "MLA"
    assert "transformers, expanded" not in LLAMA_3_1_8B.engine_bytes(1000)


@pytest.mark.parametrize(("degree", "heads"), [(1, 8), (2, 4), (8, 1), (16, 1), (64, 1)])
def test_tensor_parallel_divides_the_heads_and_then_replicates_them(degree: int, heads: int) -> None:
    one_device = LLAMA_3_1_8B.shard(degree)
    assert one_device.bytes(8192) == 2 * 32 * 8192 * heads * 128 * 2
    assert held(LLAMA_3_1_8B, "vLLM", 8192, tensor_parallel=degree) == one_device.bytes(8192)
    assert held(LLAMA_3_1_8B, "llama.cpp", 8192, tensor_parallel=degree) == LLAMA_3_1_8B.bytes(8192)


def test_a_latent_is_whole_on_each_device_and_a_state_is_divided() -> None:
    v3 = KVLayout.from_config(transformers.DeepseekV32Config())
    assert v3.shard(8).bytes(1000) == v3.bytes(1000)
    indexer = 61 * 1000 * 128 * 2
    expanded = 61 * 1000 * 16 * (192 + 128) * 2
    assert held(v3, "transformers, expanded", 1000, tensor_parallel=8) == expanded + indexer
    assert KVLayout.from_config(transformers.Gemma3nTextConfig()).shard(2).layers[-1].kind == "shared"
    assert QWEN3_NEXT.shard(2).state_bytes() * 2 == QWEN3_NEXT.state_bytes()
    falcon = KVLayout.from_catalogue(CATALOGUE["Falcon 40B"])
    assert held(falcon, "transformers dynamic", 100, tensor_parallel=4) == 2 * 60 * 100 * 32 * 64 * 2


@pytest.mark.parametrize("degree", [3, 5, 12])
def test_a_degree_that_neither_divides_the_heads_nor_is_divided_by_them_is_refused(degree: int) -> None:
    with pytest.raises(CalculatorError, match=f"kv_heads is 8, which cannot be divided among {degree} devices"):
        LLAMA_3_1_8B.shard(degree)


BAD_NUMBERS = [0, -1, 10**15, 1.5, 8192.0, math.nan, math.inf, "8192", None, True, b"1"]


@pytest.mark.parametrize("value", BAD_NUMBERS, ids=repr)
@pytest.mark.parametrize("argument", ["tokens", "batch", "page_size"])
def test_what_is_not_a_whole_number_in_its_range_is_refused_by_name(argument: str, value: object) -> None:
    if argument == "page_size" and value is None:
        assert LLAMA_3_1_8B.bytes(8, page_size=None) == 8 * TOKEN
        return
    options: dict[str, Any] = {"tokens": 8192, argument: value}
    with pytest.raises(CalculatorError) as raised:
        LLAMA_3_1_8B.bytes(**options)
    assert str(raised.value).startswith(f"{argument} must be a whole number from 1 to 1,000,000")
    assert f"not {value!r}"[:40] in str(raised.value)


@pytest.mark.parametrize("value", BAD_NUMBERS, ids=repr)
def test_one_bad_entry_of_a_list_is_named_by_its_place(value: object) -> None:
    with pytest.raises(CalculatorError, match=r"tokens\[2\] must be a whole number"):
        LLAMA_3_1_8B.bytes([100, 4096, value, 7])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tokens": []}, "tokens is an empty list"),
        ({"tokens": [1, 2], "batch": 2}, "already says how many sequences"),
        ({"tokens": [1, 2, 3], "encoder_tokens": [1, 2]}, "encoder_tokens has 2 lengths and tokens has 3"),
        ({"tokens": 1, "encoder_tokens": -1}, "encoder_tokens must be a whole number from 0"),
        ({"tokens": 1, "element": "float12"}, "There is no element type float12"),
        ({"tokens": 1, "element": None}, "There is no element type None"),
        ({"tokens": 1, "element": ("q8_0",) * 3}, "these are 3"),
        ({"tokens": 1, "element": "q4_k"}, "There is no element type q4_k"),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(CalculatorError) as raised:
        LLAMA_3_1_8B.bytes(**options)
    assert words in str(raised.value)


def test_a_block_that_does_not_divide_the_head_size_is_refused_with_both_numbers() -> None:
    pythia = KVLayout.from_catalogue(CATALOGUE["Pythia 2.8B"])
    with pytest.raises(CalculatorError, match="blocks of 32 values, which do not divide the head size 80"):
        pythia.bytes(100, element="q8_0")
    assert pythia.bytes(100, element="int4_group64") == 2 * 32 * (100 * 32 * 80 // 64) * 36


def test_groups_that_run_through_a_tensor_round_its_last_group_up() -> None:
    tiny = KVLayout.from_geometry(3, 1, 8)
    assert tiny.bytes(9, element="int4_group64") == 2 * 3 * 2 * 36
    assert tiny.formula(9, element="int4_group64") == "3 · 1 · (2 · 36 + 2 · 36) = 432 bytes"


@pytest.mark.parametrize(
    "options",
    [
        {"num_layers": 0, "num_kv_heads": 8, "head_dim": 128},
        {"num_layers": 32, "num_kv_heads": -8, "head_dim": 128},
        {"num_layers": 32, "num_kv_heads": 8, "head_dim": 10**9},
        {"num_layers": 32, "num_kv_heads": 8, "head_dim": 128, "window": 0},
        {"num_layers": 32, "num_kv_heads": 8, "head_dim": 128, "window": 8, "full_layers": 33},
    ],
)
def test_a_geometry_out_of_range_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(CalculatorError, match="must be a whole number from"):
        KVLayout.from_geometry(**options)


def test_figures_that_contradict_the_lengths_and_an_unknown_catalogue_rule_are_refused() -> None:
    with pytest.raises(CalculatorError, match=r"capacity must be a whole number from 100 "):
        LLAMA_3_1_8B.engine_bytes(100, capacity=99)
    with pytest.raises(CalculatorError, match=r"new_tokens must be a whole number from 0 to 99, not 100"):
        LLAMA_3_1_8B.engine_bytes(100, new_tokens=100)
    with pytest.raises(CalculatorError, match="rule 'magic' is not known"):
        KVLayout.from_catalogue({**CATALOGUE["Llama 2 7B"], "rule": "magic"})
    with pytest.raises(CalculatorError, match="requests must be"):
        prefix_sharing(100, 10, 0)
