"""A pass that does not fit: one sentence, and its tensors are given back while the error is still at hand."""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import pytest
import torch

from inference.engine import record
from inference.errors import MemoryLimitError
from inference.forcing import force
from inference.models import LoadedModel
from inference.request import GenerationRequest
from inference.walk import feed
from inference.within_memory import within_memory
from tests.scripted import scripted, tiny_model

BALLAST = 3_333_333  # numbers; no other tensor has so many
IDS = np.arange(3, dtype=np.int64)

WAYS: dict[str, tuple[Callable[[LoadedModel], object], str]] = {
    "a recorded run": (lambda m: record(m, GenerationRequest(prompt_ids=(0, 1, 2))), "to feed 3 positions"),
    "fed by hand": (lambda m: feed(m, IDS, None), "to feed 3 positions"),
    "teacher forcing": (lambda m: force(m, IDS), "to score 3 positions at a time"),
}


def too_large(call: int, logits: torch.Tensor) -> torch.Tensor:
    ballast = torch.zeros(BALLAST)
    raise RuntimeError(f"DefaultCPUAllocator: not enough memory beside {ballast.nbytes} bytes")


@pytest.mark.parametrize("way", WAYS)
def test_what_did_not_fit_is_said_and_what_it_held_is_free(way: str) -> None:
    run, said = WAYS[way]
    with pytest.raises(MemoryLimitError, match=f"There was not enough memory on cpu {said}") as caught:
        run(scripted(too_large))
    gc.collect()
    assert not [t for t in gc.get_objects() if type(t) is torch.Tensor and t.numel() == BALLAST]
    assert caught.value.__cause__ is None


SIGNS = (
    MemoryError(),
    torch.OutOfMemoryError("CUDA"),
    RuntimeError("can't allocate memory"),
    RuntimeError("out of memory"),
)


@pytest.mark.parametrize("error", SIGNS)
def test_every_devices_way_to_say_so_is_understood(error: Exception) -> None:
    def run() -> None:
        raise error

    with pytest.raises(MemoryLimitError, match="to feed 7 positions"):
        within_memory(tiny_model(), 7, run)


def test_another_error_stays_what_it_is() -> None:
    def run() -> None:
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes do not match"):
        within_memory(tiny_model(), 7, run)
