"""One sampling rule, one small class: how each setting changes or removes candidates.

A step takes the surviving `Candidates` and returns new ones; it never changes its input. Rules follow
transformers 5.24 (`generation/logits_process.py`); presence and frequency penalty follow vLLM
(`vllm/v1/sample`: they count generated tokens only). Where engines depend on floating-point luck at a boundary,
a tolerance of `BOUNDARY` decides, so that probabilities (0.6, 0.2, 0.1, 0.1) with p = 0.8 always keep two.

The table of steps and the orders in which engines run them stand at the bottom.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from inference.sampling_params import SamplingParams

BOUNDARY = 1e-6  # float32 cumulative sums of probabilities are uncertain by about this much
LEADING = 1024  # how many of the likeliest candidates are sorted at first; more only if these do not suffice
LARGEST = np.finfo(np.float32).max
TOP_H_CANDIDATES = 100  # transformers' TopHLogitsWarper looks at the 100 likeliest only

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Context:
    """What has been written so far: `ids` [T] (prompt, then generated), how many of them are prompt, the EOS ids."""

    ids: Ids
    n_prompt: int
    eos_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Candidates:
    """The tokens that can still be chosen: `ids` [n] ascending and their float32 `scores` [n], all above -inf."""

    ids: Ids
    scores: Floats

    def where(self, keep: NDArray[np.bool_]) -> Candidates:
        """Only the candidates where `keep` [n] is true."""
        return self if keep.all() else self.at(np.flatnonzero(keep))

    def at(self, positions: NDArray[np.intp]) -> Candidates:
        """Only the candidates at `positions`, in id order."""
        positions = np.sort(positions)
        return Candidates(self.ids[positions], self.scores[positions])

    def without(self, banned: Ids) -> Candidates:
        """All candidates but the `banned` ids."""
        return self.where(~np.isin(self.ids, banned)) if banned.size else self

    def changed(self, ids: Ids, change: Callable[[Floats, Ids], Floats]) -> Candidates:
        """The scores of `ids` (distinct; absent ones are skipped) replaced by `change(scores, positions in ids)`.

        What would become infinite stays the largest float32.
        """
        if not ids.size or not self.ids.size:
            return self
        at = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        present = np.flatnonzero(self.ids[at] == ids)
        scores = self.scores.copy()
        with np.errstate(over="ignore"):
            scores[at[present]] = np.clip(change(scores[at[present]], present), -LARGEST, LARGEST)
        return Candidates(self.ids, scores)


def softmax(scores: Floats) -> Floats:
    """Probabilities [n] of `scores` [n] as float32, computed in float64.

    A float32 exponential differs between processors by a few units in the last place, which is more than the mass of
    one token in the tail; in float64 every machine, and a browser, keeps the same tokens.
    """
    weights = np.exp(scores - scores.max(), dtype=np.float64)
    probs: Floats = (weights / weights.sum()).astype(np.float32)
    return probs


def leading(scores: Floats, n: int) -> NDArray[np.intp]:
    """Positions of at least the `n` highest scores, in probability order; ties are complete, in id order."""
    if n >= len(scores):
        return np.argsort(-scores, kind="stable")
    at = highest(scores, n)
    return at[np.argsort(-scores[at], kind="stable")]


def highest(scores: Floats, n: int) -> NDArray[np.intp]:
    """Positions, ascending, of the `n` highest scores and of all that equal the lowest of them; n < len(scores).

    A threshold from a sample leaves a short list to search; if it leaves too few, or all (as equal scores do),
    all scores are searched.
    """
    stride = len(scores) // (64 * n)
    if stride > 1:
        sample = scores[::stride]
        rank = max(8, 2 * n // stride)
        at = np.flatnonzero(scores >= np.partition(sample, len(sample) - rank)[len(sample) - rank])
        if n < len(at) < len(scores):
            return at[highest(scores[at], n)]
    return np.flatnonzero(scores >= np.partition(scores, len(scores) - n)[len(scores) - n])


def entropy(probs: Floats) -> float:
    """Shannon entropy in nats of probabilities [n]; a probability of 0 adds nothing."""
    positive = probs[probs > 0].astype(np.float64)
    return float(-(positive * np.log(positive)).sum())


class Step(Protocol):
    """A sampling rule with its setting."""

    def __call__(self, candidates: Candidates, context: Context) -> Candidates:
        """The candidates after this rule."""


@dataclass(frozen=True, slots=True)
class SequenceBias:
    """Adds a bias to the last token of each sequence whose beginning has just been written."""

    biases: tuple[tuple[tuple[int, ...], float], ...]

    def __call__(self, candidates: Candidates, context: Context) -> Candidates:
        total: dict[int, float] = {}
        for sequence, bias in self.biases:
            if _just_written(context.ids, sequence[:-1]):
                total[sequence[-1]] = total.get(sequence[-1], 0.0) + bias
        ids = np.array(sorted(total), dtype=np.int64)
        amounts = np.array([total[int(i)] for i in ids], dtype=np.float32)
        return candidates.changed(ids, lambda scores, at: scores + amounts[at])


@dataclass(frozen=True, slots=True)
class RepetitionPenalty:
    """Divides positive and multiplies negative scores of every distinct token seen so far, the prompt included."""

    penalty: float

    def __call__(self, candidates: Candidates, context: Context) -> Candidates:
        factor = np.float32(self.penalty)
        return candidates.changed(
            np.unique(context.ids), lambda scores, _: np.where(scores < 0, scores * factor, scores / factor)
        )


@dataclass(frozen=True, slots=True)
class FrequencyPenalty:
    """Subtracts the penalty once for each time a token was generated."""

    penalty: float

    def __call__(self, candidates: Candidates, context: Context) -> Candidates:
        ids, counts = np.unique(context.ids[context.n_prompt :], return_counts=True)
        amounts = (counts * self.penalty).astype(np.float32)
        return candidates.changed(ids, lambda scores, at: scores - amounts[at])


@dataclass(frozen=True, slots=True)
class PresencePenalty:
    """Subtracts the penalty once from every token that was generated."""

    penalty: float

    def __call__(self, candidates: Candidates, context: Context) -> Candidates:
        ids = np.unique(context.ids[context.n_prompt :])
        return candidates.changed(ids, lambda scores, _: scores - np.float32(self.penalty))


@dataclass(frozen=True, slots=True)
class NoRepeatNgram:
    """Removes every token that would complete an n-gram already written, the prompt included."""

    n: int

    def __call__(self, candidates: Candidates, context: Context) -> Candidates:
        ids, n = context.ids, self.n
        if len(ids) < n:
            return candidates
        windows = np.lib.stride_tricks.sliding_window_view(ids, n)
        prefix = ids[len(ids) - n + 1 :]
        return candidates.without(windows[(windows[:, :-1] == prefix).all(axis=1), -1])


@dataclass(frozen=True, slots=True)
class BadWords:
    """Removes the last token of each forbidden sequence whose beginning has just been written; never a lone EOS."""

    sequences: tuple[tuple[int, ...], ...]

    def __call__(self, candidates: Candidates, context: Context) -> Candidates:
        lone_eos = {(eos,) for eos in context.eos_ids}
        banned = [s[-1] for s in self.sequences if s not in lone_eos and _just_written(context.ids, s[:-1])]
        return candidates.without(np.array(banned, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class MinNewTokens:
    """Removes the EOS tokens until `n` tokens have been generated."""

    n: int

    def __call__(self, candidates: Candidates, context: Context) -> Candidates:
        if len(context.ids) - context.n_prompt >= self.n:
            return candidates
        return candidates.without(np.array(context.eos_ids, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class SuppressTokens:
    """Removes the given token ids."""

    ids: tuple[int, ...]

    def __call__(self, candidates: Candidates, context: Context) -> Candidates:
        return candidates.without(np.array(self.ids, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class Temperature:
    """Divides every score by the temperature: below 1 sharpens, above 1 flattens; the order never changes."""

    temperature: float

    def __call__(self, candidates: Candidates, context: Context) -> Candidates:
        with np.errstate(over="ignore"):
            scores = candidates.scores / np.float32(self.temperature)
        if not -LARGEST <= scores.min() <= scores.max() <= LARGEST:
            scores = np.clip(scores, -LARGEST, LARGEST)
        return Candidates(candidates.ids, scores)


@dataclass(frozen=True, slots=True)
class TopH:
    """Keeps the likeliest tokens while their summed entropy stays within a share of the whole (top-H decoding)."""

    share: float

    def __call__(self, candidates: Candidates, context: Context) -> Candidates:
        order = leading(candidates.scores, TOP_H_CANDIDATES)[:TOP_H_CANDIDATES]
        probs = softmax(candidates.scores[order]).astype(np.float64)
        terms = -probs * np.log(np.where(probs > 0, probs, 1.0))
        n = max(1, int((np.cumsum(terms) <= (self.share + BOUNDARY) * terms.sum()).sum()))
        return candidates.at(order[:n])


@dataclass(frozen=True, slots=True)
class TopK:
    """Keeps the k highest scores; tokens tied with the k-th are all kept."""

    k: int

    def __call__(self, candidates: Candidates, context: Context) -> Candidates:
        if self.k >= len(candidates.ids):
            return candidates
        return candidates.at(highest(candidates.scores, self.k))


@dataclass(frozen=True, slots=True)
class TopP:
    """Keeps the likeliest tokens until their mass reaches p: a token stays while the mass before it is below p."""

    p: float

    def __call__(self, candidates: Candidates, context: Context) -> Candidates:
        probs, n = softmax(candidates.scores), LEADING
        while True:
            order = leading(candidates.scores, n)
            sorted_probs = probs[order].astype(np.float64)
            before = np.cumsum(sorted_probs) - sorted_probs
            kept = max(1, int((before < self.p - BOUNDARY).sum()))
            if kept < len(order) or len(order) == len(probs):
                return candidates.at(order[:kept])
            n *= 16


@dataclass(frozen=True, slots=True)
class MinP:
    """Keeps the tokens that are at least `min_p` times as likely as the likeliest one."""

    min_p: float

    def __call__(self, candidates: Candidates, context: Context) -> Candidates:
        relative = np.exp(candidates.scores - candidates.scores.max(), dtype=np.float64)
        return candidates.where(relative >= self.min_p * (1 - BOUNDARY))


@dataclass(frozen=True, slots=True)
class TypicalP:
    """Keeps the tokens whose surprise is nearest to the entropy, until their mass reaches p; ties are kept."""

    p: float

    def __call__(self, candidates: Candidates, context: Context) -> Candidates:
        probs = softmax(candidates.scores)
        with np.errstate(divide="ignore"):
            distance = np.abs(-np.log(probs, dtype=np.float64) - entropy(probs))
        order = np.argsort(distance, kind="stable")
        mass = np.cumsum(probs[order], dtype=np.float64)
        last = min(int((mass < self.p - BOUNDARY).sum()), len(order) - 1)
        return candidates.where(distance <= distance[order[last]])


@dataclass(frozen=True, slots=True)
class EpsilonCutoff:
    """Keeps the tokens with at least this probability, and always the likeliest ones."""

    epsilon: float

    def __call__(self, candidates: Candidates, context: Context) -> Candidates:
        return _at_least(candidates, softmax(candidates.scores), self.epsilon)


@dataclass(frozen=True, slots=True)
class EtaCutoff:
    """As epsilon, with a cutoff that falls when the entropy is high: min(e, sqrt(e) * exp(-entropy))."""

    epsilon: float

    def __call__(self, candidates: Candidates, context: Context) -> Candidates:
        probs = softmax(candidates.scores)
        cutoff = min(self.epsilon, self.epsilon**0.5 * math.exp(-entropy(probs)))
        return _at_least(candidates, probs, cutoff)


@dataclass(frozen=True, slots=True)
class Greedy:
    """Keeps the highest score alone; of several equal ones the first id, as argmax does."""

    def __call__(self, candidates: Candidates, context: Context) -> Candidates:
        best = int(np.argmax(candidates.scores))
        return Candidates(candidates.ids[best : best + 1], candidates.scores[best : best + 1])


def _just_written(ids: Ids, prefix: tuple[int, ...]) -> bool:
    return len(prefix) <= len(ids) and tuple(ids[len(ids) - len(prefix) :].tolist()) == prefix


def _at_least(candidates: Candidates, probs: Floats, cutoff: float) -> Candidates:
    return candidates.where((probs >= cutoff * (1 - BOUNDARY)) | (candidates.scores >= candidates.scores.max()))


Maker = Callable[["SamplingParams"], Step | None]

# name of the step (= name of the setting) -> how to make it from the settings, or None where it is off
STEPS: Mapping[str, Maker] = {
    "sequence_bias": lambda p: SequenceBias(p.sequence_bias) if p.sequence_bias else None,
    "repetition_penalty": lambda p: (
        RepetitionPenalty(p.repetition_penalty)
        if p.repetition_penalty is not None and p.repetition_penalty != 1
        else None
    ),
    "no_repeat_ngram_size": lambda p: NoRepeatNgram(p.no_repeat_ngram_size) if p.no_repeat_ngram_size else None,
    "bad_words_ids": lambda p: BadWords(p.bad_words_ids) if p.bad_words_ids else None,
    "min_new_tokens": lambda p: MinNewTokens(p.min_new_tokens) if p.min_new_tokens else None,
    "suppress_tokens": lambda p: SuppressTokens(p.suppress_tokens) if p.suppress_tokens else None,
    "frequency_penalty": lambda p: FrequencyPenalty(p.frequency_penalty) if p.frequency_penalty else None,
    "presence_penalty": lambda p: PresencePenalty(p.presence_penalty) if p.presence_penalty else None,
    "temperature": lambda p: Temperature(p.temperature) if p.temperature is not None and p.temperature != 1 else None,
    "top_h": lambda p: TopH(p.top_h) if p.top_h is not None else None,
    "top_k": lambda p: TopK(p.top_k) if p.top_k else None,
    "top_p": lambda p: TopP(p.top_p) if p.top_p is not None and p.top_p < 1 else None,
    "min_p": lambda p: MinP(p.min_p) if p.min_p else None,
    "typical_p": lambda p: TypicalP(p.typical_p) if p.typical_p is not None and p.typical_p < 1 else None,
    "epsilon_cutoff": lambda p: EpsilonCutoff(p.epsilon_cutoff) if p.epsilon_cutoff else None,
    "eta_cutoff": lambda p: EtaCutoff(p.eta_cutoff) if p.eta_cutoff else None,
}

# steps that shape the random draw: greedy decoding leaves them out, the others act on greedy decoding too
DRAWING = frozenset({"temperature", "top_h", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff"})

# The orders of transformers 5.24 (`_get_logits_processor`), llama.cpp (`common/sampling`) and vLLM v1
# (`v1/sample/sampler.py`). A setting that an engine does not offer stands beside its nearest relative.
ORDERS: Mapping[str, tuple[str, ...]] = {
    "transformers": tuple(STEPS),
    "llama.cpp": (
        "sequence_bias", "suppress_tokens", "bad_words_ids", "min_new_tokens", "no_repeat_ngram_size",
        "repetition_penalty", "frequency_penalty", "presence_penalty",
        "top_k", "typical_p", "top_p", "min_p", "top_h", "epsilon_cutoff", "eta_cutoff", "temperature",
    ),
    "vllm": (
        "suppress_tokens", "bad_words_ids", "no_repeat_ngram_size", "min_new_tokens", "sequence_bias",
        "repetition_penalty", "frequency_penalty", "presence_penalty",
        "temperature", "min_p", "top_k", "top_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff",
    ),
}  # fmt: skip
