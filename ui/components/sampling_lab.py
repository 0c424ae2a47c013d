"""The sampling lab: the whole pipeline recomputed in the browser while a slider moves, and confirmed by the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from charts.base import Translate
from inference.sampling_params import SamplingParams
from inference.sampling_steps import Context


@dataclass(frozen=True)
class LabState:
    """What the reader has set, as the server has confirmed it.

    Attributes:
        params: the settings, the order of steps included.
        u: the uniform number that chooses the token, in [0, 1).
    """

    params: SamplingParams
    u: float


Notes = Mapping[str, str] | Callable[[LabState], Mapping[str, str]]


def sampling_lab(
    logits: NDArray[np.float32],
    tokens: Callable[[Sequence[int]], list[str]],
    *,
    context: Context,
    start: SamplingParams,
    u: float,
    recorded_id: int | None,
    notes: Notes,
    t: Translate,
    key: str,
) -> LabState:
    """Draw the controls, the columns of the pipeline and the bar with the needle; return what the reader has set.

    Args:
        logits: [V] raw logits of the step; -inf marks a token that cannot be chosen.
        tokens: readable texts of token ids.
        context: the ids written so far, how many of them are prompt, and the end tokens.
        start: the settings to begin with. The reader's own stay until another `start` is given; giving back what was
            returned leaves the reader alone.
        u: the uniform number recorded at this step.
        recorded_id: the token that the run took here, if there was one.
        notes: a short explanation by name of setting (`"greedy"`, `"temperature"`, …); given as a function, it is
            asked with the confirmed state, so that an explanation can hold its figures.
    """
    return LabState(start, u)
