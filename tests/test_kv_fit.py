"""Weights, cache and activations against a device's memory: known cases, and limits that are tried on both sides."""

import gguf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.errors import CalculatorError
from inference.kv_fit import WEIGHT_TYPES, Deployment, weight_bytes
from inference.kv_layers import MAX_BATCH, MAX_TOKENS
from inference.kv_memory import KVLayout
from tests.kv_data import CASES, CATALOGUE

GIB = 2**30
BYTES_A_PARAM = {2: "bfloat16", 0.5625: "q4_k"}


def deployment(model: str, memory: int, **changes: object) -> Deployment:
    entry = CATALOGUE[model]
    usual = {"params": entry["params"], "weights": "bfloat16", "width": 14336, "memory": memory}
    return Deployment(KVLayout.from_catalogue(entry), **{**usual, **changes})


@pytest.mark.parametrize("case", CASES["fits"], ids=lambda case: f"{case['model']} {case['gpu']}")
def test_known_cases_fit_or_do_not_with_and_without_the_reserve(case: dict[str, float]) -> None:
    weights = BYTES_A_PARAM[case["weight_bytes_per_param"]]
    found = deployment(str(case["model"]), case["vram_bytes_decimal"], weights=weights, width=0)
    need = found.need(case["context"])
    assert (need.weights, need.kv, need.total) == (case["weight_bytes"], case["kv_bytes"], case["total_bytes"])
    assert found.fits(case["context"]) == case["fits_with_10pct_reserve"]
    whole = deployment(str(case["model"]), case["vram_bytes_decimal"], weights=weights, width=0, reserve_percent=0)
    assert whole.fits(case["context"]) == case["fits_without_overhead"]


def test_the_longest_context_of_llama_3_1_8b_on_24_gigabytes_by_hand() -> None:
    found = deployment("Llama 3.1 8B", 24_000_000_000)
    activations = 2048 * 14336 * 2  # the pass is full long before the memory is
    free = 24_000_000_000 * 9 // 10 - 2 * 8_030_261_248 - activations
    assert found.longest() == free // 131_072 == 41_814
    assert found.longest(batch=4) == free // (4 * 131_072)
    assert found.largest_batch(4096) == free // (4096 * 131_072) == 10


@given(
    st.sampled_from([model for model, entry in CATALOGUE.items() if entry["params"]]),
    st.integers(10**9, 10**12),
    st.integers(1, 8),
    st.sampled_from([1, 2]),
    st.none() | st.integers(1, 64),
)
def test_the_longest_context_fits_and_one_more_position_does_not(
    model: str, memory: int, batch: int, degree: int, page_size: int | None
) -> None:
    if CATALOGUE[model]["num_kv_heads"] % degree:
        degree = 1
    found = deployment(model, memory, tensor_parallel=degree, page_size=page_size)
    longest, most = found.longest(batch), found.largest_batch(1000)
    assert longest == 0 or found.fits(longest, batch)
    assert longest == MAX_TOKENS or not found.fits(longest + 1, batch)
    assert most == 0 or found.fits(1000, most)
    assert most == MAX_BATCH or not found.fits(1000, most + 1)


def test_a_cache_that_stops_growing_has_no_longest_context_but_the_largest_figure() -> None:
    mistral = deployment("Mistral 7B v0.1", 24_000_000_000)
    assert mistral.layout.bytes(4096) == mistral.layout.bytes(10**6) == GIB // 2
    assert mistral.longest() == MAX_TOKENS
    assert deployment("Mistral 7B v0.1", 10_000_000_000).longest() == 0


def test_two_devices_hold_half_the_weights_and_half_the_heads_each() -> None:
    one, two = (deployment("Llama 3.1 70B", 80_000_000_000, tensor_parallel=n).need(8192) for n in (1, 2))
    assert (two.weights, two.kv) == (one.weights // 2, one.kv // 2)
    sixteen = deployment("Llama 3.1 70B", 80_000_000_000, tensor_parallel=16).need(8192)
    assert sixteen.kv == one.kv // 8  # eight heads: from eight devices on each keeps a whole one


def test_lists_of_lengths_count_their_own_positions() -> None:
    found = deployment("Llama 3.1 8B", GIB, width=10)
    assert found.need([100, 7]).activations == 107 * 10 * 2
    assert found.need([5000, 7]).activations == 2048 * 10 * 2
    assert found.need([100, 7]).kv == 107 * 131_072


@pytest.mark.parametrize("name", ["q8_0", "q6_k", "q4_k", "mxfp4"])
def test_weight_blocks_have_the_sizes_of_the_gguf_package(name: str) -> None:
    assert WEIGHT_TYPES[name] == gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name.upper()]]


def test_weights_that_are_not_known_or_absurd_are_refused_by_name() -> None:
    assert weight_bytes(64 * 10, "nf4") == 360
    with pytest.raises(CalculatorError, match="no weight type q3"):
        weight_bytes(10, "q3")
    with pytest.raises(CalculatorError, match="params must be a whole number from 1"):
        weight_bytes(0, "int8")
