"""Measured layers beside the plain formula: the reason for each difference, on real caches of many architectures."""

from __future__ import annotations

import pytest

from inference.cache_check import LayerCheck, layer_checks
from tests.tiny import N_NEW, PROMPT, WINDOW, greedy

LAST = N_NEW - 1
FED = len(PROMPT) + LAST


def checked(name: str, step: int = LAST) -> tuple[LayerCheck, ...]:
    return layer_checks(greedy(name), step)


@pytest.mark.parametrize("name", ["llama", "qwen3", "gpt2", "gpt_bigcode", "mixtral", "olmo2", "smollm3"])
def test_full_attention_layers_hold_what_the_formula_says(name: str) -> None:
    for step in (0, LAST):
        for check in checked(name, step):
            assert check.reason == "equal"
            assert check.why is None
            assert check.nbytes == check.formula_bytes


def test_the_formula_is_the_product_worked_out_by_hand() -> None:
    # 2 · 28 positions · 2 KV heads · (32 / 4) numbers · 4 bytes
    assert [check.formula_bytes for check in checked("llama")] == [2 * FED * 2 * 8 * 4] * 3
    assert FED == 28


def test_a_window_of_eight_keeps_seven_and_says_so() -> None:
    for check in checked("mistral"):
        assert (check.reason, check.positions) == ("window", WINDOW - 1)
        assert str(check.why) == (
            "A window of 8: 7 positions are kept, and the current one completes it during its pass."
        )


def test_a_full_layer_between_sliding_ones_is_equal() -> None:
    assert [check.reason for check in checked("gemma2")] == ["window", "equal", "window"]


def test_keys_and_values_repeated_before_they_are_cached_are_named() -> None:
    for check in checked("falcon_grouped"):
        assert (check.reason, check.nbytes) == ("expanded", 2 * check.formula_bytes)
        assert str(check.why) == "All 4 heads are cached, after 2 KV heads were repeated."


def test_constant_states_and_shared_layers_are_told_apart() -> None:
    assert [check.reason for check in checked("qwen3_next")] == ["state", "equal", "state"]
    assert [check.reason for check in checked("gemma3n_text")][3:] in ([], ["shared", "shared"])


def test_a_latent_is_not_taken_for_keys_and_values_of_heads() -> None:
    for check in checked("deepseek_v3"):
        assert check.reason == "other"
        assert check.nbytes == FED * (16 + 8) * 4  # kv_lora_rank + qk_rope_head_dim
        assert "96 bytes a position" in str(check.why)
