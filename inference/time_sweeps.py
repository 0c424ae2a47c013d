"""How long a pass takes against how much it is fed, measured on the model itself: nothing here is computed.

Every point is measured in turn, round after round, so that a machine that is busy for a while slows all of them; the
first round warms up and is thrown away. Tokens are those of the run, repeated to the length asked for: which tokens
they are does not change the time. Nothing is recorded. A result names the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from inference.errors import N_, RequestError
from inference.forward import Cache
from inference.machine import machine
from inference.measured import Line, Place, Sweep
from inference.models import LoadedModel
from inference.walk import feed, feed_rows

Clock = Callable[[], float]
Measure = Callable[[int], float]  # seconds at an x
Progress = Callable[[float], None]
Cancelled = Callable[[], bool]
Ids = NDArray[np.int64]


def place(model: LoadedModel) -> Place:
    """Where this model runs."""
    facts = model.facts
    return Place(machine(model.forward.device), facts.name, facts.device, facts.dtype)


def prefill_times(
    model: LoadedModel, ids: Ids, lengths: Sequence[int], rounds: int,
    progress: Progress = lambda share: None, cancelled: Cancelled = lambda: False, clock: Clock = time.perf_counter,
) -> Sweep | None:  # fmt: skip
    """One pass over prompts of several lengths; `None` where it was cancelled.

    Raises:
        RequestError: a length does not fit into the model's context.
        MemoryLimitError: a pass did not fit.
    """
    _check(model, max(lengths))

    def prefill(n: int) -> float:
        return _timed(model, np.resize(ids, n), model.forward.new_cache(), clock)

    jobs = [("prefill", prefill, lengths)]
    return _sweep("prefill", model, jobs, rounds, progress, cancelled)


def decode_times(
    model: LoadedModel, ids: Ids, contexts: Sequence[int], rounds: int, without: bool = True,
    progress: Progress = lambda share: None, cancelled: Cancelled = lambda: False, clock: Clock = time.perf_counter,
) -> Sweep | None:  # fmt: skip
    """One decode step after contexts of several lengths, with the cache and, if asked, without; `None` if cancelled.

    A cache is filled once a length and then grows by the token of each round.

    Raises:
        as `prefill_times`.
    """
    _check(model, max(contexts) + rounds + 1)
    caches: dict[int, Cache] = {}

    def cached(n: int) -> float:
        if n not in caches:
            caches[n] = model.forward.new_cache()
            feed(model, np.resize(ids, n), caches[n])
        return _timed(model, ids[:1], caches[n], clock)

    def uncached(n: int) -> float:
        return _timed(model, np.resize(ids, n + 1), None, clock)

    jobs = [("cached", cached, contexts), *([("uncached", uncached, contexts)] if without else [])]
    return _sweep("decode", model, jobs, rounds, progress, cancelled)


def chunk_times(
    model: LoadedModel, ids: Ids, length: int, sizes: Sequence[int], rounds: int,
    progress: Progress = lambda share: None, cancelled: Cancelled = lambda: False, clock: Clock = time.perf_counter,
) -> Sweep | None:  # fmt: skip
    """The prefill of one prompt in chunks of several sizes; `None` where it was cancelled.

    Raises:
        RequestError: as `prefill_times`, or the model's recurrent layers cannot go on with several positions.
        MemoryLimitError: a pass did not fit.
    """
    _check(model, length)
    if not model.forward.takes_chunks:
        raise RequestError(N_("The recurrent layers of {name} cannot be prefilled in chunks."), name=model.facts.name)
    prompt = np.resize(ids, length)

    def chunked(size: int) -> float:
        cache = model.forward.new_cache()
        return sum(_timed(model, prompt[at : at + size], cache, clock) for at in range(0, length, size))

    return _sweep("chunked", model, [("chunked", chunked, sizes)], rounds, progress, cancelled, length)


def batch_times(
    model: LoadedModel, ids: Ids, context: int, sizes: Sequence[int], rounds: int,
    progress: Progress = lambda share: None, cancelled: Cancelled = lambda: False, clock: Clock = time.perf_counter,
) -> Sweep | None:  # fmt: skip
    """One decode step of several sequences at once, each after `context` positions; `None` where it was cancelled.

    Raises:
        as `prefill_times`.
    """
    _check(model, context + rounds + 1)
    caches: dict[int, Cache] = {}

    def step(size: int) -> float:
        if size not in caches:
            caches[size] = model.forward.new_cache()
            feed_rows(model, batch_of(ids, size, context), caches[size])
        return feed_rows(model, batch_of(ids, size, 1), caches[size], clock=clock)[1]

    return _sweep("batch", model, [("batch", step, sizes)], rounds, progress, cancelled, context)


def batch_of(ids: Ids, size: int, length: int) -> Ids:
    """[size, length] tokens; each sequence starts one token further on in the run."""
    return np.stack([np.resize(np.roll(ids, -row), length) for row in range(size)])


def _sweep(
    kind: str, model: LoadedModel, jobs: Sequence[tuple[str, Measure, Sequence[int]]], rounds: int,
    progress: Progress, cancelled: Cancelled, fixed: int = 0,
) -> Sweep | None:  # fmt: skip
    """All rounds of all jobs by turns; work is counted in tokens, since a long pass takes longer than a short one."""
    turns = list(_turns(jobs, rounds))
    cost, done = sum(max(x, fixed) for _, _, _, x in turns), 0
    found: dict[str, list[float]] = {name: [] for name, _, _ in jobs}
    for warm, name, measure, x in turns:
        if cancelled():
            return None
        seconds = measure(x)
        if warm:
            found[name].append(seconds)
        done += max(x, fixed)
        progress(done / cost)
    lines = tuple(
        Line(name, np.array(places, dtype=np.int64), np.reshape(found[name], (rounds, len(places))))
        for name, _, places in jobs
    )
    return Sweep(kind, place(model), lines, fixed)


def _turns(jobs: Sequence[tuple[str, Measure, Sequence[int]]], rounds: int) -> Iterator[tuple[bool, str, Measure, int]]:
    """Whether it counts, the name, what measures it and where, in the order in which they are measured."""
    for index in range(rounds + 1):
        for name, measure, places in jobs:
            for x in places:
                yield index > 0, name, measure, x


def _timed(model: LoadedModel, ids: Ids, cache: Cache | None, clock: Clock) -> float:
    model.forward.synchronise()
    began = clock()
    feed(model, ids, cache)
    return clock() - began


def _check(model: LoadedModel, longest: int) -> None:
    limit = model.facts.context_length
    if limit is not None and longest > limit:
        raise RequestError(
            N_("This needs {n} positions; {model} reads at most {limit}."),
            N_("Choose a smaller length."),
            n=longest,
            limit=limit,
            model=model.facts.name,
        )
