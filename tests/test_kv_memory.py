"""The calculator against published figures, the catalogue's expected bytes and arithmetic written out by hand."""

import json
import re
from fractions import Fraction

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from inference.elements import ELEMENT_TYPES, element_type
from inference.errors import CalculatorError
from inference.kv_engines import quantised_split
from inference.kv_memory import KVLayout
from inference.prefix import prefix_sharing
from tests.kv_data import CASES, CATALOGUE, ROOT

GIB = 2**30
LLAMA_3_1_8B = KVLayout.from_geometry(32, 8, 128)
LENGTHS = [(model, int(tokens)) for model, case in CASES["expected"].items() for tokens in case["bytes_at"]]
PER_TOKEN_NAMES = {
    "f16": "float16",
    "llama_cpp_q8_0": "q8_0",
    "llama_cpp_q4_0": "q4_0",
    "llama_cpp_q4_1": "q4_1",
    "llama_cpp_q5_0": "q5_0",
    "llama_cpp_q5_1": "q5_1",
    "llama_cpp_iq4_nl": "iq4_nl",
    "fp8_no_scales": "fp8",
    "int8_per_token_per_head_f16_scale": "int8",
    "hf_quantized_4bit_group64_f16_scale_and_zero": "int4_group64",
    "hf_quantized_2bit_group64_f16_scale_and_zero": "int2_group64",
    "int4_group32_f16_scale_only": "int4_group32",
}


def layout_of(model: str) -> KVLayout:
    return KVLayout.from_catalogue(CATALOGUE[model])


def naive_layout(model: str) -> KVLayout:
    """What a calculator counts that knows only layers, heads and head size."""
    entry = CATALOGUE[model]
    head_dim = entry["head_dim"] or entry["hidden"] // entry["num_attention_heads"]
    return KVLayout.from_geometry(entry["num_layers"], entry["num_kv_heads"], head_dim)


def test_the_lessons_first_example_is_exactly_one_gibibyte_and_its_formula_is_written_out() -> None:
    assert LLAMA_3_1_8B.bytes(tokens=8192, batch=1, element="float16") == GIB
    assert LLAMA_3_1_8B.formula(8192) == "2 · 32 · 1 · 8192 · 8 · 128 · 2 = 1,073,741,824 bytes"


def test_the_lessons_second_example_from_one_token_to_32_users() -> None:
    assert LLAMA_3_1_8B.bytes_per_token() == 128 * 1024
    assert LLAMA_3_1_8B.bytes(4096) == 512 * 2**20
    assert LLAMA_3_1_8B.bytes(128_000) == 16_777_216_000 == 15.625 * GIB
    assert LLAMA_3_1_8B.bytes(4096, batch=32) == 16 * GIB
    assert KVLayout.from_geometry(32, 32, 128).bytes(4096) == 4 * LLAMA_3_1_8B.bytes(4096)


def test_sequences_of_different_lengths_add_up_instead_of_counting_as_the_longest() -> None:
    assert LLAMA_3_1_8B.bytes([100, 4096, 7]) == (100 + 4096 + 7) * 131072
    assert LLAMA_3_1_8B.bytes(np.array([100, 4096, 7])) == LLAMA_3_1_8B.bytes([7, 100, 4096])
    assert LLAMA_3_1_8B.bytes([100, 4096, 7], element="q8_0", page_size=16) == (112 + 4096 + 16) * 69632


@pytest.mark.parametrize(("model", "tokens"), LENGTHS)
def test_each_expected_figure_of_the_catalogue_is_met_to_the_byte(model: str, tokens: int) -> None:
    expected, layout = CASES["expected"][model]["bytes_at"][str(tokens)], layout_of(model)
    assert layout.bytes(tokens) == expected["aware"]
    assert naive_layout(model).bytes(tokens) == expected["naive"]
    engines = layout.engine_bytes(tokens)
    if "hf_dynamic" in expected:
        assert engines["transformers dynamic"].bytes == expected["hf_dynamic"]
        assert engines["llama.cpp"].bytes == expected["llama_cpp_alloc"]
    if "aware_with_512_encoder_tokens" in expected:
        assert layout.bytes(tokens, encoder_tokens=512) == expected["aware_with_512_encoder_tokens"]
    assert (tokens <= CATALOGUE[model]["max_context"]) == expected["within_context"]


@pytest.mark.parametrize("model", CASES["expected"])
def test_each_expected_figure_a_token_is_met_to_the_byte(model: str) -> None:
    expected, layout = dict(CASES["expected"][model]), layout_of(model)
    del expected["bytes_at"]
    window = max((layer.window or 0 for layer in layout.layers), default=0)
    sliding = KVLayout(tuple(layer for layer in layout.layers if layer.window))
    found = {
        "bytes_per_token_aware": layout.bytes_per_token(),
        "bytes_per_token_aware_below_window": layout.bytes_per_token(after=window - 1) if window else None,
        "bytes_per_token_aware_beyond_window": layout.bytes_per_token(after=window),
        "bytes_per_token_naive": naive_layout(model).bytes_per_token(),
        "bytes_per_encoder_token_cross": layout.bytes_per_encoder_token(),
        "fixed_state_bytes": layout.state_bytes(),
        "window_plateau_bytes": sliding.bytes(10**6),
        "elements_per_token_per_layer_mla": layout.layers[0].elements,
        "weight_bytes_16bit": 2 * CATALOGUE[model]["params"],
    }
    if "bytes_per_token_expanded_kv" in expected:
        found["bytes_per_token_expanded_kv"] = layout.engine_bytes(1)["transformers, expanded"].bytes
    assert {name: found[name] for name in expected} == expected


def test_the_catalogue_has_71_models_and_each_of_them_has_a_layout_with_the_layers_it_says() -> None:
    assert len(CATALOGUE) == 71
    for model, entry in CATALOGUE.items():
        layout = layout_of(model)
        assert len({layer.index for layer in layout.layers}) == entry["num_layers"], model
        full = [la for la in layout.layers if la.kind in ("attention", "latent") and la.window is None]
        assert len(full) == entry.get("full_layers", entry["num_layers"]), model
        wanted = {"mla": "MLA", "mha": "MHA", "gqa": "GQA", "mqa": "MQA"}.get(entry["rule"])
        assert wanted is None or layout.attention == wanted, model


def test_published_figures_come_out_as_checked_by_hand_and_wrong_ones_with_the_right_value() -> None:
    claims = {case["claim"]: case["computed"] for case in CASES["published_cross_checks"]}
    llama_70b, llama_7b = layout_of("Llama 3.1 70B"), layout_of("Llama 2 7B")
    gemma, v3 = layout_of("Gemma 3 27B (text)"), layout_of("DeepSeek-V3")
    swa = KVLayout(tuple(layer for layer in gemma.layers if layer.window)).engine_bytes(8192)["llama.cpp"]
    assert swa.bytes is not None
    found = {
        "OPT-13B KV cache 800 KB per token; up to 1.6 GB for 2048 tokens": layout_of("OPT-13B").bytes_per_token(),
        "Llama 3.1 70B: 0.313 / 4.88 / 39.06 GB": [llama_70b.bytes(t) / GIB for t in (1024, 16_000, 128_000)],
        "Llama 3.1 405B ~504.0 KB per token FP16": layout_of("Llama 3.1 405B").bytes_per_token() / 1024,
        "DeepSeek V3 69 KiB, GPT-2 (XL) 300 KiB per token": [
            v3.bytes_per_token() / 1024,
            layout_of("GPT-2 XL").bytes_per_token() / 1024,
        ],
        "MLA cache equals GQA with 2.25 groups": v3.layers[0].elements
        / KVLayout.from_geometry(1, 1, 128).layers[0].elements,
        "Llama-2-7B, batch 1, 4196 tokens: 2.05 GB": llama_7b.bytes(4196) / GIB,
        "Gemma-3-27B sliding-window cache 624 MiB in llama.cpp": swa.bytes / 2**20,
        "Llama-13B needs about 1.5 MB per token": layout_of("Llama 2 13B").bytes_per_token(),
        "Llama 2 70B, 2048 tokens: 5.24 GB": layout_of("Llama 2 70B").bytes(2048) / 1e9,
    }
    assert found == claims
    assert layout_of("Llama 2 13B").bytes_per_token("float32") == 1.5625 * 2**20
    assert layout_of("OPT-13B").bytes(2048) == CASES["published_cross_checks"][0]["per_2048"]


@pytest.mark.parametrize("case", CASES["quantised_cache_per_token"], ids=lambda case: case["model"])
def test_a_quantised_token_has_the_expected_bytes_in_each_format(case: dict[str, int]) -> None:
    layout = layout_of(str(case["model"]))
    assert {key: layout.bytes_per_token(name) for key, name in PER_TOKEN_NAMES.items()} == {
        key: case[key] for key in PER_TOKEN_NAMES
    }
    assert sum(layer.elements for layer in layout.layers) == case["elements_per_token"]


@pytest.mark.parametrize("case", CASES["quant_formats"], ids=lambda case: case["format"])
def test_block_formats_have_the_sizes_of_the_gguf_package_and_weight_formats_are_refused(
    case: dict[str, object],
) -> None:
    name = str(case["format"])
    block, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    assert (case["values_per_block"], case["bytes_per_block"]) == (block, block_bytes)
    if not case["kv_cache_allowed_in_llama_cpp"]:
        with pytest.raises(CalculatorError, match=f"no element type {name}"):
            element_type(name)
        return
    element = element_type(name)
    assert Fraction(element.block_bytes, element.block) == Fraction(block_bytes, block)
    assert element.bits_per_value == case["bits_per_value"]
    assert "llama.cpp" in element.engines


def test_element_types_are_found_by_alias_and_by_torch_dtype_and_each_name_is_its_own_key() -> None:
    assert element_type("FP16") is element_type(torch.float16) is ELEMENT_TYPES["float16"]
    assert element_type(torch.bfloat16).name == "bfloat16"
    assert element_type(torch.float8_e4m3fn).name == "fp8"
    assert element_type("int4").name == "int4_group64"
    assert all(element.name == name for name, element in ELEMENT_TYPES.items())


def test_keys_and_values_may_have_different_types() -> None:
    tokens, heads = 1000, 32 * 8
    expected = tokens * heads * (128 // 32 * 34 + 128 // 32 * 18)
    assert LLAMA_3_1_8B.bytes(tokens, element=("q8_0", "q4_0")) == expected
    v3 = layout_of("DeepSeek-V3")  # the values are read from the latent, which is stored as keys
    assert (
        v3.bytes(tokens, element=("q8_0", "q4_0")) == v3.bytes(tokens, element="q8_0") == tokens * 61 * 576 * 34 // 32
    )


@pytest.mark.parametrize("case", CASES["paged"], ids=lambda case: f"{case['tokens']}x{case['batch']}")
def test_pages_round_each_sequence_up_and_waste_less_than_one_page_a_sequence(case: dict[str, int]) -> None:
    layout, batch = layout_of(str(case["model"])), case["batch"]
    paged = layout.bytes(case["tokens"], batch, page_size=case["block_size"])
    assert paged == case["allocated_bytes"]
    assert layout.bytes(case["tokens"], batch) == case["exact_bytes"]
    assert paged - case["exact_bytes"] == case["waste_bytes"] < batch * case["block_bytes"]
    assert layout.bytes(case["block_size"]) == case["block_bytes"]
    assert layout.engine_bytes(case["tokens"], batch)["vLLM"].bytes == case["allocated_bytes"]


@pytest.mark.parametrize("case", CASES["prefix_cache"], ids=lambda case: str(case["shared_prefix"]))
def test_only_full_blocks_of_a_prefix_are_shared(case: dict[str, int]) -> None:
    found = prefix_sharing(case["shared_prefix"], case["suffix"], case["requests"], case["block_size"])
    assert (found.shared, found.private) == (case["shared_blocks"], case["private_blocks_each"])
    assert (found.total, found.without) == (case["total_blocks"], case["without_sharing_blocks"])
    block = layout_of(str(case["model"])).bytes(case["block_size"])
    assert found.total * block == case["total_bytes"]
    assert (found.without - found.total) * block == case["saved_bytes"]


@pytest.mark.parametrize("case", CASES["roofline_decode"], ids=lambda case: f"{case['model']} {case['gpu']}")
def test_the_bytes_that_a_decode_step_reads_are_the_caches_bytes(case: dict[str, int]) -> None:
    element = {2: "float16", 4: "float32"}[case["weight_bytes_per_param"]]
    held = layout_of(str(case["model"])).bytes(case["context"], case["batch"], element)
    assert held == case["kv_bytes_read"]


@pytest.mark.parametrize("case", CASES["fits"], ids=lambda case: f"{case['model']} {case['gpu']}")
def test_weights_and_cache_fit_or_do_not_as_expected(case: dict[str, int]) -> None:
    kv_bytes = layout_of(str(case["model"])).bytes(case["context"])
    assert kv_bytes == case["kv_bytes"]
    total = case["weight_bytes"] + kv_bytes
    assert total == case["total_bytes"]
    assert (total <= case["vram_bytes_decimal"]) == case["fits_without_overhead"]
    assert (total <= case["vram_bytes_decimal"] * 0.9) == case["fits_with_10pct_reserve"]


def test_the_residual_of_transformers_quantised_cache_follows_the_measured_schedule() -> None:
    schedule = CASES["hf_quantized_residual_schedule"]
    for total, quantised, residual in schedule["rows"]:
        split = quantised_split(total, schedule["prompt"], schedule["residual_length"])
        assert split == (quantised, residual)
    assert len(schedule["rows"]) == 21


def test_positions_are_all_tokens_or_the_last_window_of_them() -> None:
    layout = KVLayout.from_geometry(6, 1, 64, window=1024, full_layers=1)
    assert layout.positions(4096) == (1024, 1024, 1024, 1024, 1024, 4096)
    assert layout.positions(1000) == (1000,) * 6


def test_the_gpus_have_the_figures_that_a_page_lists() -> None:
    gpus = json.loads((ROOT / "assets/gpus.json").read_text("utf-8"))
    by_name = {gpu["name"]: gpu for gpu in gpus}
    assert len(by_name) == len(gpus) == 31
    assert by_name["NVIDIA H100 SXM 80GB"]["bandwidth_gb_s"] == 3350
    assert {gpu["vram_gb"] for gpu in gpus if gpu["name"].startswith("CPU")} == {None}


LAYOUTS = st.one_of(
    st.builds(
        KVLayout.from_geometry,
        st.integers(1, 40),
        st.integers(1, 16),
        st.sampled_from([32, 64, 96, 128]),
        window=st.none() | st.integers(1, 300),
    ),
    st.sampled_from([layout_of(model) for model in CATALOGUE]),
)
TOKENS = st.integers(1, 5000) | st.lists(st.integers(1, 5000), min_size=1, max_size=12)


def value_of(formula: str) -> Fraction:
    """The value of the expression before the equals sign, by Python's own arithmetic on fractions."""
    expression = formula.split(" = ")[0].replace("·", "*")
    assert re.fullmatch(r"[\d +*/()]+", expression)
    return Fraction(eval(re.sub(r"\d+", r"Fraction(\g<0>)", expression), {"Fraction": Fraction}))


@given(LAYOUTS, TOKENS, st.sampled_from(sorted(ELEMENT_TYPES)), st.none() | st.integers(1, 64), st.integers(0, 99))
def test_the_formula_written_out_has_the_value_it_claims(
    layout: KVLayout, tokens: int | list[int], element: str, page_size: int | None, encoder: int
) -> None:
    if any(la.elements and (la.key_dim % 32 or la.value_dim % 32) for la in layout.layers):
        element = "int8"
    formula = layout.formula(tokens, element=element, page_size=page_size, encoder_tokens=encoder)
    held = layout.bytes(tokens, element=element, page_size=page_size, encoder_tokens=encoder)
    assert formula.endswith(f" = {held:,} bytes")
    assert value_of(formula) == held


@given(LAYOUTS, st.lists(st.integers(1, 5000), min_size=1, max_size=5), st.none() | st.integers(1, 64))
def test_a_list_costs_what_its_sequences_cost_one_by_one(
    layout: KVLayout, tokens: list[int], page_size: int | None
) -> None:
    one_by_one = sum(layout.bytes(t, page_size=page_size) for t in tokens)
    assert layout.bytes(tokens, page_size=page_size) == one_by_one
    assert layout.bytes(tokens[0], batch=3) == layout.bytes([tokens[0]] * 3)


@given(LAYOUTS, st.integers(1, 6000))
def test_a_token_adds_exactly_its_bytes_per_token(layout: KVLayout, tokens: int) -> None:
    assert layout.bytes(tokens + 1) - layout.bytes(tokens) == layout.bytes_per_token(after=tokens)
