"""Masks against transformers' own, and the softmax with a mask against figures worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers.masking_utils import (
    causal_mask_function,
    sdpa_mask,
    sliding_window_causal_mask_function,
)

from inference.errors import InferenceError
from inference.masks import causal, everything, parse_scores, prefix, sliding, softmax_with_mask


def of_transformers(function: object, n_queries: int, n_keys: int) -> np.ndarray:
    found = sdpa_mask(
        batch_size=1,
        q_length=n_queries,
        kv_length=n_keys,
        q_offset=n_keys - n_queries,
        mask_function=function,
        allow_is_causal_skip=False,
        device=torch.device("cpu"),
    )
    return found[0, 0].numpy()


@pytest.mark.parametrize(("n_queries", "n_keys"), [(6, 6), (1, 9), (3, 8)])
def test_causal_and_sliding_masks_are_those_of_transformers(n_queries: int, n_keys: int) -> None:
    assert np.array_equal(causal(n_queries, n_keys), of_transformers(causal_mask_function, n_queries, n_keys))
    for window in (1, 3, 20):
        theirs = of_transformers(sliding_window_causal_mask_function(window), n_queries, n_keys)
        assert np.array_equal(sliding(n_queries, n_keys, window), theirs)


def test_a_prefix_sees_itself_both_ways_and_the_rest_is_causal() -> None:
    assert prefix(4, 2).astype(int).tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
    assert np.array_equal(prefix(5, 0), causal(5, 5))
    assert np.array_equal(prefix(5, 5), everything(5, 5))


def test_the_third_score_hidden_leaves_the_softmax_of_the_first_two() -> None:
    found = softmax_with_mask([2, 1, 5], [2])
    np.testing.assert_allclose(found.weights, [0.7311, 0.2689, 0], atol=5e-5)
    assert found.weights[2] == 0
    assert found.masked.tolist() == [2, 1, -np.inf]


def test_nothing_hidden_is_torchs_softmax() -> None:
    scores = [0.5, -3.0, 7.25, 7.0]
    expected = torch.softmax(torch.tensor(scores, dtype=torch.float64), 0).numpy()
    np.testing.assert_allclose(softmax_with_mask(scores, []).weights, expected, rtol=1e-12)


def test_a_row_without_a_visible_key_has_weights_of_zero_and_says_so() -> None:
    found = softmax_with_mask([2, 1], [0, 1])
    assert not found.any_visible
    assert found.weights.tolist() == [0, 0]


def test_scores_of_any_size_do_not_overflow() -> None:
    assert softmax_with_mask([1e6, -1e6], []).weights.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("text", "scores"),
    [("2, 1, 5", [2, 1, 5]), ("[2,1,5]", [2, 1, 5]), (" -1.5 2e3 ", [-1.5, 2000]), ("2，1、5", [2, 1, 5])],
)
def test_scores_are_read_as_people_type_them(text: str, scores: list[float]) -> None:
    assert parse_scores(text) == scores


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "There are 0 scores; it takes 1 to 16"),
        ("1 " * 17, "There are 17 scores; it takes 1 to 16"),
        ("2, x, 5", "“x” is not a number. Type numbers such as 2, 1, 5"),
        ("nan", "“nan” is not between"),
        ("1e9", "“1e9” is not between"),
    ],
)
def test_what_is_no_score_is_refused_with_the_limit(text: str, said: str) -> None:
    with pytest.raises(InferenceError, match=said):
        parse_scores(text)
