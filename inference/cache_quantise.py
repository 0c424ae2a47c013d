"""The run again with a quantised cache, for real: how wrong keys and values are, and what that does to the logits.

A pass computes with its own keys and values as they are; then they are stored rounded to the format, and later passes
read them so. As in transformers' `QuantizedCache`, the prompt is rounded at once, after the prefill; unlike there, new
positions are rounded one by one, so nothing is rounded twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inference.elements import element_type
from inference.errors import N_, RequestError
from inference.forward import Cache, keys_and_values, rewrite_newest
from inference.models import LoadedModel
from inference.quantise import rounded
from inference.trace import Trace
from inference.walk import Chooser, Floats, check_model, feed

Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LayerNumbers:
    """The keys and values of one layer at the end of the run, in figures.

    Attributes:
        key_peaks, value_peaks: [G, D] the largest magnitude of each channel over all positions.
        key_errors, value_errors: [F, G] root mean square of what each format adds, as a share of the numbers' own.
    """

    layer: int
    key_peaks: Floats
    value_peaks: Floats
    key_errors: Doubles
    value_errors: Doubles


@dataclass(frozen=True, slots=True)
class FormatRun:
    """N steps with a cache of one format, fed the run's own tokens.

    Attributes:
        nbytes: what the format takes at the end of the run.
        divergence: [N] KL divergence (nats) of the exact next-token distribution from this one.
        difference: [N] largest absolute difference of two logits.
        ids: [N] the token that would have been chosen, under the run's settings and numbers.
    """

    name: str
    nbytes: int
    divergence: Doubles
    difference: Doubles
    ids: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Quantised:
    """A run with an exact cache and with quantised ones; `exact_nbytes` is measured, `exact_ids` [N] chosen with it."""

    layers: tuple[LayerNumbers, ...]
    exact_nbytes: int
    exact_ids: NDArray[np.int64]
    formats: tuple[FormatRun, ...]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(2 * (layer.key_peaks.nbytes + layer.value_peaks.nbytes) for layer in self.layers)


def run_quantised(
    model: LoadedModel,
    trace: Trace,
    names: Sequence[str],
    n_steps: int,
    progress: Callable[[float], None] = lambda share: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Quantised | None:
    """The first `n_steps` steps of a run with an exact cache, and by turns with one of each format.

    Raises:
        CalculatorError: the blocks of a format do not divide the head size.
        RequestError: no layer of the model keeps keys and values.
        TraceError: another model made the run.
    """
    check_model(model, trace)
    n_steps = min(n_steps, len(trace.steps))
    choose, exact = Chooser(trace, n_steps), model.forward.new_cache()
    caches = [model.forward.new_cache() for _ in names]
    rows: list[list[tuple[float, float, int]]] = [[] for _ in names]
    exact_ids = []
    for step in range(n_steps):
        context = trace.context_ids(step)
        fed = context[trace.first_position(step) :]
        expected, _ = feed(model, fed, exact)
        exact_ids.append(choose(expected, context, step).token_id)
        for name, cache, row in zip(names, caches, rows, strict=True):
            if cancelled():
                return None
            logits, _ = feed(model, fed, cache)
            _store(cache, len(fed), name)
            row.append((*_apart(expected, logits), choose(logits, context, step).token_id))
        progress((step + 1) / n_steps)
    runs = tuple(_format_run(name, exact, row) for name, row in zip(names, rows, strict=True))
    layers = tuple(_numbers(layer, k, v, names) for layer, k, v in _arrays(exact))
    nbytes = sum(k.nbytes + v.nbytes for _, k, v in keys_and_values(exact))
    return Quantised(layers, nbytes, np.array(exact_ids), runs)


def _store(cache: Cache, n: int, name: str) -> None:
    if not keys_and_values(cache):
        raise RequestError(
            N_("No layer of this model keeps keys and values, so there is nothing to quantise."),
            N_("Use a model with attention."),
        )
    rewrite_newest(cache, n, lambda numbers: rounded(numbers, name))


def _arrays(cache: Cache) -> list[tuple[int, Floats, Floats]]:
    """Layer, keys and values [G, n, D] in float32."""
    return [(layer, k[0].float().cpu().numpy(), v[0].float().cpu().numpy()) for layer, k, v in keys_and_values(cache)]


def _numbers(layer: int, keys: Floats, values: Floats, names: Sequence[str]) -> LayerNumbers:
    errors = [np.array([_error(numbers, rounded(numbers, name)) for name in names]) for numbers in (keys, values)]
    return LayerNumbers(layer, np.abs(keys).max(axis=1), np.abs(values).max(axis=1), *errors)


def _error(numbers: Floats, stored: Floats) -> Doubles:
    """[G] root mean square of the difference over positions and channels, as a share of the numbers' own."""
    added, own = (np.square(part, dtype=np.float64).mean(axis=(1, 2)) for part in (stored - numbers, numbers))
    share: Doubles = np.sqrt(added / np.where(own > 0, own, 1))
    return share


def _apart(exact: Floats, logits: Floats) -> tuple[float, float]:
    """KL divergence (nats) of the distributions, exact first, and the largest difference of two logits."""
    p, q = (_log_softmax(one) for one in (exact, logits))
    possible = np.isfinite(p)
    divergence = (np.exp(p[possible]) * (p - q)[possible]).sum()
    return max(0.0, float(divergence)), float(np.abs(exact - logits)[possible].max())


def _log_softmax(logits: Floats) -> Doubles:
    scores = logits.astype(np.float64)
    scores -= scores.max()
    found: Doubles = scores - np.log(np.exp(scores).sum())
    return found


def _format_run(name: str, exact: Cache, rows: Sequence[tuple[float, float, int]]) -> FormatRun:
    element = element_type(name)
    both = [held for _, *pair in keys_and_values(exact) for held in pair]
    nbytes = sum(element.bytes(held.shape[1] * held.shape[2], held.shape[3]) for held in both)
    divergence, difference, ids = (np.array(column) for column in zip(*rows, strict=True))
    return FormatRun(name, nbytes, divergence, difference, ids)
