"""Attention of whole runs, a block of rows at a time: any rows of a layer, and matrices pooled to what a page shows.

A matrix of T x T weights is never built: rows are computed in blocks and pooled at once, so that memory stays
bounded for prompts of thousands of tokens.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inference.attention import LayerSpec, attention_scores, attention_weights, widen
from inference.errors import N_, TraceError
from inference.trace import Floats, Trace

Positions = NDArray[np.int64]

MOST_CELLS = 256  # a side of a drawn matrix; more blank the page, so they are pooled
THREADS = 2  # blocks at a time
BLOCK = 2**18  # weights computed at a time: what stays near the processor


@dataclass(frozen=True, slots=True)
class Axis:
    """A side of a drawn matrix: positions `start` to before `stop`, in at most `most` cells of equal size."""

    start: int
    stop: int
    most: int = MOST_CELLS

    @property
    def cell(self) -> int:
        """Positions a cell."""
        return -(-(self.stop - self.start) // self.most)

    @property
    def starts(self) -> Positions:
        """[n] the first position of each cell."""
        return np.arange(self.start, self.stop, self.cell)


def n_fed(trace: Trace) -> int:
    """Positions that the run fed to the model: the prompt and every chosen token but the last."""
    return trace.n_prompt + max(0, len(trace.steps) - 1)


def axis_of(n_positions: int, part: tuple[int, int] | None = None, most: int = MOST_CELLS) -> Axis:
    """The part of an axis of `n_positions` that is asked for, cut to what there is; all of it for `None`.

    Raises:
        TraceError: nothing is left of it.
    """
    start, stop = (0, n_positions) if part is None else (max(0, part[0]), min(n_positions, part[1]))
    if start >= stop:
        asked = part or (start, stop)
        raise TraceError(
            N_("There is nothing to draw from position {start} to {stop}; this step has {n} positions."),
            start=asked[0],
            stop=asked[1],
            n=n_positions,
        )
    return Axis(start, stop, most)


def check_place(trace: Trace, layer: int, head: int) -> None:
    """Refuse a layer or head that the model does not have, with both numbers."""
    if not 0 <= layer < trace.model.n_layers:
        raise TraceError(N_("There is no layer {layer}; the model has {n}."), layer=layer, n=trace.model.n_layers)
    if not 0 <= head < trace.model.n_heads:
        raise TraceError(N_("There is no head {head}; the model has {n} a layer."), head=head, n=trace.model.n_heads)


def recorded_layers(trace: Trace) -> tuple[int, ...]:
    """The layers whose weights this run can show."""
    if not trace.steps:
        return ()
    first = trace.steps[0]
    if first.weights is not None:
        return tuple(layer for layer, kept in enumerate(first.weights) if kept.size)
    if first.attention is None:
        return ()
    kept = zip(first.attention.queries, trace.layers, strict=True)
    return tuple(i for i, (queries, spec) in enumerate(kept) if queries.size and spec is not None)


class LayerRows:
    """One layer of a run over all T positions that the run fed: what its queries read, row by row.

    Args:
        steps: how many of the run's steps; all for `None`.

    Raises:
        TraceError: the run does not hold this layer; the message says why.
    """

    def __init__(self, trace: Trace, layer: int, steps: int | None = None) -> None:
        self._trace, self.number = trace, layer
        self._n_steps = len(trace.steps) if steps is None else steps
        self.n_positions = trace.n_prompt + self._n_steps - 1
        self.spec: LayerSpec | None = None
        if trace.steps[0].weights is None:
            self._gather()

    def _gather(self) -> None:
        trace, layer = self._trace, self.number
        last = self._n_steps - 1
        self.keys = trace.keys(last, layer)
        self.spec = trace.spec(layer)
        records = [step.attention for step in trace.steps[: self._n_steps]]
        kept = [record for record in records if record is not None]
        self._queries = np.concatenate([record.queries[layer] for record in kept], axis=1)
        self._spans = np.concatenate([record.visible[layer] for record in kept])

    @property
    def n_heads(self) -> int:
        """H of this layer."""
        kept = self._trace.steps[0].weights
        return len(self._queries) if kept is None else len(kept[self.number])

    @property
    def n_kv_heads(self) -> int:
        """G of this layer; H where whole weights were kept and the groups cannot be told."""
        return self.n_heads if self.spec is None else len(self.keys)

    def queries(self, heads: NDArray[np.intp], positions: Positions) -> Floats:
        """[h, r, D] queries as float32."""
        return widen(self._queries[heads[:, None], positions], self._trace.element)

    def visible(self, positions: Positions) -> NDArray[np.bool_]:
        """[r, K] which keys the queries at `positions` see; K ends where none of them sees further."""
        if self.spec is None:
            return np.asarray(self._kept(np.arange(self.n_heads), positions).any(axis=0))
        spans, keys = self._spans[positions], np.arange(self._reach(positions))
        return np.asarray((keys >= spans[:, :1]) & (keys < spans[:, 1:]))

    def weights(
        self, heads: NDArray[np.intp], positions: Positions, visible: NDArray[np.bool_] | None = None
    ) -> Floats:
        """[h, r, K] weights of the queries at `positions`, exactly 0 where masked; `visible` if it is known already."""
        if self.spec is None:
            return self._kept(heads, positions)
        if visible is None:
            visible = self.visible(positions)
        keys = self.keys[:, : visible.shape[1]]
        return attention_weights(self.queries(heads, positions), keys, self.spec, visible, heads)

    def _reach(self, positions: Positions) -> int:
        """How many keys it takes to hold all that the queries at `positions` see."""
        return max(1, int(self._spans[positions, 1].max()))

    def _kept(self, heads: NDArray[np.intp], positions: Positions) -> Floats:
        """The same from the whole weights that an eager model gave."""
        rows = [self._kept_row(heads, position) for position in positions.tolist()]
        found = np.zeros((len(heads), len(rows), max(row.shape[1] for row in rows)), dtype=np.float32)
        for at, row in enumerate(rows):
            found[:, at, : row.shape[1]] = row
        return found

    def _kept_row(self, heads: NDArray[np.intp], position: int) -> Floats:
        step = max(0, position - self._trace.n_prompt + 1)
        kept = self._trace.steps[step].weights
        assert kept is not None  # the first step has them, so each one has
        row: Floats = kept[self.number][heads, position - self._trace.first_position(step)]
        return row


def pooled(layer: LayerRows, head: int, queries: Axis, keys: Axis) -> Floats:
    """[n, m] the largest weight of each cell of one head; NaN where no query of the cell sees any key of it.

    With one position a cell these are the weights themselves. Each softmax runs over all keys that its query sees,
    also those outside `keys`.
    """
    found = np.full((len(queries.starts), len(keys.starts)), np.nan, dtype=np.float32)
    size = max(1, BLOCK // (layer.n_positions * queries.cell)) * queries.cell

    def fill(start: int) -> None:
        positions = np.arange(start, min(start + size, queries.stop))
        visible = layer.visible(positions)
        weights = layer.weights(np.array([head]), positions, visible)[0]
        seen = np.where(visible, weights, np.float32(np.nan))[:, keys.start : keys.stop]
        if seen.shape[1]:
            cells = pool(seen, queries.cell, keys.cell)
            first = (start - queries.start) // queries.cell
            found[first : first + len(cells), : cells.shape[1]] = cells

    with ThreadPoolExecutor(THREADS) as threads:  # NumPy computes without holding the interpreter
        list(threads.map(fill, range(queries.start, queries.stop, size)))
    return found


def pool(values: Floats, rows: int, columns: int) -> Floats:
    """[..., n, m] the largest value of each cell of `rows` x `columns` values; NaN where all of them are."""
    *batch, n, m = values.shape
    spare = [(0, 0)] * len(batch) + [(0, -n % rows), (0, -m % columns)]
    if any(more for _, more in spare):
        values = np.pad(values, spare, constant_values=np.float32(np.nan))
    n, m = -(-n // rows), -(-m // columns)
    # much faster than reduceat, which takes its segments one by one
    largest: Floats = np.fmax.reduce(values.reshape(*batch, n, rows, m * columns), axis=-2)
    return np.fmax.reduce(largest.reshape(*batch, n, m, columns), axis=-1)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Stages:
    """The way from queries and keys to weights, for a few pairs; every array [n, m] float32.

    Attributes:
        queries, keys: [n] and [m] their positions.
        products: q · k.
        scores: `products` times `scale`, soft-capped where the layer does so.
        masked: `scores`, -inf where the mask hides the key.
        weights: the softmax of the whole rows, NaN where hidden; `keys` need not hold all of a row.
    """

    queries: Positions
    keys: Positions
    products: Floats
    scores: Floats
    masked: Floats
    weights: Floats
    scale: float
    softcap: float | None


def stages(layer: LayerRows, head: int, queries: Positions, keys: Positions) -> Stages:
    """How some queries of a head come to their weights on some keys.

    Raises:
        TraceError: the run holds whole weights instead of queries and keys.
    """
    if layer.spec is None:
        raise TraceError(
            N_("This run holds the weights that an eager model gave, without the queries and keys behind them.")
        )
    heads = np.array([head])
    products = layer.queries(heads, queries)[0] @ layer.keys[head // (layer.n_heads // layer.n_kv_heads), keys].T
    scores = attention_scores(layer.queries(heads, queries), layer.keys, layer.spec, heads)[0][:, keys]
    visible = np.zeros((len(queries), layer.n_positions), dtype=np.bool_)
    weights = np.zeros(visible.shape, dtype=np.float32)
    seen = layer.visible(queries)
    visible[:, : seen.shape[1]], weights[:, : seen.shape[1]] = seen, layer.weights(heads, queries)[0]
    hidden = ~visible[:, keys]
    return Stages(
        queries=queries,
        keys=keys,
        products=products,
        scores=scores,
        masked=np.where(hidden, np.float32(-np.inf), scores),
        weights=np.where(hidden, np.float32(np.nan), weights[:, keys]),
        scale=layer.spec.scale,
        softcap=layer.spec.softcap,
    )
