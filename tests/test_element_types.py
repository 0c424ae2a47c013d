"""A model in two element types against transformers' own models in both, and against figures worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from inference import element_types
from inference.element_types import PREFILLS, WARM_STEPS, TwoTypes, compare, effect
from inference.errors import RequestError, TraceError
from inference.machine import bfloat16_instructions
from tests.tiny import N_NEW, PROMPT, build, greedy, loaded, reference

NAMES = ["gemma2", "llama", "mixtral", "qwen3"]
STEPS = 8
WRITTEN = 1 + WARM_STEPS + STEPS
BF16 = torch.bfloat16


@cache
def found(name: str) -> TwoTypes:
    result = compare(loaded(name), loaded(name, BF16), greedy(name), STEPS)
    assert result is not None
    return result


def test_divergence_and_differences_are_those_worked_out_by_hand() -> None:
    expected = np.log(np.array([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]], dtype=np.float32))
    other = np.log(np.array([[0.25, 0.5, 0.25], [0.5, 0.25, 0.25]], dtype=np.float32)) + np.array([[0], [3]])
    result = effect(expected, other.astype(np.float32))
    # 1/2 ln 2 - 1/4 ln 2; a constant added to all logits changes no probability
    np.testing.assert_allclose(result.divergence, [0.25 * math.log(2), 0], atol=1e-7)
    np.testing.assert_allclose(result.largest, [math.log(2), 3], rtol=1e-6)
    np.testing.assert_allclose(result.mean, [2 / 3 * math.log(2), 3], rtol=1e-6)
    assert result.first_ids.tolist() == [[0, 1], [0, 0]]
    assert result.changed.tolist() == [True, False]


def test_a_token_that_is_ruled_out_adds_nothing_instead_of_no_number() -> None:
    ruled_out = np.array([[1, -np.inf, 1]], dtype=np.float32)
    result = effect(ruled_out, ruled_out)
    assert (result.divergence.tolist(), result.largest.tolist()) == ([0], [0])


@pytest.mark.parametrize("name", NAMES)
def test_the_effect_on_the_logits_is_that_of_transformers_own_models(name: str) -> None:
    ids = [token.id for token in greedy(name).tokens]
    exact, coarse = (torch.from_numpy(reference(name, ids, dtype).logits) for dtype in (torch.float32, BF16))
    p, q = exact.double().log_softmax(-1), coarse.double().log_softmax(-1)
    divergence = torch.nn.functional.kl_div(q, p, reduction="none", log_target=True).sum(-1).numpy()
    apart = (exact.double() - coarse.double()).abs()
    result = found(name).effect
    assert divergence.max() > 1e-4  # else there would be nothing to see
    np.testing.assert_allclose(result.divergence, divergence, rtol=0.02, atol=1e-5)
    np.testing.assert_allclose(result.largest, apart.amax(-1).numpy(), atol=2e-3)
    np.testing.assert_allclose(result.mean, apart.mean(-1).numpy(), atol=2e-3)
    assert result.first_ids.tolist() == torch.stack([exact.argmax(-1), coarse.argmax(-1)], -1).tolist()
    shown = [[one.id, other.id] for one, other in found(name).likeliest]
    assert shown == result.first_ids.tolist()


@pytest.mark.parametrize("name", NAMES)
def test_both_greedy_texts_are_those_that_transformers_generates(name: str) -> None:
    texts = []
    for side, dtype in zip(found(name).sides, (torch.float32, BF16), strict=True):
        ids = torch.tensor([PROMPT])
        out = build(name, dtype=dtype).generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=WRITTEN
        )
        texts.append(out[0, len(PROMPT) :].tolist())
        assert [token.id for token in side.written] == texts[-1]
    parted = [step for step in range(WRITTEN) if texts[0][step] != texts[1][step]]
    assert found(name).parting == (parted[0] if parted else None)


def test_weights_and_cache_take_half_the_bytes() -> None:
    first, second = found("llama").sides
    assert (first.element, second.element) == ("float32", "bfloat16")
    assert first.weights_bytes == sum(4 * p.numel() for p in build("llama").parameters())
    assert second.weights_bytes * 2 == first.weights_bytes
    # keys and values, 3 layers, 2 KV heads of 8 numbers, every position but that of the last token
    assert first.cache_bytes == 2 * 3 * 2 * 8 * (len(PROMPT) + WRITTEN - 1) * 4
    assert second.cache_bytes * 2 == first.cache_bytes


def test_the_rounds_that_warm_up_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([50, 60, 1, 2, 3, 4, 5, 6])
    monkeypatch.setattr(element_types, "feed", lambda model, ids, cache: (None, next(seconds)))
    times = iter(range(10_000))
    result = compare(loaded("llama"), loaded("llama", BF16), greedy("llama"), STEPS, clock=lambda: next(times))
    assert result is not None
    assert PREFILLS == 3
    assert [side.prefill_s.tolist() for side in result.sides] == [[1, 3, 5], [2, 4, 6]]
    assert [len(side.step_s) for side in result.sides] == [STEPS, STEPS]
    side = replace(result.sides[0], step_s=np.array([0.5, 0.25, 1.0]))
    assert side.decode_tok_s == 2


def test_long_runs_are_fed_in_parts_and_the_parts_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = found("llama").effect
    monkeypatch.setattr("inference.forcing.CHUNK", 5)
    shares: list[float] = []
    parts = compare(loaded("llama"), loaded("llama", BF16), greedy("llama"), STEPS, shares.append)
    assert parts is not None
    assert len(parts.effect.divergence) == len(PROMPT) + N_NEW
    np.testing.assert_allclose(parts.effect.divergence, whole.divergence, rtol=0.3, atol=2e-3)  # other kernels round
    assert shares == sorted(shares)
    assert shares[-1] == 1


@pytest.mark.parametrize("after", [0, 1, 4, 8])
def test_it_can_be_cancelled_before_any_pass(after: int) -> None:
    asked = iter(range(100))
    assert compare(
        loaded("llama"), loaded("llama", BF16), greedy("llama"), STEPS, cancelled=lambda: next(asked) >= after
    ) is None  # fmt: skip
    assert next(asked) == after + 1  # it stopped at once


def test_what_cannot_be_compared_is_refused() -> None:
    pair = loaded("llama"), loaded("llama", BF16)
    with pytest.raises(TraceError, match="llama is loaded"):
        compare(*pair, greedy("qwen3"), STEPS)
    with pytest.raises(TraceError, match="before its first token"):
        compare(*pair, replace(greedy("llama"), steps=()), STEPS)
    long = replace(greedy("llama"), prompt_tokens=greedy("llama").prompt_tokens * 4 + greedy("llama").tokens[:9])
    assert long.n_prompt == 61  # of 64
    with pytest.raises(RequestError, match="no room to write on"):
        compare(*pair, long, STEPS)


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("flags\t\t: fpu sse2 avx512f avx512_bf16 avx512_vnni", ("AVX512-BF16",)),
        ("flags\t\t: fpu avx512_bf16 amx_bf16 amx_tile amx_int8", ("AVX512-BF16", "AMX-BF16")),
        ("flags\t\t: fpu sse2 avx2 avx512f amx_int8", ()),
        ("Features\t: fp asimd sve svebf16 i8mm bf16 dgh", ("BF16", "SVE-BF16")),
        ("model name\t: a bf16 machine", ()),
    ],
)
def test_the_instructions_are_those_that_the_kernel_lists(line: str, names: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(f"processor\t: 0\n{line}\n\n" * 2, encoding="utf-8")
    assert bfloat16_instructions(path) == names


def test_torch_sees_the_same_instructions_as_the_kernel(tmp_path: Path) -> None:
    assert set(bfloat16_instructions()) == set(bfloat16_instructions(tmp_path / "no such file"))
