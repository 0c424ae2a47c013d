"""What a pass showed, brought to the host: asked for during no pass, in one buffer, and the same as read one by one."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from inference import readback
from inference.engine import Generation, record
from inference.recorder import Recorder
from inference.sampling import SamplingParams
from inference.trace import StepTiming, Trace
from inference.trace_io import dump
from tests.embedded import embedded
from tests.tiny import NAMES, PROMPT, ask, loaded

# what makes the host wait for a number or a shape: `if`, `int()` and `.item()`, `nonzero` and masks as indices
WAITING = {"_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select", "_unique2", "repeat_interleave"}
KINDS = ["llama", "gemma2", "gpt_oss", "mixtral", "deepseek_v3", "bloom"]


class Waits(TorchDispatchMode):
    """Counts the operations that read a number back while it is active."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().removeprefix("aten::").split(".")[0]
        if name in WAITING:
            self.found.append(name)
        return func(*args, **(kwargs or {}))


@pytest.fixture
def through_a_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat the CPU as a device that works on its own: every tensor goes through the packed buffer."""

    def start(tensors: list[torch.Tensor]) -> Any:
        return readback._Copy(readback.pack(tensors).clone(), Clocked(0), Clocked(0))  # type: ignore[arg-type]

    monkeypatch.setattr(readback, "is_away", lambda tensor: True)
    monkeypatch.setattr(readback._Copy, "start", start)


class Clocked:
    """An event at a known time, in milliseconds."""

    def __init__(self, at: float) -> None:
        self.at = at

    def elapsed_time(self, later: Clocked) -> float:
        return later.at - self.at


def plain(trace: Trace) -> bytes:
    """A run file without its times, which no two runs share."""
    timing = StepTiming(0.0, 0.0, 0.0, 0.0, ())
    return dump(replace(trace, steps=tuple(replace(step, timing=timing) for step in trace.steps), tokenise_s=0.0))


def test_tensors_of_any_type_and_layout_come_out_of_one_buffer_as_they_went_in() -> None:
    there = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    tensors = [
        torch.tensor([True, False, True]),
        there.T[1:3],
        torch.tensor([2**40, -1]),
        torch.empty((0, 5)),
        there.to(torch.bfloat16)[:, 1],
        torch.tensor(7, dtype=torch.int32),
    ]
    found = readback.unpack(readback.pack(tensors).clone(), tensors)
    assert [t.dtype for t in found] == [t.dtype for t in tensors]
    assert all(torch.equal(a, b) for a, b in zip(found, tensors, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", KINDS)
def test_a_run_that_comes_back_in_buffers_is_the_run_read_tensor_by_tensor(
    name: str, dtype: torch.dtype, request: pytest.FixtureRequest
) -> None:
    model = loaded(name, dtype)
    asked = ask(max_new_tokens=6, prefill_chunk=5, sampling=SamplingParams(seed=7))
    expected = plain(record(model, asked))
    request.getfixturevalue("through_a_buffer")
    assert plain(record(model, asked)) == expected


@pytest.mark.usefixtures("through_a_buffer")
def test_handing_over_what_was_recorded_counts_as_recording_and_not_as_the_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Clocked, "elapsed_time", lambda began, ended: 250.0)
    seconds = count()
    (step,) = Generation(loaded("llama"), ask(max_new_tokens=1), clock=lambda: float(next(seconds)))
    # one second from each reading to the next: the step, the pass, its end, the step's; chosen; recorded
    assert step.timing.passes_s == (0.75,)
    assert step.timing.forward_s == 2.75
    assert step.timing.sampling_s == 1
    assert step.timing.recording_s == 1.25


@pytest.mark.parametrize("name", NAMES)
def test_recording_reads_no_number_while_a_pass_is_going_on(name: str) -> None:
    model, ids = loaded(name), np.array(PROMPT)

    def waits(recorder: Recorder) -> list[str]:
        """Of a prefill, and of the decode step after it."""
        forward, found = model.forward, Waits()
        cache = forward.new_cache()
        with found:
            forward(ids, cache, recorder, weights=recorder.attention)
            forward(ids[:1], cache, replace(recorder), weights=recorder.attention)
        return found.found

    assert waits(Recorder()) == waits(Recorder(attention=False, hidden=False, router=False))


def test_a_decode_step_of_the_embedded_model_reads_no_number_at_all() -> None:
    forward, found = embedded().forward, Waits()
    cache = forward.new_cache()
    forward(np.array(PROMPT), cache, Recorder(), weights=True)
    with found:
        forward(np.array(PROMPT[:1]), cache, Recorder(), weights=True)
    assert found.found == []
