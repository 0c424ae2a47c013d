"""The instrumented loop: prefill, then decode, one finished `StepRecord` at a time.

A run owns its cache and its random numbers and touches nothing that another run can see. Closing it cancels; what
was recorded up to then stays a valid trace.
"""

from __future__ import annotations

import gc
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from inference.budget import Plan, plan
from inference.errors import N_, InferenceError, MemoryLimitError, NumericalError, RequestError, SamplingError
from inference.forward import Cache, cache_sizes
from inference.models import LoadedModel, versions
from inference.recorder import Recorder
from inference.request import GenerationRequest
from inference.sampling import SamplingDecision, decide, resolve
from inference.sampling_steps import Context
from inference.stepping import (
    Passes,
    build_attention,
    build_hidden,
    build_logits,
    build_router,
    build_weights,
)
from inference.stopping import Finish, TextStream
from inference.tokens import Token
from inference.trace import KVState, StepRecord, StepTiming, Trace


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
    """

    def __init__(
        self,
        model: LoadedModel,
        request: GenerationRequest,
        clock: Callable[[], float] = time.perf_counter,
        start: Start | None = None,
    ) -> None:
        self._model, self.request, self._clock, self._start = model, request, clock, start
        self._began = clock()
        self.prompt_ids = model.tokenizer.encode(request)
        self._tokenise_s = clock() - self._began
        self._max_new = _check_length(model, len(self.prompt_ids), request)
        params, self.origin = resolve(request.sampling, model.generation_settings)
        self.sampling = replace(params, seed=_seed(params.seed))
        self.eos_ids = () if request.ignore_eos else model.eos_ids
        self.plan: Plan = plan(model.footprint, request.record, len(self.prompt_ids), self._max_new)
        self.steps: list[StepRecord] = []
        self.finish: Finish | None = None
        self._cancelled = False
        self._loop: _Loop | None = None
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
        self._cancelled = True

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
        vocabulary = self._model.tokenizer.vocabulary
        return tuple(vocabulary.token(int(i)) for i in (*self.prompt_ids, *(s.token_id for s in list(self.steps))))

    def trace(self) -> Trace:
        """The run as recorded so far."""
        model = self._model
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
            left_out=self.plan.left_out,
            versions=versions(),
        )

    def _run(self) -> Generator[StepRecord, None, None]:
        loop = self._loop = _Loop(self)
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


@dataclass(frozen=True, slots=True)
class Start:
    """Where a branch begins.

    Attributes:
        steps: the records that it shares with the run it leaves.
        at: the record of the step where it leaves, and `token_id` what is chosen there instead.
        cache: the positions fed up to that step, this run's own from now on; `None` to feed them again.
    """

    steps: tuple[StepRecord, ...]
    at: StepRecord
    token_id: int
    cache: Cache | None


@dataclass(frozen=True, slots=True)
class _Clocked:
    """Times of one step, before its record is made."""

    passes_s: tuple[float, ...]
    sampled: float
    forwarded: float
    began: float


class _Loop:
    """The state that one run carries from step to step."""

    def __init__(self, run: Generation) -> None:
        self._run, self._model = run, run._model
        self.cache: Cache = run._model.forward.new_cache()
        self._uniform = np.random.default_rng(run.sampling.seed)
        self._sampling_steps = run.sampling.steps()
        self._stream = TextStream(run.request.stop_strings, run.request.include_stop_string)
        self._written = np.empty(len(run.prompt_ids) + run._max_new, dtype=np.int64)
        self._written[: len(run.prompt_ids)] = run.prompt_ids
        self._n_written = len(run.prompt_ids)
        self._fed = 0
        self._kv = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
        self._branch: Start | None = None

    def replay(self, start: Start) -> None:
        """Bring the run to where a branch leaves, without choosing anything anew."""
        for record in start.steps:
            self._uniform.random()
            self._advance(record.index, record.decision)
        self._fed = self._n_written
        self._branch = start

    def step(self, index: int) -> StepRecord | None:
        """Feed what has not been fed yet, choose one token, record both; `None` where the run was cancelled."""
        if self._branch is not None:
            return self._leave(self._branch)
        began = self._run._clock()
        fed_ids = self._written[self._fed : self._n_written].copy()
        passes = self._forward(index, fed_ids)
        if passes is None:
            self._run.finish = Finish("cancelled")
            return None
        forwarded = self._run._clock()
        logits = passes.logits.float().cpu().numpy()
        decision = self._choose(index, logits)
        times = _Clocked(passes.seconds, self._run._clock(), forwarded, began)
        text = self._advance(index, decision)
        return self._record(index, fed_ids, passes, logits, decision, text, times)

    def _leave(self, start: Start) -> StepRecord:
        """The step where a branch leaves: the same logits, another token; the cache as that step left it."""
        self._branch, at = None, start.at
        assert at.logits is not None
        context = Context(self._written[: self._n_written], len(self._run.prompt_ids), self._run.eos_ids)
        decision = decide(
            at.logits.values, self._sampling_steps, context, float(self._uniform.random()), start.token_id
        )
        if start.cache is not None:
            self.cache = start.cache
        else:
            recorder = Recorder(attention=False, hidden=False, router=False)
            self._model.forward(self._written[: self._n_written], self.cache, recorder, weights=False)
        self._kv = cache_sizes(self.cache)
        self._fed = self._n_written
        return replace(at, decision=decision, text=self._advance(at.index, decision))

    def _forward(self, index: int, fed_ids: NDArray[np.int64]) -> Passes | None:
        """The forward passes of a step: one, or one a chunk of the prompt; `None` if cancelled in between."""
        size = self._run.request.prefill_chunk or len(fed_ids)
        passes = Passes(self._model, self._run.plan.options)
        try:
            for start in range(0, len(fed_ids), size):
                if self._run._cancelled:
                    return None
                passes.run(fed_ids[start : start + size], self.cache, self._run._clock)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            traceback.clear_frames(error.__traceback__)  # they hold the tensors of the failed pass
            failed = True
        else:
            failed = False
        if failed:
            self._give_back()
            raise MemoryLimitError(
                N_("There was not enough memory on {device} to feed {n} positions."),
                N_("Use a shorter prompt, prefill in chunks, or a smaller model."),
                device=self._model.facts.device,
                n=len(fed_ids),
            ).at_step(index)
        return passes

    def _choose(self, index: int, logits: NDArray[np.float32]) -> SamplingDecision:
        context = Context(self._written[: self._n_written], len(self._run.prompt_ids), self._run.eos_ids)
        try:
            return decide(logits, self._sampling_steps, context, float(self._uniform.random()))
        except (NumericalError, SamplingError) as error:
            raise error.at_step(index) from None

    def _advance(self, index: int, decision: SamplingDecision) -> str:
        """Write the token down, see whether the run ends with it, and return the text it makes certain."""
        run, token = self._run, self._model.tokenizer.vocabulary.token(decision.token_id)
        self._fed, self._n_written = self._n_written, self._n_written + 1
        self._written[self._n_written - 1] = token.id
        if token.id in run.eos_ids:
            run.finish = Finish("eos", token_id=token.id)
            return self._stream.flush()
        text, run.finish = self._stream.push(b"" if token.special else token.data)
        if run.finish is None and index + 1 == run._max_new:
            run.finish = Finish("length" if run._max_new == run.request.max_new_tokens else "context")
            text += self._stream.flush()
        return text

    def _record(
        self,
        index: int,
        fed_ids: NDArray[np.int64],
        passes: Passes,
        logits: NDArray[np.float32],
        decision: SamplingDecision,
        text: str,
        times: _Clocked,
    ) -> StepRecord:
        log_z = float(logits[decision.token_id]) - decision.raw_logprob
        options, eager = self._run.plan.options, self._model.forward.eager_weights
        attention = build_attention(passes, self._model) if options.attention is not False and not eager else None
        weights = build_weights(passes) if options.attention is not False and eager else None
        parts = {
            "kv": self._kv_state(len(fed_ids)),
            "logits": build_logits(logits, log_z, options.logits),
            "attention": attention,
            "weights": weights,
            "hidden": build_hidden(passes) if options.hidden else None,
            "router": build_router(passes) if options.router else (),
        }
        timing = StepTiming(
            forward_s=times.forwarded - times.began,
            sampling_s=times.sampled - times.forwarded,
            recording_s=self._run._clock() - times.sampled,
            at_s=times.sampled - self._run._began,
            passes_s=times.passes_s,
        )
        phase = "prefill" if index == 0 else "decode"
        return StepRecord(index, phase, fed_ids, decision, timing=timing, text=text, **parts)  # type: ignore[arg-type]

    def _kv_state(self, n_fed: int) -> KVState:
        positions, nbytes = cache_sizes(self.cache)
        before = self._kv[0] if len(self._kv[0]) else np.zeros_like(positions)
        added = np.where(positions > 0, n_fed, 0)
        self._kv = (positions, nbytes)
        return KVState(positions, nbytes, added, before + added - positions)

    def _give_back(self) -> None:
        self.cache = self._model.forward.new_cache()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on a GPU or on the CPU (which torch reports as a RuntimeError)."""
    text = str(error)
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or any(
        sign in text for sign in ("DefaultCPUAllocator", "out of memory", "can't allocate memory")
    )


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
