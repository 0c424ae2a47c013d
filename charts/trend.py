"""Small trend lines: a series of one value a step as an SVG path, with the current step's point."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

WIDTH, HEIGHT, MARGIN = 120.0, 28.0, 3.0
MOST_POINTS = 120


@dataclass(frozen=True, slots=True)
class Trend:
    """A line in a box of 120 × 28 units: the SVG path `d`, and the point of the current step, y downwards.

    `y` is `None` where the step has no value; `x` is its place all the same.
    """

    path: str
    x: float
    y: float | None


def trend(values: ArrayLike, step: int) -> Trend:
    """The line of one value a step, scaled to the box; a constant series lies in the middle.

    A series of more than 120 values is drawn through the lowest and the highest of each stretch, in their order, so
    that no peak is lost. Values that are not finite leave a gap.

    Args:
        values: [N], one a step.
        step: the current one.
    """
    series = np.asarray(values, dtype=np.float64)
    xs, ys = _scaled(series)
    keep = _kept(series)
    finite = np.isfinite(ys)
    pieces, pen_down = [], False
    for at in keep:
        if finite[at]:
            pieces.append(f"{'L' if pen_down else 'M'}{xs[at]:.1f} {ys[at]:.1f}")
        pen_down = bool(finite[at])
    return Trend("".join(pieces), round(float(xs[step]), 1), round(float(ys[step]), 1) if finite[step] else None)


def _scaled(series: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    finite = series[np.isfinite(series)]
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
    xs = MARGIN + np.linspace(0, 1, len(series)) * (WIDTH - 2 * MARGIN) if len(series) > 1 else np.array([WIDTH / 2])
    share = (series - low) / (high - low) if high > low else np.where(np.isfinite(series), 0.5, np.nan)
    return xs, HEIGHT - MARGIN - share * (HEIGHT - 2 * MARGIN)


def _kept(series: NDArray[np.float64]) -> NDArray[np.int64]:
    """Positions to draw: all, or the lowest and highest of each of 60 stretches."""
    if len(series) <= MOST_POINTS:
        return np.arange(len(series))
    filled = np.where(np.isfinite(series), series, np.inf)
    emptied = np.where(np.isfinite(series), series, -np.inf)
    edges = np.linspace(0, len(series), MOST_POINTS // 2 + 1).astype(np.int64)
    found = [{a + int(filled[a:b].argmin()), a + int(emptied[a:b].argmax())} for a, b in pairwise(edges)]
    return np.array(sorted(set().union(*found)), dtype=np.int64)
