"""How much work a KV cache saves, counted: keys and values projected, and attention dot products.

A prompt of P tokens and N new ones take N passes. With a cache each of the P + N - 1 positions that are ever fed is
projected once; without one, every pass projects all positions so far again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]


def projected(n_prompt: int, n_new: int, cached: bool) -> Counts:
    """[N] positions whose keys and values each pass computes, in every layer."""
    every = n_prompt + np.arange(n_new, dtype=np.int64)
    return np.where(np.arange(n_new) == 0, n_prompt, 1) if cached else every


def dot_products(n_prompt: int, n_new: int, cached: bool) -> Counts:
    """[N] query-key pairs each pass computes, a head and layer of full causal attention.

    The pairs of positions that are new in a pass are the same either way; without a cache those of all earlier
    queries are computed again beside them.
    """
    end = n_prompt + np.arange(n_new, dtype=np.int64)
    pairs = end * (end + 1) // 2
    return np.diff(pairs, prepend=0) if cached else pairs
