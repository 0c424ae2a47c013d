"""One model in two element types: the same tokens through both, and what the cheaper one changes.

The run's own tokens are fed to both (teacher forcing), so that every position's logits can be compared; then both write
on from the prompt, greedily, with the engine itself. Both take turns at every pass, so that a busy machine slows both,
and the passes that warm up are thrown away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inference.engine import Generation
from inference.errors import N_, RequestError, TraceError
from inference.forcing import chunk_size, logits_of
from inference.machine import machine
from inference.models import LoadedModel
from inference.request import GenerationRequest, RecordOptions
from inference.sampling import SamplingParams
from inference.tokens import Token
from inference.trace import StepTiming, Trace
from inference.walk import Floats, check_model, feed

Doubles = NDArray[np.float64]
Ids = NDArray[np.int64]

NOTHING = RecordOptions(logits=False, attention=False, hidden=False, router=False)
PREFILLS, WARM_STEPS = 3, 2  # prefills measured, and decode steps thrown away
STEP_TOKENS = 8  # tokens of a longer pass that take about as long as a decode step


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """A model in one element type.

    Attributes:
        cache_bytes: of the KV cache at the end of its greedy text, measured on its tensors.
        prefill_s: [R] seconds of the run's prompt in one pass.
        step_s: [n] seconds of each decode step as the engine recorded it: forward pass, choice and record.
        written: the greedy text after the prompt, up to its end token.
    """

    element: str
    weights_bytes: int
    cache_bytes: int
    prefill_s: Doubles
    step_s: Doubles
    written: tuple[Token, ...]

    @property
    def decode_tok_s(self) -> float:
        """Tokens a second of the median step."""
        return float(1 / np.median(self.step_s))


@dataclass(frozen=True, slots=True, eq=False)
class Effect:
    """How far the second type's logits are from the first's at each of T positions.

    Attributes:
        divergence: [T] KL divergence in nats of the first's next-token distribution from the second's.
        largest, mean: [T] absolute difference of two logits: the largest, and the mean over the vocabulary.
        first_ids: [T, 2] the likeliest next token of each.
    """

    divergence: Doubles
    largest: Doubles
    mean: Doubles
    first_ids: Ids

    @property
    def changed(self) -> NDArray[np.bool_]:
        """[T] whether the likeliest next token is another one."""
        return np.asarray(self.first_ids[:, 0] != self.first_ids[:, 1])


@dataclass(frozen=True, slots=True, eq=False)
class TwoTypes:
    """What was found of two element types of one model.

    Attributes:
        tokens: the T tokens that were fed to both, the first `n_prompt` of them the prompt.
        n_cached: positions in both caches at the end of the greedy texts, whose last token is never fed.
        likeliest: [T] pairs: the likeliest next token of each type.
    """

    machine: str
    model: str
    sides: tuple[Side, Side]
    effect: Effect
    tokens: tuple[Token, ...]
    likeliest: tuple[tuple[Token, Token], ...]
    n_prompt: int
    n_cached: int

    @property
    def parting(self) -> int | None:
        """The first step at which the two greedy texts differ; `None` where they do not."""
        first, second = (side.written for side in self.sides)
        pairs = zip(first, second, strict=False)
        return next((step for step, (one, other) in enumerate(pairs) if one.id != other.id), None)

    @property
    def nbytes(self) -> int:
        """Bytes held, about."""
        return 400 * len(self.tokens) + sum(8 * len(side.step_s) for side in self.sides)


def compare(
    first: LoadedModel, second: LoadedModel, trace: Trace, n_steps: int,
    progress: Callable[[float], None] = lambda share: None, cancelled: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.perf_counter,
) -> TwoTypes | None:  # fmt: skip
    """Feed a run's tokens to a model in two element types, and let both write on; `None` where it was cancelled.

    Args:
        n_steps: decode steps to measure, after those that warm up.

    Raises:
        TraceError: another model made the run, or it has no token.
        RequestError: the run has too few tokens, or leaves no room in the context for a few steps.
        MemoryLimitError: a pass did not fit.
    """
    models = (first, second)
    for model in models:
        check_model(model, trace)
    if not trace.steps:
        raise TraceError(N_("This run was stopped before its first token, so there is nothing to compare."))
    ids = trace.context_ids(len(trace.steps))[: first.facts.context_length]
    prompt = ids[: trace.n_prompt]
    shares = _Shares(progress, cancelled, 2 * (len(ids) + (PREFILLS + 1) * len(prompt) + n_steps * STEP_TOKENS))
    found = _effect(models, ids, shares)
    times = _prefills(models, prompt, shares) if found else None
    sides = _sides(models, prompt, n_steps, times, shares, clock) if times is not None else None
    if found is None or sides is None:
        return None
    token = first.tokenizer.vocabulary.token
    return TwoTypes(
        machine=machine(first.forward.device),
        model=first.facts.name,
        sides=sides,
        effect=found,
        tokens=tuple(token(int(i)) for i in ids),
        likeliest=tuple((token(int(a)), token(int(b))) for a, b in found.first_ids),
        n_prompt=len(prompt),
        n_cached=len(prompt) + WARM_STEPS + len(sides[0].step_s),
    )


def effect(expected: Floats, found: Floats) -> Effect:
    """Logits [T, V] of the first type against those of the second.

    KL divergence is the sum of p (ln p - ln q) over the vocabulary (Kullback and Leibler, 1951), in float64. A token
    that the first rules out, with a logit of -inf, counts neither there nor as a difference.
    """
    rows = [_apart(one, other) for one, other in zip(expected, found, strict=True)]
    divergence, largest, mean = (np.array(column) for column in zip(*rows, strict=True))
    return Effect(divergence, largest, mean, np.stack([expected.argmax(axis=1), found.argmax(axis=1)], axis=1))


def _apart(expected: Floats, found: Floats) -> tuple[float, float, float]:
    possible = np.isfinite(expected)
    apart = np.abs(expected[possible].astype(np.float64) - found[possible])
    p, q = _log_softmax(expected)[possible], _log_softmax(found)[possible]
    return max(0.0, float((np.exp(p) * (p - q)).sum())), float(apart.max()), float(apart.mean())


def _log_softmax(logits: Floats) -> Doubles:
    scores = logits.astype(np.float64)
    scores -= scores.max()
    shares: Doubles = scores - np.log(np.exp(scores).sum())
    return shares


class _Shares:
    """Counts the tokens fed, tells the share that is done, and knows whether to stop."""

    def __init__(self, progress: Callable[[float], None], cancelled: Callable[[], bool], n_tokens: int) -> None:
        self._progress, self.cancelled, self._all, self._done = progress, cancelled, n_tokens, 0

    def fed(self, n_tokens: int) -> None:
        self._done += n_tokens
        self._progress(min(1.0, self._done / self._all))


def _effect(models: tuple[LoadedModel, LoadedModel], ids: Ids, shares: _Shares) -> Effect | None:
    """All positions in parts that both are fed in turn, so that the logits of one part are held at a time."""
    size = min(chunk_size(model, len(ids)) for model in models)
    caches, parts = [model.forward.new_cache() for model in models], []
    for start in range(0, len(ids), size):
        if shares.cancelled():
            return None
        fed = ids[start : start + size]
        parts.append(effect(*(logits_of(model, fed, cache) for model, cache in zip(models, caches, strict=True))))
        shares.fed(2 * len(fed))
    names = ("divergence", "largest", "mean", "first_ids")
    return Effect(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _prefills(models: tuple[LoadedModel, LoadedModel], prompt: Ids, shares: _Shares) -> list[Doubles] | None:
    """Seconds [R] of each model's passes over the prompt."""
    rounds = []
    for _ in range(PREFILLS + 1):
        if shares.cancelled():
            return None
        rounds.append([feed(model, prompt, model.forward.new_cache())[1] for model in models])
        shares.fed(2 * len(prompt))
    return list(np.array(rounds[1:]).T)


def _sides(
    models: tuple[LoadedModel, LoadedModel], prompt: Ids, n_steps: int, prefills: list[Doubles],
    shares: _Shares, clock: Callable[[], float],
) -> tuple[Side, Side] | None:  # fmt: skip
    """Both models' greedy texts, written by the engine, a step of one and a step of the other by turns."""
    n = 1 + WARM_STEPS + n_steps
    greedy = SamplingParams(greedy=True, repetition_penalty=1.0)
    request = GenerationRequest(
        prompt_ids=tuple(prompt.tolist()), max_new_tokens=n, sampling=greedy, ignore_eos=True, record=NOTHING
    )
    with ExitStack() as closing:
        runs = [closing.enter_context(Generation(model, request, clock)) for model in models]
        if runs[0].max_new <= 1 + WARM_STEPS:
            raise RequestError(
                N_("The context of {model} has no room to write on after this prompt."),
                N_("Use a shorter prompt."),
                model=models[0].facts.name,
            )
        for _ in _turns(runs):
            if shares.cancelled():
                return None
            shares.fed(2 * STEP_TOKENS)
        first, second = (_side(run, seconds) for run, seconds in zip(runs, prefills, strict=True))
    return first, second


def _turns(runs: list[Generation]) -> Iterator[None]:
    """Both runs' steps; they end together, since neither stops at an end token."""
    for _ in zip(*runs, strict=True):
        yield


def _side(run: Generation, prefill_s: Doubles) -> Side:
    model, steps = run.model, run.steps
    measured = [step.timing for step in steps[1 + WARM_STEPS :]]
    ids = [step.token_id for step in steps]
    end = next((at + 1 for at, token_id in enumerate(ids) if token_id in model.eos_ids), len(ids))
    return Side(
        element=model.element,
        weights_bytes=model.facts.weights_bytes,
        cache_bytes=int(steps[-1].kv.nbytes.sum()),
        prefill_s=prefill_s,
        step_s=np.array([_seconds(timing) for timing in measured]),
        written=tuple(model.tokenizer.vocabulary.token(i) for i in ids[:end]),
    )


def _seconds(timing: StepTiming) -> float:
    return timing.forward_s + timing.sampling_s + timing.recording_s
