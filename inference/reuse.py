"""A second request with the beginning of a first one, for real: prefilled from nothing, and from the stored cache.

The stored cache is copied, never handed out: it would grow under its owner. As with blocks, only a whole number of
them is reused, and at least the last prompt token is computed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inference.errors import N_, RequestError
from inference.forward import Cache, cache_prefix, cache_sizes
from inference.models import LoadedModel
from inference.no_cache import TOLERANCE
from inference.request import GenerationRequest
from inference.tokens import Token
from inference.trace import Trace
from inference.walk import Floats, check_model, feed

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Reuse:
    """A second request both ways.

    Attributes:
        n_prompt: its prompt tokens; `n_common` of them begin as the stored ones do, and `n_reused` were reused.
        fresh_s, reused_s: [R] seconds of each prefill, by turns; the second with the copying in it.
        copied_bytes: what was copied out of the stored cache.
        difference: largest absolute difference of two logits after the prefill.
        tolerance: what rounding explains of it.
        fresh_tokens, reused_tokens: what greedy decoding goes on with.
    """

    n_prompt: int
    n_common: int
    n_reused: int
    fresh_s: NDArray[np.float64]
    reused_s: NDArray[np.float64]
    copied_bytes: int
    difference: float
    tolerance: float
    fresh_tokens: tuple[Token, ...]
    reused_tokens: tuple[Token, ...]

    @property
    def nbytes(self) -> int:
        """Bytes held, about."""
        return 64 * (len(self.fresh_tokens) + len(self.reused_tokens))


def reuse_prefix(
    model: LoadedModel,
    trace: Trace,
    request: GenerationRequest,
    block_size: int = 16,
    repeats: int = 3,
    check_prompt: Callable[[int], None] = lambda n: None,
    progress: Callable[[float], None] = lambda share: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Reuse | None:
    """The run's cache is made again, and `request` is prefilled `repeats` times both ways, then decoded greedily.

    Args:
        check_prompt: may refuse a prompt by its number of tokens.

    Raises:
        RequestError: nothing can be reused, or the request does not fit the context.
        TraceError: another model made the run.
    """
    check_model(model, trace)
    stored_ids = np.array([token.id for token in trace.tokens[:-1]], dtype=np.int64)
    ids = np.array(model.tokenizer.encode(request), dtype=np.int64)
    _check_length(model, len(ids), request.max_new_tokens, check_prompt)
    n_common = common_prefix(stored_ids, ids)
    n_reused = min(n_common, len(ids) - 1) // block_size * block_size
    stored = model.forward.new_cache()
    feed(model, stored_ids, stored)
    copied_bytes = int(cache_sizes(_copy(model, stored, n_reused))[1].sum())
    seconds = np.zeros((repeats, 2))
    for turn in range(repeats):
        if cancelled():
            return None
        ways = [_prefill(model, ids, None, 0), _prefill(model, ids, stored, n_reused)]
        seconds[turn] = [way.seconds for way in ways]
        progress((turn + 1) / (repeats + 1))
    texts = [_greedy(model, way, request.max_new_tokens, trace.eos_ids, cancelled) for way in ways]
    if texts[0] is None or texts[1] is None:
        return None
    distance = float(np.abs(ways[0].logits - ways[1].logits).max())
    times, tolerance = (seconds[:, 0], seconds[:, 1]), TOLERANCE[model.facts.dtype]
    return Reuse(len(ids), n_common, n_reused, *times, copied_bytes, distance, tolerance, texts[0], texts[1])


@dataclass(frozen=True, slots=True)
class _Prefilled:
    """A prompt in a cache, the logits after it, and how long it took."""

    logits: Floats
    cache: Cache
    seconds: float


def _prefill(model: LoadedModel, ids: Ids, stored: Cache | None, n_reused: int) -> _Prefilled:
    """A prompt fed whole, or after a copy of the first `n_reused` positions of a stored cache."""
    began = time.perf_counter()
    cache = model.forward.new_cache() if stored is None else _copy(model, stored, n_reused)
    logits, _ = feed(model, ids[n_reused:], cache)
    return _Prefilled(logits, cache, time.perf_counter() - began)


def common_prefix(first: Ids, second: Ids) -> int:
    """How many ids two sequences have in common from their beginnings on."""
    n = min(len(first), len(second))
    apart = np.flatnonzero(first[:n] != second[:n])
    return int(apart[0]) if len(apart) else n


def _copy(model: LoadedModel, stored: Cache, n: int) -> Cache:
    copied = cache_prefix(stored, model.forward.new_cache(), n) if n else None
    if copied is None:
        raise RequestError(
            N_("Nothing can be reused: the requests share no whole block, or layers of {name} have dropped positions."),
            N_("Take smaller blocks, or begin the second request as the first one."),
            name=model.facts.name,
        )
    return copied


def _greedy(
    model: LoadedModel, start: _Prefilled, n_new: int, eos_ids: tuple[int, ...], cancelled: Callable[[], bool]
) -> tuple[Token, ...] | None:
    """The likeliest token each time, up to an end token; `None` where it was cancelled."""
    tokens = [int(start.logits.argmax())]
    while len(tokens) < n_new and tokens[-1] not in eos_ids:
        if cancelled():
            return None
        logits, _ = feed(model, np.array(tokens[-1:], dtype=np.int64), start.cache)
        tokens.append(int(logits.argmax()))
    return tuple(model.tokenizer.vocabulary.token(token_id) for token_id in tokens)


def _check_length(model: LoadedModel, n_prompt: int, n_new: int, check_prompt: Callable[[int], None]) -> None:
    check_prompt(n_prompt)
    limit = model.facts.context_length
    if not n_prompt or (limit is not None and n_prompt + n_new > limit):
        raise RequestError(
            N_("The second request has {n} tokens, and {new} new ones; {model} reads at most {limit}."),
            N_("Shorten it."),
            n=n_prompt,
            new=n_new,
            model=model.facts.name,
            limit=limit,
        )
