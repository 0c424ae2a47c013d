"""Masks as arrays, and the softmax with a mask on scores that can be checked by hand.

A mask is `[Q, K]` bool: true where a query may see a key. Which mask a model uses belongs to its architecture: a
decoder-only model is causal, BERT sees everything, T5 has an encoder that sees everything and a causal decoder
that also reads the whole encoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inference.errors import N_, InferenceError

Mask = NDArray[np.bool_]
Reals = NDArray[np.float64]

MOST_SCORES = 16
LARGEST_SCORE = 1e6


def causal(n_queries: int, n_keys: int) -> Mask:
    """[Q, K] each query sees the keys up to its own position; the queries are the last of the K positions."""
    return np.tri(n_queries, n_keys, n_keys - n_queries, dtype=np.bool_)


def sliding(n_queries: int, n_keys: int, window: int) -> Mask:
    """[Q, K] causal, and no further back than `window` keys, the query's own among them."""
    return causal(n_queries, n_keys) & ~np.tri(n_queries, n_keys, n_keys - n_queries - window, dtype=np.bool_)


def prefix(n: int, n_prefix: int) -> Mask:
    """[n, n] causal, but the first `n_prefix` positions see each other in both directions (a prefix LM)."""
    return causal(n, n) | (np.arange(n) < n_prefix)


def everything(n_queries: int, n_keys: int) -> Mask:
    """[Q, K] nothing is hidden: an encoder's self-attention, or a decoder's cross-attention to the encoder."""
    return np.ones((n_queries, n_keys), dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class Example:
    """A softmax with a mask, step by step; every array [n] float64.

    Attributes:
        scores: as typed.
        masked: -inf where hidden.
        exps: exp of the masked scores less their largest.
        weights: `exps` over their sum; all 0 where no key is visible, for there is nothing to share out.
    """

    scores: Reals
    masked: Reals
    exps: Reals
    weights: Reals

    @property
    def any_visible(self) -> bool:
        """Whether the row sees any key."""
        return bool(np.isfinite(self.masked).any())


def softmax_with_mask(scores: Sequence[float], hidden: Sequence[int]) -> Example:
    """The softmax over the scores whose positions are not in `hidden`."""
    given = np.array(scores, dtype=np.float64)
    masked = given.copy()
    masked[list(hidden)] = -np.inf
    top = masked.max(initial=-np.inf)
    exps = np.exp(masked - top) if np.isfinite(top) else np.zeros_like(masked)
    return Example(given, masked, exps, exps / (exps.sum() or 1.0))


def parse_scores(text: str) -> list[float]:
    """Numbers that somebody typed, separated by commas or spaces; brackets are ignored.

    Raises:
        InferenceError: something is no number, or too large, or there are none or too many.
    """
    parts = text.replace("，", " ").replace("、", " ").replace(",", " ").replace(";", " ").strip(" []()").split()
    if not 1 <= len(parts) <= MOST_SCORES:
        raise InferenceError(
            N_("There are {n} scores; it takes 1 to {most}."), N_("Type numbers such as 2, 1, 5."), n=len(parts),
            most=MOST_SCORES,
        )  # fmt: skip
    return [_score(part) for part in parts]


def _score(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InferenceError(
            N_("“{text}” is not a number."), N_("Type numbers such as 2, 1, 5."), text=text[:20]
        ) from None
    if not abs(value) <= LARGEST_SCORE:  # NaN too
        raise InferenceError(N_("“{text}” is not between -1,000,000 and 1,000,000."), text=text[:20])
    return value
