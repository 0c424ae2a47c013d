"""Drawing many times, against the choice of one draw and binomial sums in fractions."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest

from inference.draws import draw_many, expected_band
from inference.sampling import SamplingParams, choose, run_pipeline

LOGITS = np.random.default_rng(4).normal(0, 2, 300).astype(np.float32)


def test_a_thousand_draws_are_a_thousand_choices_at_the_same_numbers() -> None:
    stages = run_pipeline(LOGITS, SamplingParams(temperature=0.9, top_k=40))
    drawn = draw_many(stages[-1], 1000, seed=5)
    singly = [choose(stages, u) for u in np.random.default_rng(5).random(1000)]
    assert dict(zip(drawn.ids.tolist(), drawn.counts.tolist(), strict=True)) == {
        i: singly.count(i) for i in np.flatnonzero(stages[-1].kept)
    }
    assert drawn.counts.sum() == 1000


def test_a_seed_gives_the_same_draws_again_and_another_seed_others() -> None:
    stage = run_pipeline(LOGITS, SamplingParams(top_k=40))[-1]
    first, again, other = (draw_many(stage, 1000, seed).counts.tolist() for seed in (1, 1, 2))
    assert first == again != other


def test_the_tokens_stand_in_the_order_of_their_probability() -> None:
    stage = run_pipeline(LOGITS, SamplingParams(top_k=40))[-1]
    drawn = draw_many(stage, 10, 0)
    assert len(drawn.ids) == 40
    assert (np.diff(drawn.probs) <= 0).all()


@pytest.mark.parametrize(("n", "share"), [(10, Fraction(1, 2)), (100, Fraction(3, 5)), (1000, Fraction(1, 50))])
def test_the_band_is_the_central_interval_of_the_binomial_distribution(n: int, share: Fraction) -> None:
    low, high = expected_band(n, float(share))
    mass = [comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(n + 1)]
    assert sum(mass[low : high + 1]) >= Fraction(95, 100)
    assert sum(mass[:low]) <= Fraction(25, 1000) < sum(mass[: low + 1])
    assert sum(mass[high + 1 :]) <= Fraction(25, 1000) < sum(mass[high:])


def test_ten_throws_of_a_coin_fall_on_two_to_eight_heads() -> None:
    assert expected_band(10, 0.5) == (2, 8)  # P(0 or 1) = 11 / 1024, P(0, 1 or 2) = 56 / 1024


def test_what_is_certain_has_no_band() -> None:
    assert expected_band(1000, 1.0) == (1000, 1000)
    assert expected_band(1000, 0.0) == (0, 0)
