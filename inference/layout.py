"""A faster reading of the weights on a CPU: each keeps its shape, and lies in memory as one row is multiplied fastest.

Decoding multiplies one row by every weight and is bound by how fast they are read. A weight [out, in] that lies column
by column takes another kernel, which is faster for some shapes and slower for others, so each shape is tried on the
machine itself. Results differ by float32 rounding only; nothing else about the model changes.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

MIN_ELEMENTS = 2**19  # a smaller weight stays in the cache, where its layout hardly matters
SAMPLE_BYTES = 16 * 2**20  # weights tried a shape: more than is kept near the processor between two uses
ROUNDS = 2
MIN_GAIN = 1.15  # a change that saves less is not worth its copy

Shape = tuple[int, int]


def arrange(model: torch.nn.Module) -> dict[Shape, float]:
    """Give every float32 linear weight on the CPU the faster of the two layouts; call it before the model is shared.

    Returns:
        For each shape [out, in] that was changed, how many times faster its one-row product became. A head that was
        tied to the embedding gets a copy of its own, since the embedding is read by rows.
    """
    gains: dict[Shape, float] = {}
    for shape, modules in _by_shape(model).items():
        sample = modules[: max(1, SAMPLE_BYTES // modules[0].weight.nbytes)]
        by_column = _by_column(sample)
        gain = _seconds([module.weight.data for module in sample]) / _seconds(by_column)
        if gain >= MIN_GAIN:
            gains[shape] = gain
            for module, weight in zip(modules, by_column + _by_column(modules[len(sample) :]), strict=True):
                module.weight = torch.nn.Parameter(weight, requires_grad=False)
    return gains


def _by_shape(model: torch.nn.Module) -> dict[Shape, list[torch.nn.Linear]]:
    found: dict[Shape, list[torch.nn.Linear]] = defaultdict(list)
    for module in model.modules():
        if type(module) is torch.nn.Linear and module.weight.numel() >= MIN_ELEMENTS:
            weight = module.weight
            if weight.device.type == "cpu" and weight.dtype == torch.float32 and weight.is_contiguous():
                found[weight.shape[0], weight.shape[1]].append(module)
    return found


def _by_column(modules: Sequence[torch.nn.Linear]) -> list[torch.Tensor]:
    """Copies of the weights that lie column by column; a thread a core, since fresh memory is what takes the time."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda module: module.weight.data.t().contiguous().t(), modules))


def _seconds(weights: Sequence[torch.Tensor]) -> float:
    """The fastest of a few rounds of one-row products with all the weights."""
    row = torch.ones(1, 1, weights[0].shape[1])
    rounds = []
    with torch.inference_mode():
        for _ in range(ROUNDS):
            began = time.perf_counter()
            for weight in weights:
                torch.nn.functional.linear(row, weight)
            rounds.append(time.perf_counter() - began)
    return min(rounds)
