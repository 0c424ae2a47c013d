"""The figures of a request's speed: TTFT, ITL, TPOT and tokens a second, from the times at which tokens were known.

    TTFT = t_1, from the start of the request
    ITL  = t_i - t_(i-1), one a token after the first
    TPOT = (t_N - t_1) / (N - 1), the mean of the ITLs; a request of one token has none

Pure functions of recorded or typed times: nothing here reads a clock.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from inference.errors import N_, RequestError, TraceError
from inference.trace import Trace

Seconds = NDArray[np.float64]

MOST_TIMES, LONGEST = 10_000, 20
_SEPARATORS = re.compile(r"[\s,，、;；]+")


@dataclass(frozen=True, slots=True, eq=False)
class Speed:
    """A request's times and what follows from them.

    Attributes:
        at_s: [N] seconds from the start of the request at which each token was known; at least one.
        n_prompt, prefill_s: P, and the seconds of the prefill's forward passes; `None` where they are not known.
        taken_over: tokens of another run that come before these, so that there is no TTFT and no prefill.
    """

    at_s: Seconds
    n_prompt: int | None = None
    prefill_s: float | None = None
    taken_over: int = 0

    @property
    def n(self) -> int:
        """N, the tokens counted."""
        return len(self.at_s)

    @property
    def ttft_s(self) -> float | None:
        """Seconds to the first token."""
        return None if self.taken_over else float(self.at_s[0])

    @property
    def itl_s(self) -> Seconds:
        """[N - 1] seconds between tokens."""
        return np.diff(self.at_s)

    @property
    def tpot_s(self) -> float | None:
        """Seconds a token after the first; `None` for a single token."""
        return float(self.at_s[-1] - self.at_s[0]) / (self.n - 1) if self.n > 1 else None

    def itl_percentile_s(self, percent: float) -> float | None:
        """A percentile of the ITLs, interpolated between the two nearest; `None` for a single token."""
        return float(np.percentile(self.itl_s, percent)) if self.n > 1 else None

    @property
    def prefill_tok_s(self) -> float | None:
        """Prompt tokens a second of the prefill's forward passes."""
        return self.n_prompt / self.prefill_s if self.n_prompt and self.prefill_s else None

    @property
    def decode_tok_s(self) -> float | None:
        """Tokens a second after the first: 1 / TPOT."""
        tpot = self.tpot_s
        return 1 / tpot if tpot else None

    @property
    def request_tok_s(self) -> float | None:
        """Tokens a second of the whole request, the wait for the first token included."""
        return self.n / float(self.at_s[-1]) if not self.taken_over and self.at_s[-1] > 0 else None


def speed(trace: Trace, count_eos: bool = True) -> Speed:
    """The figures of a recorded run.

    Args:
        count_eos: whether the token that ended the text counts as one; the reader never sees it.

    Raises:
        TraceError: no token is left to count.
    """
    n = len(trace.steps) - (trace.finish.reason == "eos" and not count_eos)
    first = taken_over(trace)
    if n <= first:
        raise TraceError(N_("This run has no token whose time can be counted."), N_("Run a prompt first."))
    at_s = trace.timing.at_s[first:n]
    if first:
        return Speed(at_s, taken_over=first)
    return Speed(at_s, trace.n_prompt, sum(trace.steps[0].timing.passes_s))


def taken_over(trace: Trace) -> int:
    """How many of the first steps have the times of another run, which this one left as a branch.

    A run file that does not tell it shows it by tokens that were put in, and by a clock that starts anew.
    """
    forced = [step.index + 1 for step in trace.steps if step.decision.forced]
    at_s = trace.timing.at_s if trace.steps else np.zeros(0)
    back = (np.flatnonzero(np.diff(at_s) <= 0) + 1).tolist()
    return max([trace.taken_over, *forced, *back])


def parse_times(text: str) -> Speed:
    """Times in seconds from the start of a request, one a token, separated by spaces, commas or line breaks.

    Raises:
        RequestError: names the time that is wrong, and the limit.
    """
    parts = [part for part in _SEPARATORS.split(text) if part]
    if not 1 <= len(parts) <= MOST_TIMES:
        raise RequestError(
            N_("There are {n} times; from 1 to {limit} can be used."),
            N_("Write seconds since the request, one a token: 0.20 0.25"),
            n=len(parts),
            limit=MOST_TIMES,
        )
    times = [_time(at, part) for at, part in enumerate(parts, 1)]
    for at, (before, after) in enumerate(pairwise(times), 2):
        if after <= before:
            raise RequestError(
                N_("Time {at} is {after:g} s and does not come after the one before it, {before:g} s."),
                N_("Write seconds since the request, one a token: 0.20 0.25"),
                at=at,
                after=after,
                before=before,
            )
    return Speed(np.array(times))


def _time(at: int, written: str) -> float:
    try:
        value = float(written)
    except ValueError:
        value = math.nan
    if not 0 < value < 1e6:
        raise RequestError(
            N_("Time {at} must be a number of seconds above 0 and below a million, not {text}."),
            N_("Write seconds since the request, one a token: 0.20 0.25"),
            at=at,
            text=written[:LONGEST],
        )
    return value
