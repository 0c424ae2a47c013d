"""The sampling pipeline of a recorded step, run again from its logits: exactly, or not at all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from inference.errors import SamplingError
from inference.sampling import SamplerStage, run_pipeline
from inference.trace import StepRecord, Trace

# float32 sums over a vocabulary in another order
TOLERANCE = 1e-3


def stages(trace: Trace, step: int) -> list[SamplerStage] | None:
    """Every stage of a step's pipeline under the run's own settings, or `None` where the logits do not suffice.

    Where only the highest logits were recorded, the pipeline is run over those. That is exact as soon as a setting
    has removed all the others, which is accepted only if the recorded counts, probability and entropy come out again.
    """
    record = trace.steps[step]
    logits = record.logits
    if logits is None:
        return None
    if logits.ids is None:
        return _run(trace, step, logits.values)
    if trace.sampling.is_greedy:  # its last distribution is one token, which would prove nothing
        return None
    whole = np.full(trace.model.vocab_size, -np.inf, dtype=np.float32)
    whole[logits.ids] = logits.values
    try:
        found = _run(trace, step, whole)
    except SamplingError:  # the settings leave none of the highest, so what they kept was not recorded
        return None
    return found if _agrees(found, record, trace.model.vocab_size) else None


def settings_only(found: Sequence[SamplerStage]) -> list[SamplerStage]:
    """The stages without the greedy choice, which is no setting that shapes a distribution."""
    return [stage for stage in found if stage.name != "greedy"]


def removed_by(found: Sequence[SamplerStage], ids: NDArray[np.int64]) -> list[str]:
    """The name of the stage that removed each of `ids` [n]; an empty text where none did."""
    names = [""] * len(ids)
    for before, after in pairwise(found):
        for at in np.flatnonzero(before.kept[ids] & ~after.kept[ids]):
            names[at] = after.name
    return names


def _run(trace: Trace, step: int, logits: NDArray[np.float32]) -> list[SamplerStage]:
    context = trace.context_ids(step)
    return run_pipeline(logits, trace.sampling, context.tolist(), trace.n_prompt, trace.eos_ids)


def _agrees(found: Sequence[SamplerStage], record: StepRecord, vocab_size: int) -> bool:
    """Whether a pipeline over the highest logits gives what was recorded over all of them."""
    decision, left = record.decision, vocab_size
    for name, count in decision.removed:
        left -= count
        if not any(stage.name == name and int(stage.kept.sum()) == left for stage in found):
            return False
    probs = found[-1].probs[found[-1].kept].astype(np.float64)
    entropy = float(-(probs * np.log(np.where(probs > 0, probs, 1.0))).sum())
    return (
        len(probs) == decision.n_kept
        and math.isclose(float(found[-1].probs[decision.token_id]), decision.prob, rel_tol=TOLERANCE, abs_tol=1e-7)
        and math.isclose(entropy, decision.entropy, rel_tol=TOLERANCE, abs_tol=1e-4)
    )
