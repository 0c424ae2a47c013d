"""On a CUDA device: the records of the CPU, one wait a step, and memory given back after an out-of-memory error."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from inference import GenerationRequest, SamplingParams
from inference.engine import generate, record
from inference.errors import MemoryLimitError
from inference.models import load_model
from tests.embedded import MODEL_ID, gravity

pytestmark = pytest.mark.gpu


def test_a_run_on_cuda_records_what_the_cpu_records() -> None:
    model = load_model(MODEL_ID, device="cuda", dtype="float32")
    expected = gravity()
    trace = record(model, expected.request)
    assert [s.token_id for s in trace.steps] == [s.token_id for s in expected.steps]
    np.testing.assert_array_equal(trace.kv.nbytes, expected.kv.nbytes)
    for layer in (0, 15, 29):
        # TF32 is off by default; float32 sums in another order
        np.testing.assert_allclose(trace.attention(0, layer), expected.attention(0, layer), atol=1e-4)
        np.testing.assert_allclose(trace.attention(9, layer), expected.attention(9, layer), atol=1e-4)


def test_a_step_on_cuda_waits_for_the_device_once_and_keeps_no_page_locked_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits, synchronize = [], torch.cuda.synchronize
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: (waits.append(device), synchronize(device)))
    request = GenerationRequest(prompt="a", max_new_tokens=4, sampling=SamplingParams(greedy=True), ignore_eos=True)
    run = generate(load_model(MODEL_ID, device="cuda"), request)
    next(run)  # what is made once, at the first pass, may be copied to the device
    waits.clear()
    torch.cuda.set_sync_debug_mode("error")
    try:
        steps = [next(run), next(run)]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(waits) == len(steps)
    for step in steps:
        kept = [step.logits.values, step.hidden, *step.attention.queries, *step.attention.keys]
        assert not any(torch.from_numpy(array).is_pinned() for array in kept)


def test_running_out_of_memory_on_cuda_is_named_and_the_next_run_works(monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_model(MODEL_ID, device="cuda")
    request = GenerationRequest(prompt="a", max_new_tokens=4, sampling=SamplingParams(greedy=True), ignore_eos=True)
    free_before = torch.cuda.mem_get_info()[0]
    torch.cuda.set_per_process_memory_fraction(
        (torch.cuda.memory_reserved() + 2**20) / torch.cuda.get_device_properties(0).total_memory
    )
    try:
        with pytest.raises(MemoryLimitError, match="not enough memory on cuda"):
            list(generate(model, GenerationRequest(prompt="word " * 6000)))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert len(record(model, request).steps) == 4
    assert torch.cuda.mem_get_info()[0] >= free_before - 2**28
