"""The instrumented loop: prefill, then decode, one finished `StepRecord` at a time.

A run owns its cache and its random numbers and touches nothing that another run can see. Closing it cancels; what
was recorded up to then stays a valid trace.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from types import TracebackType
from typing import Self

import numpy as np

from inference.budget import Plan, plan
from inference.errors import N_, InferenceError, ModelError, Note, RequestError
from inference.forward import Cache
from inference.head import with_lens
from inference.loop import Loop, Start
from inference.machine import machine
from inference.models import LoadedModel, versions
from inference.request import GenerationRequest
from inference.sampling import resolve
from inference.stopping import Finish
from inference.tokens import Token
from inference.trace import StepRecord, Trace


def generate(model: LoadedModel, request: GenerationRequest) -> Generation:
    """Start a run; iterate over it for one `StepRecord` a token, as they happen.

    Raises:
        RequestError: before the model is called, when the prompt is empty or does not fit, with both numbers.
    """
    return Generation(model, request)


def record(model: LoadedModel, request: GenerationRequest) -> Trace:
    """Run a request to its end and return the whole trace."""
    with generate(model, request) as run:
        for _ in run:
            pass
        return run.trace()


class Generation:
    """One run: an iterator over its steps that can be cancelled, and that knows its trace so far.

    Attributes:
        prompt_ids: [P] the prompt as fed, template included.
        plan: what is recorded and what it takes, known before the first step.
        steps: the records so far.
        finish: why the run ended; `None` while it runs.
        max_new: most tokens it can choose: as asked, or fewer where the context ends first.
        cancelled: whether `cancel` was called.
    """

    def __init__(
        self,
        model: LoadedModel,
        request: GenerationRequest,
        clock: Callable[[], float] = time.perf_counter,
        start: Start | None = None,
    ) -> None:
        self.model, self.request, self.clock, self._start = model, request, clock, start
        self.began = clock()
        self.prompt_ids = model.tokenizer.encode(request)
        self._tokenise_s = clock() - self.began
        self.max_new = _check_length(model, len(self.prompt_ids), request)
        params, self.origin = resolve(request.sampling, model.generation_settings)
        self.sampling = replace(params, seed=_seed(params.seed))
        self.eos_ids = () if request.ignore_eos else model.eos_ids
        self.plan: Plan = plan(model.footprint, request.record, len(self.prompt_ids), self.max_new)
        self.steps: list[StepRecord] = []
        self.finish: Finish | None = None
        self.left_out = self.plan.left_out
        self.cancelled = False
        self._loop: Loop | None = None
        self._iterator = self._run()

    def __iter__(self) -> Iterator[StepRecord]:
        return self

    def __next__(self) -> StepRecord:
        return next(self._iterator)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def cancel(self) -> None:
        """Ask the run to end before its next forward pass; may be called from another thread."""
        self.cancelled = True

    def close(self) -> None:
        """End the run and give its cache back; a run that was not finished counts as cancelled."""
        self._iterator.close()
        self._loop = None
        if self.finish is None:
            self.finish = Finish("cancelled")

    @property
    def cache(self) -> Cache | None:
        """The KV cache as the last step left it, until the run is closed; for `inference.branch`, which copies it."""
        return None if self._loop is None else self._loop.cache

    @property
    def tokens(self) -> tuple[Token, ...]:
        """Prompt tokens, then those chosen so far."""
        vocabulary = self.model.tokenizer.vocabulary
        return tuple(vocabulary.token(int(i)) for i in (*self.prompt_ids, *(s.token_id for s in list(self.steps))))

    def trace(self) -> Trace:
        """The run as recorded so far."""
        model = self.model
        return Trace(
            model=model.facts,
            request=self.request,
            sampling=self.sampling,
            origin=self.origin,
            eos_ids=self.eos_ids,
            prompt_tokens=tuple(model.tokenizer.vocabulary.token(int(i)) for i in self.prompt_ids),
            steps=tuple(self.steps),
            finish=self.finish or Finish("cancelled"),
            vocabulary=model.tokenizer.vocabulary,
            layers=model.layers,
            tokenise_s=self._tokenise_s,
            element=model.element,
            left_out=self.left_out,
            versions={**versions(), "machine": machine(model.forward.device)},
            taken_over=0 if self._start is None else min(len(self._start.steps) + 1, len(self.steps)),
        )

    def _run(self) -> Generator[StepRecord, None, None]:
        loop = self._loop = Loop(self)
        if self._start is not None:
            self.steps.extend(self._start.steps)
            loop.replay(self._start)
        while self.finish is None:
            try:
                step = loop.step(len(self.steps))
            except InferenceError as error:
                self.finish = Finish("error", text=str(error))
                raise
            if step is not None:
                self.steps.append(step)
                yield step
        if self.plan.options.lens:
            self._look()

    def _look(self) -> None:
        """The logit lens of all steps, from hidden states that are given back unless they are to be kept."""
        try:
            found = with_lens(self.model, self.steps, cancelled=lambda: self.cancelled)
        except ModelError as error:
            found, self.left_out = None, (*self.left_out, Note(error.what, error.values))
        kept = self.steps if found is None else found
        self.steps[:] = kept if self.plan.options.hidden else [replace(step, hidden=None) for step in kept]


def _check_length(model: LoadedModel, n_prompt: int, request: GenerationRequest) -> int:
    """How many tokens can be generated: as asked, or fewer where the context ends first."""
    if n_prompt == 0:
        raise RequestError(N_("The prompt is empty."), N_("Type at least one character."))
    limit = model.facts.context_length
    if limit is None:
        return request.max_new_tokens
    if n_prompt > limit - 1:
        raise RequestError(
            N_("The prompt has {n} tokens; {model} reads at most {limit}, and one place is needed for an answer."),
            N_("Shorten the prompt by {over} tokens."),
            n=n_prompt,
            limit=limit,
            over=n_prompt - limit + 1,
            model=model.facts.name,
        )
    return min(request.max_new_tokens, limit - n_prompt)


def _seed(seed: int | None) -> int:
    return int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
