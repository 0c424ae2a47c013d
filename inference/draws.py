"""Drawing many times from one distribution: how often each token comes, and how often chance lets it come."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inference.sampling import SamplerStage

COVERAGE = 0.95


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """The counts of `n` independent draws, in the order of probability, of the tokens that can be drawn.

    Attributes:
        ids: [k] token ids.
        probs: [k] probabilities that were drawn from.
        counts: [k] how often each came.
    """

    n: int
    ids: NDArray[np.int64]
    probs: NDArray[np.float64]
    counts: NDArray[np.int64]


def draw_many(stage: SamplerStage, n: int, seed: int) -> Draws:
    """`n` draws by the inverse CDF in probability order, as in a run, with the uniform numbers of a seed."""
    ids = np.flatnonzero(stage.kept)
    order = np.argsort(-stage.probs[ids], kind="stable")
    ids, probs = ids[order], stage.probs[ids][order].astype(np.float64)
    u = np.random.default_rng(seed).random(n)
    at = np.minimum(np.searchsorted(np.cumsum(probs), u, side="right"), len(ids) - 1)
    return Draws(n, ids, probs, np.bincount(at, minlength=len(ids)))


def expected_band(n: int, prob: float, coverage: float = COVERAGE) -> tuple[int, int]:
    """The counts between which a token of probability `prob` stays in at least `coverage` of all series of `n` draws.

    The central interval of the binomial distribution: outside it lies at most half of the rest on either side.
    """
    if not 0 < prob < 1:
        return (0, 0) if prob <= 0 else (n, n)
    k = np.arange(n + 1)
    log_factorial = np.array([math.lgamma(i + 1) for i in range(n + 1)])
    log_choices = log_factorial[n] - log_factorial[k] - log_factorial[n - k]
    below = np.cumsum(np.exp(log_choices + k * math.log(prob) + (n - k) * math.log1p(-prob)))
    tail = (1 - coverage) / 2
    return int(np.searchsorted(below, tail, side="right")), int(np.searchsorted(below, 1 - tail))
