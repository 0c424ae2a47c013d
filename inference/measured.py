"""Measured times: what a sweep found, the machine it was found on, its table, and the curve that fits it best."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was measured."""

    machine: str
    model: str
    device: str
    dtype: str


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """One thing measured at several places.

    Attributes:
        name: what was measured: "prefill", "cached", "uncached" or "chunked".
        x: [n] tokens, ascending.
        seconds: [R, n], one row a round, without the round that warmed up.
    """

    name: str
    x: NDArray[np.int64]
    seconds: NDArray[np.float64]

    @property
    def median_s(self) -> NDArray[np.float64]:
        """[n] medians of the rounds."""
        return np.asarray(np.median(self.seconds, axis=0))

    @property
    def spread_s(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """[n] the fastest round and [n] the slowest."""
        return self.seconds.min(axis=0), self.seconds.max(axis=0)


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """What one sweep found; `fixed` is the tokens that stayed the same, 0 where none did."""

    kind: str
    place: Place
    lines: tuple[Line, ...]
    fixed: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(line.x.nbytes + line.seconds.nbytes for line in self.lines)


@dataclass(frozen=True, slots=True)
class Fit:
    """seconds = fixed + linear · T + quadratic · T², no part below 0."""

    fixed: float
    linear: float
    quadratic: float

    def parts(self, tokens: NDArray[np.int64] | NDArray[np.float64]) -> NDArray[np.float64]:
        """[3, n] seconds of the fixed, the linear and the quadratic part."""
        powers = np.stack([np.ones(len(tokens)), tokens.astype(float), tokens.astype(float) ** 2])
        weighted: NDArray[np.float64] = powers * np.array([[self.fixed], [self.linear], [self.quadratic]])
        return weighted


def fit(x: NDArray[np.int64], seconds: NDArray[np.float64], degree: int = 2) -> Fit:
    """Least squares of the relative errors, so that short passes count as much as long ones.

    Of all choices of parts, the best one without a negative part: time does not shrink with work.
    """
    powers = np.stack([x.astype(float) ** p for p in range(degree + 1)], axis=1) / seconds[:, None]
    best, smallest = np.zeros(degree + 1), np.inf
    for n in range(1, min(degree + 1, len(x)) + 1):
        for chosen in combinations(range(degree + 1), n):
            found = np.linalg.lstsq(powers[:, chosen], np.ones(len(x)), rcond=None)[0]
            left = float(((powers[:, chosen] @ found - 1) ** 2).sum())
            if (found >= 0).all() and left < smallest - 1e-12:
                best, smallest = np.zeros(degree + 1), left
                best[list(chosen)] = found
    fixed, linear, quadratic = (*best, 0.0, 0.0)[:3]
    return Fit(float(fixed), float(linear), float(quadratic))


def sweep_table(sweep: Sweep) -> pd.DataFrame:
    """One row a place, line and round, as the CSV export has it: times as measured, in seconds."""
    place = sweep.place
    where = (place.machine, place.model, place.device, place.dtype)
    rows = [
        (sweep.kind, line.name, int(x), sweep.fixed, index, float(seconds), *where)
        for line in sweep.lines
        for index, times in enumerate(line.seconds)
        for x, seconds in zip(line.x, times, strict=True)
    ]
    columns = ("sweep", "line", "tokens", "fixed_tokens", "round", "seconds", "machine", "model", "device", "dtype")
    return pd.DataFrame(rows, columns=list(columns))
