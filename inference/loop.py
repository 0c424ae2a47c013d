"""The body of a run: feed, choose, write down, record; and what a branch starts from.

A loop owns its cache and its random numbers. It says when the run has ended by setting the run's `finish`.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from inference.errors import MemoryLimitError, NumericalError, SamplingError
from inference.forward import Cache, cache_sizes
from inference.recorder import Recorder
from inference.sampling import SamplingDecision, decide
from inference.sampling_steps import Context
from inference.stepping import Passes, build_attention, build_hidden, build_logits, build_router, build_weights
from inference.stopping import Finish, TextStream
from inference.trace import KVState, StepRecord, StepTiming
from inference.within_memory import within_memory

if TYPE_CHECKING:
    from inference.engine import Generation


@dataclass(frozen=True, slots=True)
class Start:
    """Where a branch begins.

    Attributes:
        steps: the records that it shares with the run it leaves.
        at: the record of the step where it leaves, and `token_id` what is put in there; `None` to draw it anew.
        cache: the positions fed up to that step, this run's own from now on; `None` to feed them again.
    """

    steps: tuple[StepRecord, ...]
    at: StepRecord
    token_id: int | None
    cache: Cache | None


@dataclass(frozen=True, slots=True)
class _Clocked:
    """Times of one step, before its record is made."""

    passes_s: tuple[float, ...]
    sampled: float
    forwarded: float
    began: float


class Loop:
    """The state that one run carries from step to step."""

    def __init__(self, run: Generation) -> None:
        self._run, self._model = run, run.model
        self.cache: Cache = run.model.forward.new_cache()
        self._uniform = np.random.default_rng(run.sampling.seed)
        self._sampling_steps = run.sampling.steps()
        self._stream = TextStream(run.request.stop_strings, run.request.include_stop_string)
        self._written = np.empty(len(run.prompt_ids) + run.max_new, dtype=np.int64)
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
        began = self._run.clock()
        fed_ids = self._written[self._fed : self._n_written].copy()
        passes = self._forward(index, fed_ids)
        if passes is None:
            self._run.finish = Finish("cancelled")
            return None
        forwarded = self._run.clock()
        decision = self._choose(index, passes.logits)
        times = _Clocked(passes.seconds, self._run.clock(), forwarded, began)
        text = self._advance(index, decision)
        return self._record(index, fed_ids, passes, decision, text, times)

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
        return replace(at, decision=decision, text=self._advance(at.index, decision), lens=None)

    def _forward(self, index: int, fed_ids: NDArray[np.int64]) -> Passes | None:
        """The forward passes of a step; `None` if cancelled in between."""
        passes = Passes(self._model, self._run.plan.options)
        try:
            whole = within_memory(self._model, len(fed_ids), lambda: self._feed(passes, fed_ids))
        except MemoryLimitError as error:
            self._give_back()
            raise error.at_step(index) from None
        return passes if whole else None

    def _feed(self, passes: Passes, ids: NDArray[np.int64]) -> bool:
        """One pass, or one a chunk of the prompt; whether it came to the end without being cancelled."""
        size = self._run.request.prefill_chunk or len(ids)
        for start in range(0, len(ids), size):
            if self._run.cancelled:
                return False
            passes.run(ids[start : start + size], self.cache, self._run.clock)
        return True

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
        if run.finish is None and index + 1 == run.max_new:
            run.finish = Finish("length" if run.max_new == run.request.max_new_tokens else "context")
            text += self._stream.flush()
        return text

    def _record(
        self,
        index: int,
        fed_ids: NDArray[np.int64],
        passes: Passes,
        decision: SamplingDecision,
        text: str,
        times: _Clocked,
    ) -> StepRecord:
        logits = passes.logits
        log_z = float(logits[decision.token_id]) - decision.raw_logprob
        options, eager = self._run.plan.options, self._model.forward.eager_weights
        attention = build_attention(passes, self._model) if options.attention is not False and not eager else None
        weights = build_weights(passes) if options.attention is not False and eager else None
        parts = {
            "kv": self._kv_state(len(fed_ids)),
            "logits": build_logits(logits, log_z, options.logits),
            "attention": attention,
            "weights": weights,
            "hidden": build_hidden(passes) if options.hidden or options.lens else None,
            "router": build_router(passes) if options.router else (),
        }
        timing = StepTiming(
            forward_s=times.forwarded - times.began - passes.copied_s,
            sampling_s=times.sampled - times.forwarded,
            recording_s=self._run.clock() - times.sampled + passes.copied_s,
            at_s=times.sampled - self._run.began,
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
