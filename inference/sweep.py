"""One setting through a range of values, all others held: what is left of a distribution at each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inference.position import Position, settled
from inference.sampling import candidates_of, narrow
from inference.sampling_params import RANGES, SamplingParams
from inference.sampling_steps import Candidates, entropy, softmax


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """A distribution's figures at each of n values of one setting; NaN where the recorded logits cannot tell.

    Attributes:
        name: of the setting.
        values: [n] as given.
        ids: [m] the tokens whose probabilities were asked for, and `probs` [n, m] float32, after all settings.
        n_kept: [n] float64, how many tokens can be chosen.
        entropy: [n] float64, nats.
    """

    name: str
    values: NDArray[np.float64]
    ids: NDArray[np.int64]
    probs: NDArray[np.float32]
    n_kept: NDArray[np.float64]
    entropy: NDArray[np.float64]


def sweep(
    position: Position, params: SamplingParams, name: str, values: Sequence[float], ids: Sequence[int] = ()
) -> Sweep:
    """The settings with `name` at each of `values`; temperature and cuts are for a draw, so greedy is left out."""
    wanted = np.asarray(ids, dtype=np.int64)
    probs = np.full((len(values), len(wanted)), np.nan, dtype=np.float32)
    n_kept, nats = np.full(len(values), np.nan), np.full(len(values), np.nan)
    raw = candidates_of(position.logits)
    for row, value in enumerate(values):
        setting: dict[str, Any] = {name: int(value) if RANGES[name][2] else float(value)}
        changed = replace(params, greedy=False, **setting)
        if not settled(position, changed):
            continue
        left = narrow(raw, changed.steps(), position.context)
        shares = softmax(left.scores)
        probs[row], n_kept[row], nats[row] = _of(left, shares, wanted), len(left.ids), entropy(shares)
    return Sweep(name, np.asarray(values, dtype=np.float64), wanted, probs, n_kept, nats)


def _of(left: Candidates, shares: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """[m] the probabilities of `ids`; 0 for those that are not left."""
    at = np.minimum(np.searchsorted(left.ids, ids), len(left.ids) - 1)
    return np.where(left.ids[at] == ids, shares[at], np.float32(0))
