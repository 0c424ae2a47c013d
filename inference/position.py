"""One position of a run to choose a token for: its logits, its context, and what the highest logits alone settle.

A run may hold only the highest logits of a step, and what all others add up to. That mass is then spread evenly over
the others, which makes the probabilities of those that were recorded true, and `settled` says whether the result of
some settings would be the same however it is spread.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from inference.errors import N_, TraceError
from inference.sampling import candidates_of, narrow
from inference.sampling_params import SamplingParams
from inference.sampling_steps import DRAWING, Candidates, Context, Step
from inference.trace import Floats, Trace

BY_ENTROPY = frozenset({"typical_p", "eta_cutoff"})  # what they keep does not grow or shrink with the others' mass


@dataclass(frozen=True, slots=True, eq=False)
class Position:
    """What one token is chosen from.

    Attributes:
        logits: [V] float32, before any setting; those that were not recorded are equal, and have the mass they had.
        context: the tokens written so far, for penalties and bans.
        recorded: [V] bool, the tokens whose logits are known; `None` where all are.
        log_rest: log of the sum of exp over the tokens that are not; -inf where there are none.
    """

    logits: Floats
    context: Context
    recorded: NDArray[np.bool_] | None = None
    log_rest: float = -np.inf

    @property
    def whole(self) -> bool:
        """Whether every token's logit is here."""
        return self.recorded is None

    @property
    def n_recorded(self) -> int:
        """How many tokens' logits are known."""
        return len(self.logits) if self.recorded is None else int(self.recorded.sum())

    def knows(self, token_id: int) -> bool:
        """Whether a token's logit was recorded."""
        return self.recorded is None or bool(self.recorded[token_id])


def at_step(trace: Trace, step: int) -> Position:
    """The position that a step of a run chose for.

    Raises:
        TraceError: the run holds no logits.
    """
    logits = trace.steps[step].logits
    if logits is None:
        raise TraceError(
            N_("This run holds no logits, so no other settings can be tried on it."),
            N_("Run the prompt again with all logits recorded."),
        )
    context = Context(trace.context_ids(step), trace.n_prompt, trace.eos_ids)
    if logits.ids is None:
        return Position(logits.values, context)
    return of_highest(logits.values, logits.ids, logits.log_z, trace.model.vocab_size, context)


def of_highest(values: Floats, ids: NDArray[np.int64], log_z: float, size: int, context: Context) -> Position:
    """A position of which only the highest logits are known.

    Args:
        values, ids: [n] the highest logits, and whose they are.
        log_z: log of the sum of exp over all `size` logits.
    """
    recorded = np.zeros(size, dtype=np.bool_)
    recorded[ids] = True
    share = 1 - float(np.exp(values.astype(np.float64) - log_z).sum())
    log_rest = log_z + np.log(share) if share > 0 and len(ids) < size else -np.inf
    logits = np.full(size, min(log_rest - np.log(max(size - len(ids), 1)), values.min()), dtype=np.float32)
    logits[ids] = values
    return Position(logits, context, recorded, log_rest)


def settled(position: Position, params: SamplingParams) -> bool:
    """Whether the recorded logits alone give the result of the settings, exactly.

    They do if every token that was not recorded is removed whatever its logit. Of those tokens it is known that none
    is above the lowest recorded one, and what they add up to. For that sum, temperature makes most or least of them
    when they are all equal, and when as few as possible hold it all (the function is convex or concave, so that its
    extremes lie there). Settings that keep more the more mass the others hold are settled if both extremes, and the
    others' absence where penalties or bans may act on them, leave the same tokens.
    """
    if position.recorded is None:
        return True
    steps = params.steps()
    if _may_lift(position, params):
        return False
    left = _left(position, position.logits, steps)
    if left is None:
        return False
    others = [_gathered(position)]
    if any(name not in DRAWING and name != "greedy" for name, _ in steps):
        others.append(np.where(position.recorded, position.logits, np.float32(-np.inf)))
    found = (_left(position, logits, steps) for logits in others)
    return all(ids is not None and np.array_equal(ids, left) for ids in found)


def _may_lift(position: Position, params: SamplingParams) -> bool:
    """Whether a setting may lift a token that was not recorded above one that was."""
    lifting: list[Iterable[int]] = [sequence[-1:] for sequence, bias in params.sequence_bias if bias > 0]
    seen, written = position.context.ids, position.context.ids[position.context.n_prompt :]
    if params.repetition_penalty is not None and params.repetition_penalty < 1:
        lifting.append(seen)
    if min(params.presence_penalty or 0, params.frequency_penalty or 0) < 0:
        lifting.append(written)
    assert position.recorded is not None
    return any(not position.recorded[np.asarray(ids, dtype=np.int64)].all() for ids in lifting)


def _gathered(position: Position) -> Floats:
    """The logits if as few as possible of those that were not recorded held all their mass."""
    assert position.recorded is not None
    logits, rest = position.logits.copy(), np.flatnonzero(~position.recorded)
    logits[rest] = -np.inf
    top = float(position.logits[position.recorded].min())
    n_full, remainder = divmod(float(np.exp(position.log_rest - top)), 1.0)
    logits[rest[: int(n_full)]] = top
    if remainder > 0 and n_full < rest.size:
        logits[rest[int(n_full)]] = top + np.log(remainder)
    return logits


def _left(position: Position, logits: Floats, steps: tuple[tuple[str, Step], ...]) -> NDArray[np.int64] | None:
    """The ids that the steps leave, or `None` where one that was not recorded takes part in what may not be told."""
    candidates = candidates_of(logits)
    for name, step in steps:
        if name in BY_ENTROPY and not _all_recorded(position, candidates):
            return None
        candidates = narrow(candidates, ((name, step),), position.context)
    return candidates.ids if _all_recorded(position, candidates) else None


def _all_recorded(position: Position, candidates: Candidates) -> bool:
    return position.recorded is None or bool(position.recorded[candidates.ids].all())
