"""Several requests in one static batch, for real: padded on the left to one length, and compared with each alone.

Every request is also run by the engine itself, alone and by turns with the batch, so that a busy machine slows both.
The batch takes each row's prompt, limits, settings and seed from that run, and its choices are made by the same code.
Padding stands on the left, so that the last column holds every row's newest token; padding is masked, and each row's
positions are counted from its own first token. A row that has ended stays in the batch as padding until all have.

Sums are added up in another order in a batch, so logits differ by rounding; where the two ways choose differently, it
is said how far apart the logits were and how close the two tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from inference.engine import Generation, generate
from inference.errors import N_, RequestError
from inference.measured import Place
from inference.models import LoadedModel
from inference.request import GenerationRequest, RecordOptions
from inference.sampling import decide
from inference.sampling_steps import Context
from inference.time_sweeps import place
from inference.tokens import Token
from inference.walk import Floats, feed_rows

MAX_ROWS = 16
COMPARED = 1024  # highest logits of the run alone that are compared
ALONE = RecordOptions(logits=COMPARED, attention=False, hidden=False, router=False)


@dataclass(frozen=True, slots=True)
class Parting:
    """The first step at which a row and its run alone chose differently.

    Attributes:
        gap: between the two tokens' logits, in the run alone.
        difference: largest absolute difference of two logits at that step.
    """

    step: int
    gap: float
    difference: float


@dataclass(frozen=True, slots=True, eq=False)
class BatchedRow:
    """One request, both ways.

    Attributes:
        prompt: its tokens, template included.
        tokens, alone: what was chosen in the batch and alone; the end token is the last where there is one.
        difference: largest absolute difference of two logits while both ways had written the same.
        parting: `None` where both chose the same.
        alone_s: seconds of each pass of the run alone; the first is its prefill.
    """

    prompt: tuple[Token, ...]
    tokens: tuple[Token, ...]
    alone: tuple[Token, ...]
    difference: float
    parting: Parting | None
    alone_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class BatchedRun:
    """A batch of B rows as it was run.

    Attributes:
        length: positions of the padded prompts.
        seconds: of each pass of the batch; the first is the prefill.
    """

    place: Place
    rows: tuple[BatchedRow, ...]
    length: int
    seconds: tuple[float, ...]

    @property
    def nbytes(self) -> int:
        """Bytes held, about."""
        return sum(100 * (len(row.prompt) + len(row.tokens) + len(row.alone)) for row in self.rows)


def batched_run(
    model: LoadedModel, requests: Sequence[GenerationRequest],
    progress: Callable[[float], None] = lambda share: None, cancelled: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.perf_counter,
) -> BatchedRun | None:  # fmt: skip
    """Run requests as one batch and each alone; `None` where it was cancelled.

    Raises:
        RequestError: too many or none, one has stop strings, or a prompt is empty or too long.
        MemoryLimitError: a pass did not fit.
    """
    _check(requests)
    with ExitStack() as closing:
        rows = [_Row(closing.enter_context(generate(model, replace(one, record=ALONE)))) for one in requests]
        length = max(len(row.alone.prompt_ids) for row in rows)
        _check_padded(model, rows, length)
        fed, seen = left_padded([row.alone.prompt_ids for row in rows])
        cache, seconds, most = model.forward.new_cache(), [], max(row.alone.max_new for row in rows)
        while not all(row.ended for row in rows):
            if cancelled():
                return None
            logits, took = feed_rows(model, fed, cache, seen, clock)
            seconds.append(took)
            fed = np.array([[row.step(found)] for row, found in zip(rows, logits, strict=True)])
            seen = np.concatenate([seen, np.ones((len(rows), 1), dtype=bool)], axis=1)
            progress(len(seconds) / most)
        for row in rows:
            for _ in row.alone:  # where it goes on longer than in the batch
                if cancelled():
                    return None
        return BatchedRun(place(model), tuple(row.finished() for row in rows), length, tuple(seconds))


def left_padded(prompts: Sequence[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Prompts as [B, n], padded on the left with each one's first token; and which places [B, n] are their own."""
    length = max(len(prompt) for prompt in prompts)
    ids = np.stack([np.concatenate([np.full(length - len(p), p[0]), p]) for p in prompts])
    seen = np.arange(length)[None] >= length - np.array([len(prompt) for prompt in prompts])[:, None]
    return ids, seen


@dataclass(slots=True)
class _Row:
    """A row of the batch, and the engine's own run of its request."""

    alone: Generation
    written: list[int] = field(default_factory=list)
    difference: float = 0.0
    parting: Parting | None = None
    ended: bool = False
    _uniform: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._uniform = np.random.default_rng(self.alone.sampling.seed)

    def step(self, logits: Floats) -> int:
        """Choose from the batch's logits [V] and take the step alone too; the token that the batch is fed next."""
        if not self.ended:
            next(self.alone, None)
            self._choose(logits)
        return self.written[-1]

    def _choose(self, logits: Floats) -> None:
        run, at = self.alone, len(self.written)
        context = Context(np.array([*run.prompt_ids, *self.written]), len(run.prompt_ids), run.eos_ids)
        token_id = decide(logits, run.sampling.steps(), context, float(self._uniform.random())).token_id
        self.written.append(token_id)
        self.ended = token_id in run.eos_ids or len(self.written) == run.max_new
        if self.parting is None:
            self._compare(logits, at, token_id)

    def _compare(self, logits: Floats, at: int, token_id: int) -> None:
        step = self.alone.steps[at]
        assert step.logits is not None
        ids = slice(None) if step.logits.ids is None else step.logits.ids
        here = float(np.abs(logits[ids] - step.logits.values).max())
        self.difference = max(self.difference, here)
        if token_id != step.token_id:
            values = dict(zip(np.arange(len(logits))[ids].tolist(), step.logits.values.tolist(), strict=True))
            gap = abs(values[step.token_id] - values.get(token_id, min(values.values())))
            self.parting = Parting(at, gap, here)

    def finished(self) -> BatchedRow:
        """The row as it ended."""
        tokens, n = self.alone.tokens, len(self.alone.prompt_ids)
        vocabulary = self.alone.model.tokenizer.vocabulary
        return BatchedRow(
            prompt=tokens[:n],
            tokens=tuple(vocabulary.token(i) for i in self.written),
            alone=tokens[n:],
            difference=self.difference,
            parting=self.parting,
            alone_s=tuple(step.timing.forward_s for step in self.alone.steps),
        )


def _check(requests: Sequence[GenerationRequest]) -> None:
    if not 1 <= len(requests) <= MAX_ROWS:
        raise RequestError(N_("There are {n} requests; a batch takes 1 to {limit}."), n=len(requests), limit=MAX_ROWS)
    if any(one.stop_strings for one in requests):
        raise RequestError(N_("Stop strings are not looked for in a batch."), N_("Leave them out."))


def _check_padded(model: LoadedModel, rows: Sequence[_Row], length: int) -> None:
    limit = model.facts.context_length
    needed = length + max(row.alone.max_new for row in rows)
    if limit is not None and needed > limit:
        raise RequestError(
            N_("Padded to the longest prompt, the batch needs {n} positions; {model} reads at most {limit}."),
            N_("Shorten the longest prompt or ask for fewer tokens."),
            n=needed,
            limit=limit,
            model=model.facts.name,
        )
