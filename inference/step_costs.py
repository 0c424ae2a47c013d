"""What a prefill and a batched decode step cost, had from times that were measured on one machine.

Three sweeps are needed (`inference.time_sweeps`), all of one model on one machine:

- "prefill": one prompt of growing length. Its fit, fixed + linear · T + quadratic · T², is the cost of a prefill. In a
  batch padded to one length, the fixed part is paid once, the other two by every row. A chunk of c tokens after d
  pays linear · c + quadratic · ((d + c)² − d²), and the fixed part once more.
- "batch": one decode step of 1 to 16 rows after a short context. Between two measured sizes the cost lies on the
  straight line between their medians.
- "decode": one step of one row after growing contexts. The slope of its linear fit is what every position of a row
  adds to a step beyond the context of the batch sweep; a shorter context counts as that one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from inference.errors import N_, RequestError
from inference.measured import Fit, Line, Place, Sweep, fit

NEEDED = {"prefill": N_("Prefill time"), "decode": N_("Decode step time"), "batch": N_("Batch size")}


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Seconds of a pass.

    Attributes:
        prefill: the fit of one prompt's prefill.
        steps_s: seconds of a decode step of 1, 2, … rows, up to the largest batch that was measured.
        context: positions that each row of those steps had in its cache.
        position_s: what a row's position beyond them adds.
        longest_prompt, longest_context: the longest measured; costs beyond are extrapolated.
        place: where all of it was measured.
    """

    prefill: Fit
    steps_s: tuple[float, ...]
    context: int
    position_s: float
    longest_prompt: int
    longest_context: int
    place: Place

    @classmethod
    def of(cls, sweeps: Mapping[str, Sweep]) -> Self:
        """The costs that sweeps, by kind, give.

        Raises:
            RequestError: a sweep is missing, or they were not made on one model and machine.
        """
        for kind, title in NEEDED.items():
            if kind not in sweeps:
                raise RequestError(
                    N_("Nothing can be scheduled yet: “{sweep}” has not been measured for this model on this machine."),
                    N_("Measure it first."),
                    sweep=title,
                )
        places = {sweeps[kind].place for kind in NEEDED}
        if len(places) > 1:
            raise RequestError(
                N_("The sweeps come from different models or machines, so their times cannot be put together."),
                N_("Measure them again."),
            )
        prompts, batch = sweeps["prefill"].lines[0], sweeps["batch"].lines[0]
        cached = next(line for line in sweeps["decode"].lines if line.name == "cached")
        return cls(
            prefill=fit(prompts.x, prompts.median_s),
            steps_s=_every_size(batch),
            context=sweeps["batch"].fixed,
            position_s=fit(cached.x, cached.median_s, degree=1).linear,
            longest_prompt=int(prompts.x[-1]),
            longest_context=int(cached.x[-1]),
            place=places.pop(),
        )

    @property
    def largest_batch(self) -> int:
        """Rows of the largest batch whose step was measured."""
        return len(self.steps_s)

    def prefill_s(self, n: int, rows: int = 1, done: int = 0) -> float:
        """One pass over `n` tokens of each of so many rows, after `done` tokens of each."""
        squares = (done + n) ** 2 - done**2
        return self.prefill.fixed + rows * (self.prefill.linear * n + self.prefill.quadratic * squares)

    def decode_s(self, contexts: Sequence[int]) -> float:
        """One decode step of rows with these positions in the cache."""
        beyond = sum(max(0, n - self.context) for n in contexts)
        return self.steps_s[len(contexts) - 1] + self.position_s * beyond


def _every_size(batch: Line) -> tuple[float, ...]:
    sizes = np.arange(1, batch.x[-1] + 1)
    return tuple(float(s) for s in np.interp(sizes, batch.x, batch.median_s))
