"""From logits to the next token: the pipeline of sampling steps, and the choice.

Pure NumPy, float32 over the whole vocabulary, no model. The loop asks `decide` for one choice and its figures; pages
ask `run_pipeline` for every stage of the same steps. Both run `SamplingParams.steps()`, so they cannot differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from inference.errors import N_, NumericalError, SamplingError
from inference.sampling_params import SamplingParams, resolve
from inference.sampling_steps import LEADING, Candidates, Context, Step, leading, softmax

__all__ = [
    "SamplerStage", "SamplingDecision", "SamplingParams", "candidates_of", "choose", "decide", "narrow", "rank_of",
    "resolve", "run_pipeline",
]  # fmt: skip


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
    candidates = candidates_of(logits)
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
    raw = candidates_of(logits)
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


def narrow(candidates: Candidates, steps: Sequence[tuple[str, Step]], context: Context) -> Candidates:
    """What `steps` leave, without the stages; `SamplingError` names the step that leaves nothing."""
    for name, step in steps:
        candidates = _not_empty(name, step(candidates, context))
    return candidates


def rank_of(logits: NDArray[np.float32], token_id: int) -> int:
    """Rank of a token by its logit, 1 = highest; equal logits stand in id order."""
    score = logits[token_id]
    return int(np.count_nonzero(logits > score) + np.count_nonzero(logits[:token_id] == score)) + 1


def candidates_of(logits: ArrayLike) -> Candidates:
    """All tokens with their logits [V] as float32, before any step; `NumericalError` names the index of a bad one."""
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
    total = float(weights.sum())  # NumPy adds in pairs: within 1e-6, and four times as fast as adding in float64
    return float(top) + math.log(total), math.log(total) - float(weights @ shifted) / total


def _not_empty(name: str, candidates: Candidates) -> Candidates:
    if candidates.ids.size:
        return candidates
    raise SamplingError(
        N_("{step} removed every token that was left, so there is nothing to choose from."),
        N_("Loosen that setting."),
        step=name,
    )
