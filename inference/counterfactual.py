"""Other settings over a whole recorded run: where they would have chosen another token, without the model.

Every step keeps its own uniform number, so that the settings are the only difference. Up to and including the first
step where another token is chosen this is what would have happened; the steps after it answer for the text as it was
recorded, since the other text was never computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from inference.errors import NumericalError, SamplingError
from inference.position import at_step, settled
from inference.sampling import SamplingDecision, decide
from inference.sampling_params import SamplingParams
from inference.trace import Trace


@dataclass(frozen=True, slots=True)
class Choice:
    """What settings would choose at a step of a recorded run.

    Attributes:
        recorded_id: the token that the run took.
        u: the step's uniform number.
        decision: what the settings would take there; `None` where the recorded logits cannot tell.
        forced: a person chose the recorded token, so that no settings could have taken another.
    """

    step: int
    recorded_id: int
    u: float
    decision: SamplingDecision | None
    forced: bool

    @property
    def differs(self) -> bool:
        """Whether the settings would have taken another token than the run did."""
        return self.decision is not None and not self.forced and self.decision.token_id != self.recorded_id


def uniforms(trace: Trace) -> list[float]:
    """The uniform number of every step: the seed's, which the loop draws at each step whether it needs one or not."""
    drawn = np.random.default_rng(trace.sampling.seed).random(len(trace.steps)).tolist()
    recorded = [step.decision.draw_u for step in trace.steps]
    return [given if u is None else u for u, given in zip(recorded, drawn, strict=True)]


def choices(trace: Trace, params: SamplingParams) -> list[Choice]:
    """What the settings would choose at each step of the run, in the step's recorded context and with its number.

    Raises:
        SamplingError: the settings leave nothing to choose from; the message names the step of the run.
        TraceError: the run holds no logits.
    """
    steps, found = params.steps(), []
    for record, u in zip(trace.steps, uniforms(trace), strict=True):
        position = at_step(trace, record.index)
        forced = record.token_id if record.decision.forced else None
        decision = None
        try:
            if settled(position, params) and (forced is None or position.knows(forced)):
                decision = decide(position.logits, steps, position.context, u, forced)
        except (SamplingError, NumericalError) as error:
            raise error.at_step(record.index) from None
        if decision is not None and not position.whole:  # the one figure that the highest logits do not give
            decision = replace(decision, raw_entropy=record.decision.raw_entropy)
        found.append(Choice(record.index, record.token_id, u, decision, forced is not None))
    return found


def parting(found: Sequence[Choice]) -> int | None:
    """The first step where the settings choose another token, or `None`; what cannot be told counts as the same."""
    return next((choice.step for choice in found if choice.differs), None)
