"""The same run with a cache and without one, for real: the times, and how far apart the logits are.

Both ways follow the tokens of the recorded run, so that every step compares the same context; they take turns, so
that a busy machine slows both. Recording is off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inference.models import LoadedModel
from inference.trace import Trace
from inference.walk import Chooser, check_model, feed

# Largest distance between logits that rounding explains: the two ways add up in another order. Measured: 5e-5 in
# float32 and 0.2 in bfloat16; a key at a wrong position moves them by 1 and more.
TOLERANCE = {"float32": 2e-3, "float16": 0.05, "bfloat16": 0.5}


@dataclass(frozen=True, slots=True)
class Parity:
    """N steps both ways.

    Attributes:
        cached_s, uncached_s: [N] seconds of each step's pass.
        difference: [N] largest absolute difference of two logits.
        tolerance: what rounding explains of it for the model's element type.
        cached_ids, uncached_ids: [N] the token that each way would have chosen, under the run's settings and numbers.
    """

    n_prompt: int
    cached_s: NDArray[np.float64]
    uncached_s: NDArray[np.float64]
    difference: NDArray[np.float64]
    tolerance: float
    cached_ids: NDArray[np.int64]
    uncached_ids: NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return 5 * self.cached_s.nbytes


def both_ways(
    model: LoadedModel,
    trace: Trace,
    n_steps: int,
    progress: Callable[[float], None] = lambda share: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Parity | None:
    """The first `n_steps` steps of a run, with a cache and without; `None` where it was cancelled.

    Raises:
        TraceError: another model made the run.
        MemoryLimitError: a pass did not fit.
    """
    check_model(model, trace)
    n_steps = min(n_steps, len(trace.steps))
    ids = np.array([token.id for token in trace.tokens], dtype=np.int64)
    cache, choose, rows = model.forward.new_cache(), Chooser(trace, n_steps), []
    for step in range(n_steps):
        if cancelled():
            return None
        context = trace.context_ids(step)
        cached, with_s = feed(model, context[trace.first_position(step) :], cache)
        uncached, without_s = feed(model, context, None)
        distance = float(np.abs(cached - uncached).max())
        tokens = [choose(logits, ids[: len(context)], step).token_id for logits in (cached, uncached)]
        rows.append((with_s, without_s, distance, *tokens))
        progress((step + 1) / n_steps)
    cached_s, uncached_s, apart, cached_ids, uncached_ids = (np.array(column) for column in zip(*rows, strict=True))
    return Parity(trace.n_prompt, cached_s, uncached_s, apart, TOLERANCE[model.facts.dtype], cached_ids, uncached_ids)
