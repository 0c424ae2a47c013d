"""Attention weights from stored queries and keys: exact, on demand, without the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """What a layer's attention does with its scores besides the mask.

    weights = softmax(soft-cap(q · k * scale)), the softmax with one extra `sinks` column a head that is then dropped.
    `n_heads` counts query heads; `window` is how many keys a query sees at most, itself included.
    """

    n_heads: int
    scale: float
    softcap: float | None = None
    sinks: Floats | None = None
    window: int | None = None


def attention_weights(
    queries: Floats, keys: Floats, spec: LayerSpec, visible: NDArray[np.bool_], heads: NDArray[np.intp]
) -> Floats:
    """Weights [h, Q, K] of some query heads: softmax over the visible keys of q · k, scaled and soft-capped.

    Args:
        queries: [h, Q, D] of the heads in `heads`.
        keys: [G, K, D]; query head i reads KV head i // (H / G), as in grouped-query attention.
        visible: [Q, K]; what is not visible is exactly 0, and a row that sees nothing is all 0.
        heads: [h] the query heads' numbers; `spec.n_heads` tells how many there are in all.
    """
    weights = attention_scores(queries, keys, spec, heads)  # from here on in place: for long rows memory is the limit
    np.copyto(weights, np.float32(-np.inf), where=~visible)
    top = weights.max(axis=-1, keepdims=True)
    sinks = None if spec.sinks is None else spec.sinks[heads][:, None, None]
    if sinks is not None:
        top = np.maximum(top, sinks)
    weights -= np.where(np.isfinite(top), top, 0)
    np.exp(weights, out=weights)
    total = weights.sum(axis=-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks - top)
    weights /= np.where(total > 0, total, 1)
    return weights


def attention_scores(queries: Floats, keys: Floats, spec: LayerSpec, heads: NDArray[np.intp]) -> Floats:
    """Scores [h, Q, K] before the mask: q · k times the scale, and soft-capped where the layer does so."""
    of_group = keys[heads // (spec.n_heads // len(keys))]
    scores: Floats = queries @ of_group.transpose(0, 2, 1)
    scores *= np.float32(spec.scale)
    if spec.softcap is not None:
        scores = np.float32(spec.softcap) * np.tanh(scores / np.float32(spec.softcap))
    return scores


def widen(stored: NDArray[Any], element: str) -> Floats:
    """Stored values as float32; `"bfloat16"` ones are uint16 bit patterns, the upper half of a float32."""
    if element == "bfloat16":
        return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return stored.astype(np.float32, copy=False)
