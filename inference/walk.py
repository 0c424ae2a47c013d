"""A model fed by hand, with nothing recorded: what experiments on the cache are made of."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from inference.errors import N_, TraceError
from inference.forward import Cache
from inference.models import LoadedModel
from inference.recorder import Recorder
from inference.sampling import SamplingDecision, decide
from inference.sampling_steps import Context
from inference.trace import Trace
from inference.within_memory import within_memory

Floats = NDArray[np.float32]


def feed(model: LoadedModel, ids: NDArray[np.int64], cache: Cache | None) -> tuple[Floats, float]:
    """Logits [V] after the last of `ids` [Q], fed after what is in the cache; and the seconds of the pass.

    Raises:
        MemoryLimitError: the pass did not fit.
    """
    recorder = Recorder(attention=False, hidden=False, router=False)
    began = time.perf_counter()
    result = within_memory(model, len(ids), lambda: model.forward(ids, cache, recorder, weights=False))
    model.forward.synchronise()
    seconds = time.perf_counter() - began
    return result.logits.float().cpu().numpy(), seconds


def feed_rows(
    model: LoadedModel, ids: NDArray[np.int64], cache: Cache, seen: NDArray[np.bool_] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[Floats, float]:  # fmt: skip
    """Logits [B, V] after the last of `ids` [B, Q], B sequences fed at once, and the seconds of the pass.

    Args:
        seen: [B, n] where sequences have padding before them, see `Forward.rows`.

    Raises:
        MemoryLimitError: as `feed`.
    """
    model.forward.synchronise()
    began = clock()
    logits = within_memory(model, ids.size, lambda: model.forward.rows(ids, cache, seen).float().cpu().numpy())
    return logits, clock() - began


class Chooser:
    """Chooses as a recorded run did: its settings, its uniform number at each step, and the tokens put in by hand.

    Args:
        n_steps: how many steps will be asked for; they may be more than the run had.
    """

    def __init__(self, trace: Trace, n_steps: int) -> None:
        self._steps = trace.sampling.steps()
        self._uniform = np.random.default_rng(trace.sampling.seed).random(n_steps)
        self._n_prompt, self._eos_ids = trace.n_prompt, trace.eos_ids
        self._forced = {step.index: step.token_id for step in trace.steps if step.decision.forced}

    def __call__(self, logits: Floats, written: NDArray[np.int64], step: int) -> SamplingDecision:
        """The choice at a step from raw logits [V], after `written` [T]."""
        context = Context(written, self._n_prompt, self._eos_ids)
        return decide(logits, self._steps, context, float(self._uniform[step]), self._forced.get(step))


def check_model(model: LoadedModel, trace: Trace) -> None:
    """Refuse a model that did not make the run."""
    if (trace.model.name, trace.model.n_params) != (model.facts.name, model.facts.n_params):
        raise TraceError(
            N_("The run was made by {made}, and {model} is loaded."),
            N_("Load the model of the run."),
            made=trace.model.name,
            model=model.facts.name,
        )
