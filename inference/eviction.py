"""What dropping positions from the KV cache does to a text: a real run under each policy.

After every pass the cache is compared with a limit, and a policy says which positions stay. Positions keep their
original numbers: the keys stay rotated as they were, later tokens count on, and a query sees what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from inference.errors import N_, RequestError
from inference.forward import Cache, cache_sizes, copy_dropping, keep_places
from inference.models import LoadedModel
from inference.tokens import Token
from inference.trace import Trace
from inference.walk import Chooser, Floats, check_model, feed

Policy = Literal["none", "stop", "window", "sinks", "clear"]
Finish = Literal["eos", "length", "full"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A policy and its numbers: `limit` positions at most, of which `sinks` keeps the first few."""

    policy: Policy
    limit: int
    sinks: int = 4

    def places(self, held: int) -> NDArray[np.int64] | None:
        """Which places [n] of `held` positions stay; `None` where all do."""
        if held <= self.limit or self.policy in ("none", "stop"):
            return None
        if self.policy == "clear":
            return np.zeros(0, dtype=np.int64)
        first = min(self.sinks, self.limit) if self.policy == "sinks" else 0
        return np.concatenate([np.arange(first), np.arange(held - self.limit + first, held)]).astype(np.int64)


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """What one policy made of the run.

    Attributes:
        tokens: [n] chosen freely; `text` is what they spell.
        positions, nbytes, dropped: [n] of the cache after each step's pass and what the policy left of it.
        logprobs: [N] raw log-probability (nats) of the unlimited run's tokens, fed as they are; NaN once it stopped.
        parted: the step whose token is the first to differ from the unlimited run's, or `None`.
        finish: `"eos"`, `"length"`, or `"full"` where the limit stopped it.
    """

    rule: Rule
    tokens: tuple[Token, ...]
    text: str
    positions: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    dropped: NDArray[np.int64]
    logprobs: NDArray[np.float64]
    parted: int | None
    finish: Finish

    @property
    def token_ids(self) -> tuple[int, ...]:
        """[n] ids of `tokens`."""
        return tuple(token.id for token in self.tokens)


@dataclass(frozen=True, slots=True)
class Evictions:
    """The unlimited run, and one a rule."""

    unlimited: PolicyRun
    runs: tuple[PolicyRun, ...]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(4 * run.logprobs.nbytes for run in (self.unlimited, *self.runs))


def run_policies(
    model: LoadedModel,
    trace: Trace,
    rules: Sequence[Rule],
    n_new: int,
    progress: Callable[[float], None] = lambda share: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Evictions | None:
    """The run's prompt continued without a limit, then under each rule; `None` where it was cancelled.

    Every run chooses with the settings and the uniform numbers of the recorded run.

    Args:
        n_new: most tokens of each run; fewer where the model's context ends first.

    Raises:
        RequestError: positions cannot be dropped from this model's cache.
        TraceError: another model made the run.
    """
    check_model(model, trace)
    # a model that is not recorded may add a bias by the place of a key, and dropping changes the places
    if model.facts.attention != "recorded" or model.forward.new_dropping_cache() is None:
        raise RequestError(
            N_("Positions cannot be dropped from the cache of {name}: not all its layers keep plain keys and values."),
            N_("Use a model with full attention in every layer, such as a Llama."),
            name=model.facts.name,
        )
    experiment = _Experiment(model, trace, n_new, len(rules), progress, cancelled)
    try:
        unlimited = experiment.unlimited()
        return Evictions(unlimited, tuple(experiment.limited(rule, unlimited) for rule in rules))
    except _CancelledError:
        return None


class _CancelledError(Exception):
    """The reader has had enough."""


class _Walk:
    """One run under a rule, as far as it has been fed."""

    def __init__(self, model: LoadedModel, rule: Rule) -> None:
        self.model, self.rule = model, rule
        self.cache = _dropping_cache(model)
        self.states: list[tuple[int, int, int]] = []

    @property
    def full(self) -> bool:
        """Whether the rule is to stop at the limit, and it is passed."""
        return self.rule.policy == "stop" and self.states[-1][0] > self.rule.limit

    def feed(self, ids: NDArray[np.int64]) -> Floats:
        """Logits [V] after `ids` [Q]; then the rule drops what it does not keep."""
        logits, _ = feed(self.model, ids, self.cache)
        held = int(cache_sizes(self.cache)[0].max())
        places = self.rule.places(held)
        if places is not None:
            keep_places(self.cache, places)
        positions, nbytes = cache_sizes(self.cache)
        self.states.append((int(positions.max()), int(nbytes.sum()), held - int(positions.max())))
        return logits

    def copy(self) -> _Walk:
        """Another walk from here on; its cache is a copy."""
        other = _Walk(self.model, self.rule)
        copy_dropping(self.cache, other.cache)
        other.states = self.states[:]
        return other


class _Experiment:
    """What the runs of one experiment share."""

    def __init__(
        self,
        model: LoadedModel,
        trace: Trace,
        n_new: int,
        n_rules: int,
        progress: Callable[[float], None],
        cancelled: Callable[[], bool],
    ) -> None:
        context = model.facts.context_length
        self._n_new = n_new if context is None else min(n_new, context - trace.n_prompt)
        self._model, self._prompt, self._eos_ids = model, trace.context_ids(0), trace.eos_ids
        self._choose = Chooser(trace, self._n_new)
        # a limited run is walked twice from where it parts: on the unlimited run's tokens, and on its own
        self._n_passes, self._done = self._n_new * (1 + 2 * n_rules), 0
        self._progress, self._cancelled = progress, cancelled

    def unlimited(self) -> PolicyRun:
        """The run that nothing is dropped from."""
        walk = _Walk(self._model, Rule("none", 0))
        tokens, logprobs, finish = self._choose_on(walk, self._prompt, self._feed(walk, self._prompt))
        return self._run(walk, tokens, logprobs, None, finish)

    def limited(self, rule: Rule, unlimited: PolicyRun) -> PolicyRun:
        """The same under a rule: the unlimited run's tokens are fed and scored, and from where it would choose
        another one, a copy goes its own way."""
        walk, written, logprobs = _Walk(self._model, rule), self._prompt, []
        logits, own = self._feed(walk, written), None
        for step, token in enumerate(unlimited.token_ids):
            logprobs.append(_logprob(logits, token))
            if own is None and self._choose(logits, written, step).token_id != token:
                own = (step, written, walk.copy(), logits)
            if walk.full or step + 1 == len(unlimited.token_ids):
                break
            written = np.append(written, token)
            logits = self._feed(walk, written[-1:])
        logprobs += [np.nan] * (len(unlimited.token_ids) - len(logprobs))
        if own is None:
            tokens = unlimited.token_ids[: len(walk.states)]
            finish: Finish = "full" if walk.full else unlimited.finish
            return self._run(walk, tokens, logprobs, None, finish)
        parted, written, walk, logits = own
        tokens, _, finish = self._choose_on(walk, written, logits)
        return self._run(walk, (*unlimited.token_ids[:parted], *tokens), logprobs, parted, finish)

    def _choose_on(
        self, walk: _Walk, written: NDArray[np.int64], logits: Floats
    ) -> tuple[tuple[int, ...], list[float], Finish]:
        """Tokens chosen after `written` [T], their raw log-probabilities, and why it ended."""
        tokens: list[int] = []
        logprobs: list[float] = []
        while True:
            step = len(written) - len(self._prompt)
            decision = self._choose(logits, written, step)
            tokens.append(decision.token_id)
            logprobs.append(decision.raw_logprob)
            if decision.token_id in self._eos_ids:
                return tuple(tokens), logprobs, "eos"
            if walk.full or step + 1 == self._n_new:
                return tuple(tokens), logprobs, "full" if walk.full else "length"
            written = np.append(written, decision.token_id)
            logits = self._feed(walk, written[-1:])

    def _feed(self, walk: _Walk, ids: NDArray[np.int64]) -> Floats:
        if self._cancelled():
            raise _CancelledError
        logits = walk.feed(ids)
        self._done += 1
        self._progress(self._done / self._n_passes)
        return logits

    def _run(
        self, walk: _Walk, tokens: tuple[int, ...], logprobs: Sequence[float], parted: int | None, finish: Finish
    ) -> PolicyRun:
        positions, nbytes, dropped = (np.array(column, dtype=np.int64) for column in zip(*walk.states, strict=True))
        chosen = tuple(self._model.tokenizer.vocabulary.token(token_id) for token_id in tokens)
        return PolicyRun(
            walk.rule, chosen, _text(chosen), positions, nbytes, dropped, np.array(logprobs), parted, finish
        )


def _dropping_cache(model: LoadedModel) -> Cache:
    cache = model.forward.new_dropping_cache()
    assert cache is not None  # asked before the first run
    return cache


def _logprob(logits: Floats, token_id: int) -> float:
    """Raw log-probability of a token, nats."""
    scores = logits.astype(np.float64)
    top = scores.max()
    return float(scores[token_id] - top - np.log(np.exp(scores - top).sum()))


def _text(tokens: Sequence[Token]) -> str:
    return b"".join(token.data for token in tokens if not token.special).decode("utf-8", "replace")
