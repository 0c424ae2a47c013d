"""The map of heads: every head of every layer as a thumbnail, and a few figures that tell kinds of heads apart.

Measured on evenly spaced queries of the run, all of them where that is cheap: each row is exact, over all the keys
that its query sees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inference.attention_rows import LayerRows, Positions, recorded_layers
from inference.errors import N_, TraceError
from inference.trace import Floats, Trace

THUMB = 24  # cells a side of a thumbnail
MOST_WEIGHTS = 2**25  # computed for one map
LEAST_QUERIES = 2 * THUMB


@dataclass(frozen=True, slots=True, eq=False)
class HeadMap:
    """What a map of heads shows.

    Attributes:
        layers: the l layers that the run holds.
        n_kv_heads: G; query heads i and j share a KV head where i // (H / G) = j // (H / G). H where it is not known.
        queries: [q] the positions whose rows were computed, of `n_positions`.
        thumbs: [l, H, n, n] the largest weight of each cell; NaN where no query of the cell sees any key of it.
        measures: name to [l, H]; see `MEASURES`. NaN where a measure has nothing to measure.
    """

    layers: tuple[int, ...]
    n_kv_heads: int
    n_positions: int
    queries: Positions
    thumbs: Floats
    measures: Mapping[str, Floats]

    @property
    def exact(self) -> bool:
        """Whether every query of the run was measured."""
        return len(self.queries) == self.n_positions


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one layer: weights [H, q, K] of the queries at `positions` [q], and the token ids [T] of the run."""

    weights: Floats
    positions: Positions
    ids: NDArray[np.int64]


def entropy(rows: Rows) -> Floats:
    """[H] mean entropy of a row in nats, -sum w ln w: 0 looks at one key, ln K at K keys alike."""
    w = rows.weights
    logs = np.log(np.maximum(w, np.finfo(np.float32).tiny))
    return _mean(-np.einsum("hqk,hqk->hq", w, logs))


def distance(rows: Rows) -> Floats:
    """[H] mean number of positions between a query and the keys it reads, sum w (q - k)."""
    keys = np.arange(rows.weights.shape[-1], dtype=np.float32)
    return _mean(rows.weights.sum(axis=-1) * rows.positions.astype(np.float32) - rows.weights @ keys)


def first_token(rows: Rows) -> Floats:
    """[H] mean weight on position 0, the sink of many models (Xiao et al. 2023, "Attention sinks")."""
    return _mean(rows.weights[:, :, 0])


def previous_token(rows: Rows) -> Floats:
    """[H] mean weight on the position before the query."""
    at = np.arange(len(rows.positions))
    return _mean(rows.weights[:, at, rows.positions - 1])


def induction(rows: Rows) -> Floats:
    """[H] mean weight on the tokens that followed earlier occurrences of the query's own token.

    The prefix-matching score of Olsson et al. 2022, "In-context learning and induction heads", over the queries whose
    token stood somewhere before. NaN where no token repeats.
    """
    n_keys = rows.weights.shape[-1]
    follows = np.zeros((len(rows.positions), n_keys), dtype=np.bool_)
    follows[:, 1:] = rows.ids[: n_keys - 1] == rows.ids[rows.positions][:, None]
    follows &= np.arange(n_keys) <= rows.positions[:, None]
    repeated = follows.any(axis=1)
    if not repeated.any():
        return np.full(len(rows.weights), np.nan, dtype=np.float32)
    chosen = rows.weights[:, repeated]
    return _mean(np.einsum("hqk,qk->hq", chosen, follows[repeated].astype(np.float32)))


MEASURES: Mapping[str, Callable[[Rows], Floats]] = {
    "entropy": entropy,
    "distance": distance,
    "first": first_token,
    "previous": previous_token,
    "induction": induction,
}


def head_map(trace: Trace, side: int = THUMB) -> HeadMap:
    """Thumbnails and measures of all heads that a run holds.

    Raises:
        TraceError: it holds none; the message says why.
    """
    layers = recorded_layers(trace)
    if not layers:
        raise TraceError(
            N_("This run holds no attention weights. {why}"), why=trace.left_out or trace.model.attention_note
        )
    ids = np.array([token.id for token in trace.tokens], dtype=np.int64)
    thumbs, measures = [], []
    for number in layers:
        layer = LayerRows(trace, number)
        queries = sample(layer.n_positions, layer.n_heads * len(layers))
        weights = layer.weights(np.arange(layer.n_heads), queries)
        thumbs.append(_thumbs(layer, weights, queries, side))
        later = queries > 0  # position 0 has nothing but itself to look at
        rows = Rows(weights[:, later], queries[later], ids)
        measures.append({name: measure(rows) for name, measure in MEASURES.items()})
    return HeadMap(
        layers=layers,
        n_kv_heads=layer.n_kv_heads,
        n_positions=layer.n_positions,
        queries=queries,
        thumbs=np.stack(thumbs),
        measures={name: np.stack([found[name] for found in measures]) for name in MEASURES},
    )


def sample(n_positions: int, n_heads: int) -> Positions:
    """Evenly spaced positions, the first and the last among them; so many that all heads cost about `MOST_WEIGHTS`."""
    n = max(LEAST_QUERIES, MOST_WEIGHTS // (n_heads * n_positions))
    return np.unique(np.linspace(0, n_positions - 1, min(n, n_positions)).round().astype(np.int64))


def _thumbs(layer: LayerRows, weights: Floats, queries: Positions, side: int) -> Floats:
    """[H, n, n] the rows pooled; one position a cell where there are at most `side`."""
    n = min(side, layer.n_positions)
    visible = layer.visible(queries)
    shown = np.full((len(weights), len(queries), layer.n_positions), np.nan, dtype=np.float32)
    shown[:, :, : visible.shape[1]] = np.where(visible, weights, np.float32(np.nan))
    edges = np.arange(n) * layer.n_positions // n
    by_key = np.fmax.reduceat(shown, edges, axis=2)
    pooled: Floats = np.fmax.reduceat(by_key, np.searchsorted(queries, edges), axis=1)
    return pooled


def _mean(by_query: Floats) -> Floats:
    """[H] the mean over the queries of [H, q]; NaN for none."""
    if not by_query.shape[1]:
        return np.full(len(by_query), np.nan, dtype=np.float32)
    mean: Floats = by_query.mean(axis=1, dtype=np.float64).astype(np.float32)
    return mean
