"""Lists of lengths: as people type them, and drawn with a seed."""

import numpy as np
import pytest

from inference.errors import CalculatorError
from inference.kv_config import parse_json
from inference.kv_layers import MAX_TOKENS
from inference.kv_lengths import DISTRIBUTIONS, MOST_LENGTHS, draw_lengths, parse_lengths


@pytest.mark.parametrize("text", ["100,4096,7", " 100, 4096; 7 ", "100\n4096\n7\n", "100\t4096 7", "100，4096、7"])
def test_lengths_may_be_separated_in_any_usual_way(text: str) -> None:
    assert parse_lengths(text) == (100, 4096, 7)


@pytest.mark.parametrize(
    ("text", "place", "entry"),
    [
        ("100, 0, 7", 2, "'0'"),
        ("100, 4096, -7", 3, "'-7'"),
        ("nan", 1, "'nan'"),
        ("1, 2, 3.5", 3, "'3.5'"),
        ("8k 100", 1, "'8k'"),
        (f"1 {MAX_TOKENS + 1}", 2, f"'{MAX_TOKENS + 1}'"),
        ("5, " + "9" * 5000, 2, "'9999"),
        ("5, ٣", 2, "'٣'"),
    ],
)
def test_the_one_bad_entry_of_a_list_is_named_with_its_place(text: str, place: int, entry: str) -> None:
    with pytest.raises(CalculatorError) as caught:
        parse_lengths(text)
    assert str(caught.value).startswith(f"Entry {place} of the list is {entry}")
    assert len(str(caught.value)) < 200


def test_an_empty_list_and_one_of_ten_thousand_and_one_lengths_are_refused() -> None:
    assert len(parse_lengths("1 " * MOST_LENGTHS)) == MOST_LENGTHS
    with pytest.raises(CalculatorError, match="no lengths"):
        parse_lengths(" , ; \n")
    with pytest.raises(CalculatorError, match="10,001 lengths; at most 10,000"):
        parse_lengths("1 " * (MOST_LENGTHS + 1))


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_drawn_lengths_have_the_mean_that_was_asked_for_and_come_back_with_their_seed(distribution: str) -> None:
    drawn = draw_lengths(distribution, 10_000, 4096, seed=7)
    assert drawn == draw_lengths(distribution, 10_000, 4096, seed=7)
    assert drawn != draw_lengths(distribution, 10_000, 4096, seed=8)
    assert np.mean(drawn) == pytest.approx(4096, rel=0.05)  # standard error below 1.4 %
    assert min(drawn) >= 1


def test_lengths_of_mean_one_are_never_below_one() -> None:
    assert min(min(draw_lengths(name, 1000, 1, seed=1)) for name in DISTRIBUTIONS) == 1


@pytest.mark.parametrize(
    ("distribution", "count", "mean", "seed", "words"),
    [
        ("zipf", 1, 1, 1, "no distribution 'zipf'"),
        ("uniform", 0, 1, 1, "count must be"),
        ("uniform", 1, -4, 1, "mean must be"),
        ("uniform", 1, 1, -1, "seed must be"),
        ("uniform", 1, float("nan"), 1, "mean must be"),
    ],
)
def test_figures_that_cannot_be_drawn_from_are_refused(
    distribution: str, count: int, mean: int, seed: int, words: str
) -> None:
    with pytest.raises(CalculatorError, match=words):
        draw_lengths(distribution, count, mean, seed)


@pytest.mark.parametrize("text", ["", "{", "hidden_size: 4096", "[" * 100_000, "1" * 5000])
def test_a_config_that_is_not_json_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(CalculatorError, match="The text is not JSON: "):
        parse_json(text)
