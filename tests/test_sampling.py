"""Sampling rules: given cases from transformers, llama.cpp and vLLM, laws, edges, and the loop against the pages."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from inference.errors import NumericalError, SamplingError
from inference.sampling import SamplingParams, choose, decide, rank_of, resolve, run_pipeline
from inference.sampling_steps import ORDERS, STEPS, Context

DATA = json.loads((Path(__file__).parent / "data" / "sampling_cases.json").read_text(encoding="utf-8"))
CASES = {case["id"]: case for case in DATA["cases"]}
# Not settings of this engine, or cases about an error: each has a test of its own below, or the reason here.
ELSEWHERE = {
    "S24": "temperature 0 is greedy here",
    "S25": "a negative temperature is refused here",
    "S47": "penalty_last_n is llama.cpp's window; without it the transformers scores are checked below",
    "S63": "NaN is refused here",
    "S64": "NaN is refused here, greedy or not",
    "S65": "remove_invalid_values would hide a broken model; NaN is refused here",
    "S71": "+inf is refused here",
}


def numbers(values: list[Any]) -> np.ndarray:
    return np.array([float(value) for value in values], dtype=np.float32)


def stages_of(case: dict[str, Any], **changes: Any):
    settings = dict(case["settings"]) | changes
    if "do_sample" in settings:
        settings["greedy"] = not settings.pop("do_sample")
    if "sequence_bias" in settings:
        settings["sequence_bias"] = tuple((tuple(ids), bias) for ids, bias in settings["sequence_bias"])
    given_ids = case["input"].get("input_ids", [])
    return run_pipeline(
        numbers(case["input"]["logits"]),
        SamplingParams(**settings),
        context_ids=given_ids,
        n_prompt=case["input"].get("prompt_len", len(given_ids)),
        eos_ids=case["input"].get("eos", []),
    )


def last_before_greedy(stages):
    return stages[-2] if stages[-1].name == "greedy" else stages[-1]


@pytest.mark.parametrize("case_id", [c for c in CASES if c not in ELSEWHERE])
def test_a_given_case_has_its_kept_set_scores_and_probabilities(case_id: str) -> None:
    case = CASES[case_id]
    expected, stages = case["expected"], stages_of(case)
    final = last_before_greedy(stages)
    kept = np.flatnonzero(final.kept).tolist()
    checked = 0
    if "kept" in expected:
        assert kept == expected["kept"]
        checked += 1
    if "kept_one_of" in expected:
        assert kept in expected["kept_one_of"]
        np.testing.assert_allclose(np.sort(final.probs[kept])[::-1], expected["probs_of_kept"], atol=1e-6)
        checked += 1
    if expected.get("probs") is not None:
        np.testing.assert_allclose(final.probs, expected["probs"], atol=1e-6)
        checked += 1
    if "banned" in expected:
        assert np.flatnonzero(~final.kept).tolist() == expected["banned"]
        checked += 1
    if "scores" in expected:
        np.testing.assert_allclose(final.logits, numbers(expected["scores"]), atol=1e-6)
        checked += 1
    if "vllm_probs" in expected:
        np.testing.assert_allclose(stages_of(case, order="vllm")[-1].probs, expected["vllm_probs"], atol=1e-6)
        checked += 1
    if expected.get("scores_unchanged"):
        np.testing.assert_array_equal(final.logits, stages[0].logits)
        checked += 1
    if "argmax" in expected:
        assert choose(stages_of(case, greedy=True), 0.99) == expected["argmax"]
        checked += 1
    assert checked


@pytest.mark.parametrize(("engine", "order"), [("hf_5_18", "transformers"), ("llama_cpp_b11549", "llama.cpp")])
@pytest.mark.parametrize("case_id", ["S76", "S77", "S78", "S79"])
def test_each_engines_order_gives_that_engines_result(case_id: str, engine: str, order: str) -> None:
    case = CASES[case_id]
    assert np.flatnonzero(stages_of(case, order=order)[-1].kept).tolist() == case["engines"][engine]["kept"]


def test_vllms_order_puts_min_p_before_top_p() -> None:
    case = CASES["S79"]
    assert np.flatnonzero(stages_of(case, order="vllm")[-1].kept).tolist() == [0]
    assert np.flatnonzero(stages_of(case)[-1].kept).tolist() == [0, 1]


@pytest.mark.parametrize("row", DATA["top_p_boundary_study"], ids=lambda r: f"{r['probs']} p={r['top_p']}")
def test_top_p_on_a_boundary_keeps_the_exact_count(row: dict[str, Any]) -> None:
    logits = np.log(np.array(row["probs"])).astype(np.float32)
    assert run_pipeline(logits, SamplingParams(top_p=row["top_p"]))[-1].kept.sum() == row["exact_rational_kept"]


def test_the_repetition_penalty_has_no_window() -> None:
    case = CASES["S47"]
    stages = run_pipeline(numbers(case["input"]["logits"]), SamplingParams(repetition_penalty=2.0), [0, 1, 1], 1)
    np.testing.assert_allclose(stages[-1].logits, case["expected"]["hf_scores"])


def test_probabilities_are_those_of_float64_arithmetic_so_that_every_processor_keeps_the_same_tokens() -> None:
    logits = np.random.default_rng(3).normal(0, 4, 50_000).astype(np.float32)
    weights = [math.exp(float(np.float32(score - logits.max()))) for score in logits]
    expected = (np.array(weights) / math.fsum(weights)).astype(np.float32)
    np.testing.assert_array_equal(run_pipeline(logits, SamplingParams())[-1].probs, expected)


def test_a_penalty_that_would_make_a_score_infinite_leaves_it_the_largest_number() -> None:
    stage = run_pipeline([30.0, 1.0, -2.0], SamplingParams(repetition_penalty=1e-38), [0], 1)[-1]
    np.testing.assert_array_equal(stage.logits, np.array([np.finfo(np.float32).max, 1, -2], dtype=np.float32))
    np.testing.assert_array_equal(stage.probs, [1, 0, 0])


def test_temperature_zero_is_greedy_and_is_not_put_into_the_formula() -> None:
    stages = run_pipeline([0.0, 2.0, 1.0], SamplingParams(temperature=0.0))
    assert [stage.name for stage in stages] == ["raw", "greedy"]
    assert choose(stages, 0.999) == 1


def test_frequency_penalty_counts_generated_tokens_and_presence_counts_once() -> None:
    logits, ids = [1.0, 1.0, 1.0], [2, 0, 0, 1]  # the 2 is prompt
    frequency = run_pipeline(logits, SamplingParams(frequency_penalty=0.5), ids, 1)[-1]
    presence = run_pipeline(logits, SamplingParams(presence_penalty=0.5), ids, 1)[-1]
    np.testing.assert_allclose(frequency.logits, [0.0, 0.5, 1.0])
    np.testing.assert_allclose(presence.logits, [0.5, 0.5, 1.0])


@pytest.mark.parametrize("bad", ["nan", "inf"])
@pytest.mark.parametrize("greedy", [True, False])
def test_a_nan_or_infinite_logit_is_refused_with_its_index(bad: str, greedy: bool) -> None:
    with pytest.raises(NumericalError, match="token 1 "):
        run_pipeline(numbers([1.0, bad, 0.0]), SamplingParams(greedy=greedy))


def test_settings_that_remove_every_token_are_named() -> None:
    with pytest.raises(SamplingError, match="suppress_tokens removed every token"):
        run_pipeline([1.0, 2.0], SamplingParams(suppress_tokens=(0, 1), greedy=True))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -1.0), ("temperature", float("nan")), ("temperature", "hot"), ("temperature", float("inf")),
        ("top_k", -1), ("top_k", 2.5), ("top_k", True), ("top_p", 1.5), ("top_p", -0.1), ("min_p", 2),
        ("typical_p", -1), ("repetition_penalty", 0), ("repetition_penalty", -2), ("seed", -1), ("min_new_tokens", -1),
        ("suppress_tokens", (-1,)), ("bad_words_ids", ((),)), ("sequence_bias", (((1,), float("nan")),)),
    ],
)  # fmt: skip
def test_a_setting_out_of_its_range_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(SamplingError, match=name):
        SamplingParams(**{name: value})


def test_an_order_must_name_known_steps_once_and_every_setting_in_use() -> None:
    with pytest.raises(SamplingError, match="top_q"):
        SamplingParams(order=("top_q",))
    with pytest.raises(SamplingError, match="once"):
        SamplingParams(order=("top_k", "top_k"))
    with pytest.raises(SamplingError, match="temperature"):
        SamplingParams(temperature=0.5, order=("top_k",))
    with pytest.raises(SamplingError, match="no order of steps called exllama"):
        SamplingParams(order="exllama")
    assert [n for n, _ in SamplingParams(temperature=0.5, top_k=3, order=("top_k", "temperature")).steps()] == [
        "top_k",
        "temperature",
    ]


def test_every_engines_order_names_every_step() -> None:
    for order in ORDERS.values():
        assert sorted(order) == sorted(STEPS)


logits_of_any_size = arrays(np.float32, st.integers(2, 60), elements=st.floats(-30, 30, width=32))
settings = st.builds(
    SamplingParams,
    temperature=st.none() | st.floats(0.05, 4),
    top_k=st.none() | st.integers(0, 70),
    top_p=st.none() | st.floats(0, 1),
    min_p=st.none() | st.floats(0, 1),
    typical_p=st.none() | st.floats(0.01, 1),
    epsilon_cutoff=st.none() | st.floats(0, 0.5),
    eta_cutoff=st.none() | st.floats(0, 0.5),
    top_h=st.none() | st.floats(0.01, 1),
    repetition_penalty=st.none() | st.floats(0.2, 3),
    order=st.sampled_from(list(ORDERS)),
)


@given(logits_of_any_size, settings, st.lists(st.integers(0, 1), max_size=5))
def test_probabilities_sum_to_one_and_nothing_removed_returns(logits, params, context) -> None:
    before = logits.copy()
    stages = run_pipeline(logits, params, context, n_prompt=1)
    for earlier, later in itertools.pairwise(stages):
        assert not (later.kept & ~earlier.kept).any()
    for stage in stages:
        assert stage.probs.sum(dtype=np.float64) == pytest.approx(1, abs=1e-5)  # float32 values, up to 60 of them
        assert (stage.probs[~stage.kept] == 0).all()
    np.testing.assert_array_equal(logits, before)


@given(logits_of_any_size, settings, st.floats(0, 1, exclude_max=True), st.lists(st.integers(0, 1), max_size=5))
def test_the_loop_chooses_what_the_pages_show(logits, params, u, context) -> None:
    stages = run_pipeline(logits, params, context, n_prompt=1)
    ids = Context(np.array(context, dtype=np.int64), 1, ())
    decision = decide(logits, params.steps(), ids, u)
    assert decision.token_id == choose(stages, u)
    assert decision.prob == pytest.approx(float(stages[-1].probs[decision.token_id]), abs=1e-7)
    assert decision.raw_prob == pytest.approx(float(stages[0].probs[decision.token_id]), abs=1e-6)
    assert decision.n_kept == stages[-1].kept.sum()
    removed = {b.name: int(a.kept.sum() - b.kept.sum()) for a, b in itertools.pairwise(stages)}
    assert dict(decision.removed) == {name: n for name, n in removed.items() if n and name != "greedy"}


@given(logits_of_any_size, st.integers(1, 20), st.integers(1, 20))
def test_kept_sets_shrink_with_k(logits, k, other) -> None:
    small, large = sorted((k, other))
    kept = [run_pipeline(logits, SamplingParams(top_k=n))[-1].kept for n in (small, large)]
    assert not (kept[0] & ~kept[1]).any()


@given(logits_of_any_size, st.floats(0, 1), st.floats(0, 1))
def test_kept_sets_shrink_with_p(logits, p, other) -> None:
    small, large = sorted((p, other))
    kept = [run_pipeline(logits, SamplingParams(top_p=n))[-1].kept for n in (small, large)]
    assert not (kept[0] & ~kept[1]).any()


@given(logits_of_any_size, st.floats(0, 1, exclude_max=True))
def test_greedy_is_top_k_one_is_temperature_to_zero(logits, u) -> None:
    greedy = choose(run_pipeline(logits, SamplingParams(greedy=True)), u)
    assert greedy == int(np.argmax(logits))
    assert choose(run_pipeline(logits, SamplingParams(temperature=1e-6)), u) == greedy
    if (logits == logits.max()).sum() == 1:  # top_k 1 keeps every tied maximum
        assert choose(run_pipeline(logits, SamplingParams(top_k=1)), u) == greedy


@given(logits_of_any_size, st.floats(0.1, 5))
def test_temperature_never_changes_the_order(logits, temperature) -> None:
    scores = run_pipeline(logits, SamplingParams(temperature=temperature))[-1].logits
    order = np.argsort(logits, kind="stable")
    assert (np.diff(scores[order]) >= 0).all()


@given(
    arrays(np.float32, 30, elements=st.floats(-8, 8, width=32), unique=True),
    st.integers(1, 30),
    st.floats(0.3, 3),
)
def test_top_k_commutes_with_temperature(logits, k, temperature) -> None:
    first = run_pipeline(logits, SamplingParams(top_k=k, temperature=temperature, order=("top_k", "temperature")))[-1]
    last = run_pipeline(logits, SamplingParams(top_k=k, temperature=temperature, order=("temperature", "top_k")))[-1]
    if len(np.unique(last.logits)) == len(logits):  # dividing may tie two float32 neighbours
        np.testing.assert_array_equal(first.kept, last.kept)


def test_top_p_does_not_commute_with_temperature() -> None:
    logits = np.log(np.array([0.7, 0.2, 0.05, 0.05])).astype(np.float32)
    kept = [
        run_pipeline(logits, SamplingParams(top_p=0.69, temperature=2.0, order=order))[-1].kept.sum()
        for order in (("temperature", "top_p"), ("top_p", "temperature"))
    ]
    assert kept == [2, 1]


@given(
    arrays(np.float32, st.integers(2, 40), elements=st.floats(-8, 8, width=32), unique=True),
    settings.filter(lambda p: p.repetition_penalty is None),
    st.randoms(use_true_random=False),
)
def test_the_result_does_not_depend_on_the_order_of_the_vocabulary(logits, params, random) -> None:
    permutation = list(range(len(logits)))
    random.shuffle(permutation)
    plain, shuffled = run_pipeline(logits, params)[-1], run_pipeline(logits[permutation], params)[-1]
    if len(np.unique(plain.logits[plain.kept])) == plain.kept.sum():  # ties are kept in id order, by definition
        np.testing.assert_array_equal(plain.kept[permutation], shuffled.kept)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize("size", [3, 5000, 300_000])
def test_logits_of_any_float_type_and_size_are_taken(dtype: Any, size: int) -> None:
    logits = np.random.default_rng(0).normal(0, 3, size).astype(dtype)
    stages = run_pipeline(logits, SamplingParams(temperature=0.8, top_p=0.95))
    assert stages[-1].probs.dtype == np.float32
    assert stages[-1].probs.sum(dtype=np.float64) == pytest.approx(1, abs=1e-4)


def test_top_p_and_the_draw_are_exact_when_the_first_thousand_candidates_do_not_suffice() -> None:
    logits = np.zeros(20_000, dtype=np.float32)  # uniform: every sort of "the leading ones" is a tie
    logits[7] = 0.5
    stages = run_pipeline(logits, SamplingParams(top_p=0.5))
    first = np.exp(0.5) / (np.exp(0.5) + 19_999)
    expected = 1 + np.ceil((0.5 - 1e-6 - first) / ((1 - first) / 19_999))
    assert abs(stages[-1].kept.sum() - expected) <= 1
    assert choose(stages, 0.0) == 7
    assert choose(stages, 0.999999) == np.flatnonzero(stages[-1].kept)[-1]


def test_a_long_list_of_equal_scores_is_kept_whole_by_any_k() -> None:
    for size in (129, 5000, 300_000):
        assert run_pipeline(np.zeros(size), SamplingParams(top_k=1))[-1].kept.all()


def test_the_draw_is_the_inverse_cdf_in_probability_order() -> None:
    logits = np.log(np.array([0.1, 0.6, 0.1, 0.2])).astype(np.float32)
    stages = run_pipeline(logits, SamplingParams())
    assert [choose(stages, u) for u in (0.0, 0.59, 0.61, 0.79, 0.81, 0.89, 0.91, 0.999)] == [
        1,
        1,
        3,
        3,
        0,
        0,
        2,
        2,
    ]


def test_drawing_many_times_follows_the_distribution() -> None:
    stages = run_pipeline(np.log(np.array([0.6, 0.3, 0.1])), SamplingParams())
    draws = [choose(stages, u) for u in np.random.default_rng(1).random(4000)]
    np.testing.assert_allclose(np.bincount(draws) / 4000, [0.6, 0.3, 0.1], atol=0.03)  # 4 standard errors


def test_rank_counts_higher_logits_and_equal_ones_before() -> None:
    logits = np.array([1.0, 3.0, 3.0, 2.0], dtype=np.float32)
    assert [rank_of(logits, i) for i in range(4)] == [4, 1, 2, 3]


def test_your_settings_win_over_the_checkpoints_and_each_knows_its_origin() -> None:
    checkpoint = {"greedy": False, "temperature": 0.6, "top_k": 20, "repetition_penalty": 1.1}
    params, origin = resolve(SamplingParams(temperature=0.9), checkpoint)
    assert (params.temperature, params.top_k, params.repetition_penalty) == (0.9, 20, 1.1)
    assert (origin["temperature"], origin["top_k"], origin["top_p"]) == ("yours", "checkpoint", "default")


def test_without_a_word_on_it_decoding_is_greedy_and_a_setting_that_shapes_a_draw_asks_for_one() -> None:
    assert resolve(SamplingParams(), {})[0].greedy is True
    assert resolve(SamplingParams(repetition_penalty=1.2), {})[0].greedy is True
    assert resolve(SamplingParams(temperature=0.7), {})[0].greedy is False
    assert resolve(SamplingParams(seed=3), {})[0].greedy is False
    assert resolve(SamplingParams(), {"greedy": False})[0].greedy is False
