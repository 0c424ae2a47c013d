"""From logits to the next token: the settings, the pipeline of sampling steps, and the choice.

Pure NumPy, float32 over the whole vocabulary, no model. The loop asks `decide` for one choice and its figures; pages
ask `run_pipeline` for every stage of the same steps. Both go through `Pipeline`, so they cannot differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from inference.errors import N_, NumericalError, SamplingError
from inference.sampling_steps import (
    DRAWING,
    LEADING,
    ORDERS,
    STEPS,
    Candidates,
    Context,
    Greedy,
    Step,
    leading,
    softmax,
)

GREEDY_BELOW = 1e-5  # vLLM's threshold: a temperature this low is greedy, and is not put into the formula


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The sampling settings, named as in transformers; `None` means "not set" and acts as off.

    Attributes:
        greedy: take the highest score; the settings that shape a draw are then left out.
        temperature: divides the scores; 1 is off, at most 1e-5 is greedy.
        top_k: how many of the highest scores to keep; 0 is off.
        top_p: keep the likeliest tokens until their mass reaches p; 1 is off, 0 keeps one.
        min_p, typical_p, epsilon_cutoff, eta_cutoff, top_h: other ways to cut the tail.
        repetition_penalty: factor on tokens seen, the prompt included; 1 is off.
        presence_penalty, frequency_penalty: subtracted for generated tokens; 0 is off.
        no_repeat_ngram_size, bad_words_ids, suppress_tokens, sequence_bias, min_new_tokens: bans and biases.
        seed: of the uniform numbers; `None` draws one, which the trace records.
        order: `"transformers"`, `"llama.cpp"`, `"vllm"`, or a tuple of step names.

    Raises:
        SamplingError: a setting is out of its range; the message names the setting and the range.
    """

    greedy: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    epsilon_cutoff: float | None = None
    eta_cutoff: float | None = None
    top_h: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    no_repeat_ngram_size: int | None = None
    bad_words_ids: tuple[tuple[int, ...], ...] = ()
    suppress_tokens: tuple[int, ...] = ()
    sequence_bias: tuple[tuple[tuple[int, ...], float], ...] = ()
    min_new_tokens: int | None = None
    seed: int | None = None
    order: str | tuple[str, ...] = "transformers"

    def __post_init__(self) -> None:
        for name, (low, high, whole) in RANGES.items():
            _check_range(name, getattr(self, name), low, high, whole)
        if self.repetition_penalty == 0:
            raise SamplingError(N_("repetition_penalty must be above 0."), N_("1 turns it off."))
        object.__setattr__(self, "bad_words_ids", _sequences("bad_words_ids", self.bad_words_ids))
        object.__setattr__(self, "suppress_tokens", _ids("suppress_tokens", self.suppress_tokens))
        object.__setattr__(self, "sequence_bias", _biases(self.sequence_bias))
        self.steps()

    @property
    def is_greedy(self) -> bool:
        """Whether the highest score is taken: asked for, or because the temperature is at most 1e-5."""
        return bool(self.greedy) or (self.temperature is not None and self.temperature <= GREEDY_BELOW)

    def steps(self) -> tuple[tuple[str, Step], ...]:
        """The active steps by name, in the order asked for."""
        steps = []
        for name in _ordered_names(self.order):
            step = None if self.is_greedy and name in DRAWING else STEPS[name](self)
            if step is not None:
                steps.append((name, step))
        if self.is_greedy:
            return (*steps, ("greedy", Greedy()))
        missing = [n for n, make in STEPS.items() if make(self) is not None and n not in dict(steps)]
        if missing:
            raise SamplingError(
                N_("The order of steps leaves out {names}, which is set."),
                N_("Name every setting that is in use, or turn it off."),
                names=", ".join(missing),
            )
        return tuple(steps)


# smallest and largest value (None: no limit), and whether it must be a whole number
RANGES: Mapping[str, tuple[float | None, float | None, bool]] = {
    "temperature": (0, None, False),
    "top_k": (0, None, True),
    "top_p": (0, 1, False),
    "min_p": (0, 1, False),
    "typical_p": (0, 1, False),
    "epsilon_cutoff": (0, 1, False),
    "eta_cutoff": (0, 1, False),
    "top_h": (0, 1, False),
    "repetition_penalty": (0, None, False),
    "presence_penalty": (None, None, False),
    "frequency_penalty": (None, None, False),
    "no_repeat_ngram_size": (0, None, True),
    "min_new_tokens": (0, None, True),
    "seed": (0, 2**63 - 1, True),
}


@dataclass(frozen=True, slots=True, eq=False)
class SamplerStage:
    """The distribution after one step.

    Attributes:
        name: `"raw"`, or the step's name.
        kept: [V] bool, the tokens that can still be chosen.
        logits: [V] float32 scores after the step; -inf where removed.
        probs: [V] float32, softmax of `logits`; exactly 0 where removed.
    """

    name: str
    kept: NDArray[np.bool_]
    logits: NDArray[np.float32]
    probs: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class SamplingDecision:
    """One choice and its figures; entropies in nats, log-probabilities natural, rank 1 = most likely before settings.

    `removed` counts the tokens that each setting removed, in the order in which they acted. `forced` marks a token that
    a person put in the place of the one drawn; its `prob` is 0 where the settings had removed it.
    """

    token_id: int
    raw_prob: float
    raw_logprob: float
    prob: float
    rank: int
    draw_u: float | None
    raw_entropy: float
    entropy: float
    n_kept: int
    removed: tuple[tuple[str, int], ...]
    forced: bool = False


def run_pipeline(
    logits: ArrayLike,
    params: SamplingParams,
    context_ids: Sequence[int] = (),
    n_prompt: int = 0,
    eos_ids: Sequence[int] = (),
) -> list[SamplerStage]:
    """Every stage of the sampling pipeline for one position: `"raw"` first, then one a step in the order used.

    Args:
        logits: [V] scores of any float type, before any step; they are not changed.
        context_ids: [T] token ids written so far, the prompt first (for the penalties and bans).
        n_prompt: how many of `context_ids` are prompt.
        eos_ids: the end tokens (for `min_new_tokens` and `bad_words_ids`).

    Raises:
        NumericalError: a logit is NaN or +inf; the message names its index.
        SamplingError: a step removed every token; the message names the step.
    """
    context = Context(np.asarray(context_ids, dtype=np.int64), n_prompt, tuple(eos_ids))
    candidates = _candidates(logits)
    size = np.asarray(logits).shape[0]
    stages = [_stage("raw", candidates, size)]
    for name, step in params.steps():
        candidates = _not_empty(name, step(candidates, context))
        stages.append(_stage(name, candidates, size))
    return stages


def choose(stages: Sequence[SamplerStage], u: float) -> int:
    """The token id that a uniform number falls on: inverse CDF of the last stage, in probability order.

    Args:
        u: in [0, 1). Tokens of equal probability stand in id order.
    """
    last = stages[-1]
    ids = np.flatnonzero(last.kept)
    return _draw(Candidates(ids, last.logits[ids]), softmax(last.logits[ids]), u)[0]


def decide(
    logits: NDArray[np.float32],
    steps: Sequence[tuple[str, Step]],
    context: Context,
    u: float,
    forced_id: int | None = None,
) -> SamplingDecision:
    """The choice that `run_pipeline` and `choose` would make, with its figures but without the stages.

    Args:
        logits: [V] float32, before any step.
        steps: of `SamplingParams.steps()`, made once a request.
        u: uniform number in [0, 1); not used, and not recorded, where one token is left by greedy decoding.
        forced_id: take this token instead of the one that `u` falls on.
    """
    raw = _candidates(logits)
    candidates, removed = raw, []
    for name, step in steps:
        after = _not_empty(name, step(candidates, context))
        if name != "greedy" and len(after.ids) < len(candidates.ids):
            removed.append((name, len(candidates.ids) - len(after.ids)))
        candidates = after
    greedy = bool(steps) and steps[-1][0] == "greedy"
    probs = softmax(candidates.scores)
    token_id, prob = (
        _draw(candidates, probs, u) if forced_id is None else (forced_id, _prob(candidates, probs, forced_id))
    )
    log_z, raw_entropy = _log_partition(raw.scores)
    raw_logprob = float(logits[token_id]) - log_z
    return SamplingDecision(
        token_id=token_id,
        raw_prob=math.exp(raw_logprob),
        raw_logprob=raw_logprob,
        prob=prob,
        rank=rank_of(logits, token_id),
        draw_u=None if greedy or forced_id is not None else u,
        raw_entropy=raw_entropy,
        entropy=_log_partition(candidates.scores)[1],
        n_kept=len(candidates.ids),
        removed=tuple(removed),
        forced=forced_id is not None,
    )


def rank_of(logits: NDArray[np.float32], token_id: int) -> int:
    """Rank of a token by its logit, 1 = highest; equal logits stand in id order."""
    score = logits[token_id]
    return int((logits > score).sum() + (logits[:token_id] == score).sum()) + 1


def resolve(params: SamplingParams, checkpoint: Mapping[str, Any]) -> tuple[SamplingParams, dict[str, str]]:
    """The settings in effect and where each came from: `"yours"`, `"checkpoint"` or `"default"`.

    The caller's settings win over the checkpoint's `generation_config`, and both over "off", as in transformers.
    Without a word from either on `greedy`, a caller who set something that shapes a draw, or a seed, wants a draw;
    otherwise decoding is greedy, as transformers' `do_sample=False`.
    """
    given = {f.name: getattr(params, f.name) for f in fields(params) if getattr(params, f.name) not in (None, ())}
    brought = {name: value for name, value in checkpoint.items() if name not in given}
    values, origin = {**brought, **given}, {}
    if "greedy" not in given and any(name in given for name in (*DRAWING, "seed")):
        values["greedy"], origin["greedy"] = False, "yours"
    elif "greedy" not in values:
        values["greedy"], origin["greedy"] = True, "default"
    for field in fields(params):
        source = "yours" if field.name in given else "checkpoint" if field.name in brought else "default"
        origin.setdefault(field.name, source)
    if params.order == "transformers":
        origin["order"] = "default"
    return replace(params, **values), origin


def _candidates(logits: ArrayLike) -> Candidates:
    scores = np.asarray(logits).astype(np.float32, copy=False)
    if not scores.max() < np.inf:  # true for NaN and for +inf
        at = int(np.flatnonzero(~(scores < np.inf))[0])
        raise NumericalError(
            N_("The model's logit for token {token_id} is {value}, so there is no distribution to choose from."),
            N_("Load the model in float32, or use another checkpoint."),
            token_id=at,
            value=float(scores[at]),
        )
    everyone = Candidates(_all_ids(len(scores)), scores)
    return everyone if scores.min() > -np.inf else _not_empty("raw", everyone.where(scores > -np.inf))


@lru_cache(maxsize=4)
def _all_ids(size: int) -> NDArray[np.int64]:
    """0 … size-1, read-only: making it anew costs more than a whole top-k at 262,144."""
    ids = np.arange(size, dtype=np.int64)
    ids.flags.writeable = False
    return ids


def _stage(name: str, candidates: Candidates, size: int) -> SamplerStage:
    kept = np.zeros(size, dtype=np.bool_)
    logits = np.full(size, -np.inf, dtype=np.float32)
    probs = np.zeros(size, dtype=np.float32)
    kept[candidates.ids] = True
    logits[candidates.ids] = candidates.scores
    probs[candidates.ids] = softmax(candidates.scores)
    return SamplerStage(name, kept, logits, probs)


def _draw(candidates: Candidates, probs: NDArray[np.float32], u: float) -> tuple[int, float]:
    """The id and probability that `u` falls on; sorts only as many of the likeliest as it takes."""
    n = LEADING
    while True:
        order = leading(candidates.scores, n)
        mass = np.cumsum(probs[order], dtype=np.float64)
        if mass[-1] > u or len(order) == len(probs):
            at = order[min(int(np.searchsorted(mass, u, side="right")), len(order) - 1)]
            return int(candidates.ids[at]), float(probs[at])
        n *= 16


def _prob(candidates: Candidates, probs: NDArray[np.float32], token_id: int) -> float:
    at = int(np.searchsorted(candidates.ids, token_id))
    return float(probs[at]) if at < len(probs) and candidates.ids[at] == token_id else 0.0


def _log_partition(scores: NDArray[np.float32]) -> tuple[float, float]:
    """log of the sum of exp(scores), and the entropy in nats."""
    top = scores.max()
    shifted = scores - top
    weights = np.exp(shifted)
    total = float(weights.sum(dtype=np.float64))
    return float(top) + math.log(total), math.log(total) - float(weights @ shifted) / total


def _not_empty(name: str, candidates: Candidates) -> Candidates:
    if candidates.ids.size:
        return candidates
    raise SamplingError(
        N_("{step} removed every token that was left, so there is nothing to choose from."),
        N_("Loosen that setting."),
        step=name,
    )


def _ordered_names(order: str | tuple[str, ...]) -> tuple[str, ...]:
    if isinstance(order, str):
        if order in ORDERS:
            return ORDERS[order]
        raise SamplingError(
            N_("There is no order of steps called {order}."),
            N_("Use one of {orders}, or a tuple of step names."),
            order=order,
            orders=", ".join(ORDERS),
        )
    unknown = [name for name in order if name not in STEPS]
    if unknown or len(set(order)) < len(order):
        raise SamplingError(
            N_("The order of steps is not valid: {names}."),
            N_("Name each step once; the steps are {steps}."),
            names=", ".join(unknown or order),
            steps=", ".join(STEPS),
        )
    return tuple(order)


def _check_range(name: str, value: Any, low: float | None, high: float | None, whole: bool) -> None:
    if value is None:
        return
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    fits = number and math.isfinite(value) and (not whole or float(value).is_integer())
    if fits and (low is None or value >= low) and (high is None or value <= high):
        return
    if high is not None:
        what = (
            N_("{name} must be a whole number from {low} to {high}, not {value}.")
            if whole
            else N_("{name} must be a number from {low} to {high}, not {value}.")
        )
    elif low is not None:
        what = (
            N_("{name} must be a whole number of at least {low}, not {value}.")
            if whole
            else N_("{name} must be a number of at least {low}, not {value}.")
        )
    else:
        what = N_("{name} must be a number, not {value}.")
    raise SamplingError(what, name=name, low=low, high=high, value=repr(value))


def _ids(name: str, ids: Sequence[int]) -> tuple[int, ...]:
    if any(isinstance(i, bool) or not isinstance(i, (int, np.integer)) or i < 0 for i in ids):
        raise SamplingError(N_("{name} must hold token ids, which are whole numbers of at least 0."), name=name)
    return tuple(int(i) for i in ids)


def _sequences(name: str, sequences: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    if any(len(sequence) == 0 for sequence in sequences):
        raise SamplingError(N_("{name} must not hold an empty sequence."), name=name)
    return tuple(_ids(name, sequence) for sequence in sequences)


def _biases(biases: Sequence[tuple[Sequence[int], float]]) -> tuple[tuple[tuple[int, ...], float], ...]:
    _sequences("sequence_bias", [sequence for sequence, _ in biases])
    for _, bias in biases:
        _check_range("sequence_bias", bias, None, None, False)
    return tuple((_ids("sequence_bias", sequence), float(bias)) for sequence, bias in biases)
