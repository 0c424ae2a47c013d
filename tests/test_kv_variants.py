"""The same model with other key-value heads: what is saved, by hand and against the models that chose them."""

import pytest

from inference.errors import CalculatorError
from inference.kv_memory import KVLayout
from inference.kv_variants import query_heads, replicated, variants, with_kv_heads
from tests.kv_data import CATALOGUE

GIB = 2**30


def layout_of(model: str) -> KVLayout:
    return KVLayout.from_catalogue(CATALOGUE[model])


def test_eight_kv_heads_instead_of_32_save_three_quarters() -> None:
    found = {name: layout.bytes(8192) for name, layout in variants(layout_of("Llama 3.1 8B")).items()}
    assert found == {"MHA": 4 * GIB, "GQA": GIB, "MQA": GIB // 8, "MLA": 32 * 8192 * 576 * 2}
    assert with_kv_heads(layout_of("Llama 2 7B"), 8).bytes(8192) == GIB


def test_a_model_with_a_latent_is_its_own_mla_and_its_mha_is_what_older_caches_held() -> None:
    v3 = layout_of("DeepSeek-V3")
    found = variants(v3)
    assert found["MLA"] is v3
    assert (
        found["MHA"].bytes(1000) == v3.engine_bytes(1000)["transformers, expanded"].bytes == 1000 * 61 * 128 * 320 * 2
    )
    assert found["MHA"].bytes(1000) / v3.bytes(1000) == pytest.approx(71, abs=0.2)


@pytest.mark.parametrize("model", CATALOGUE)
def test_each_model_is_one_of_its_variants_and_no_variant_needs_more_than_mha(model: str) -> None:
    layout = layout_of(model)
    found = variants(layout)
    assert found[layout.attention] is layout
    sizes = {name: variant.bytes(5000, encoder_tokens=100) for name, variant in found.items()}
    assert max(sizes.values()) == sizes["MHA"] >= sizes.get("GQA", sizes["MQA"]) >= sizes["MQA"]


def test_windows_states_and_layers_stay_as_they_are() -> None:
    gemma, jamba = layout_of("Gemma 3 1B"), layout_of("Jamba v0.1 (52B)")
    assert [la.window for la in variants(gemma)["MHA"].layers] == [la.window for la in gemma.layers]
    assert variants(gemma)["MHA"].bytes(4000) == 4 * gemma.bytes(4000)
    assert variants(jamba)["MQA"].state_bytes() == jamba.state_bytes() > 0


def test_heads_that_form_no_groups_have_no_gqa_and_a_model_without_attention_no_variants() -> None:
    assert set(variants(KVLayout.from_geometry(2, 7, 64, query_heads=7))) == {"MHA", "MQA", "MLA"}
    assert variants(KVLayout.from_geometry(2, 6, 64, query_heads=6))["GQA"].layers[0].kv_heads == 2
    assert query_heads(KVLayout.from_geometry(2, 6, 64)) == 6
    assert variants(KVLayout(())) == {}


def test_more_devices_than_heads_keep_copies_of_them() -> None:
    llama = layout_of("Llama 3.1 8B")
    assert [replicated(llama, degree) for degree in (1, 2, 8, 16, 32)] == [1, 1, 1, 2, 4]
    assert llama.shard(16).bytes(8192) * 16 == 2 * llama.bytes(8192)
    with pytest.raises(CalculatorError, match="cannot be divided among 3 devices"):
        replicated(llama, 3)
