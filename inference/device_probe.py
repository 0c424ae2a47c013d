"""What this device reaches: read bandwidth, matrix throughput, and where a model's prefill and decode sit below them.

Each kernel is tried a few times after a first one that warms up, and the fastest counts: a limit is what can be
reached, not what is usual.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from inference.kv_memory import KVLayout
from inference.measured import Place
from inference.roofline import Costs, Device, Load
from inference.time_sweeps import Cancelled, Clock, Ids, Progress, decode_times, place, prefill_times

if TYPE_CHECKING:
    from inference.models import LoadedModel

READ_BYTES = {"cpu": 2**28, "cuda": 2**31}  # far above what a cache near the processor holds
SIDE = {"cpu": 1024, "cuda": 8192}  # of the square matrices
ROUNDS, STEP_ROUNDS = 5, 5
ACTIVE = ("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk")
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")


@dataclass(frozen=True, slots=True)
class Reached:
    """One kind of pass as measured: what it asks, its median seconds, and its share of the limit."""

    phase: str
    tokens: int
    load: Load
    seconds: float
    limit_s: float

    @property
    def share(self) -> float:
        """Of the speed that the limit allows."""
        return self.limit_s / self.seconds


@dataclass(frozen=True, slots=True)
class Roof:
    """The device as measured, and a model's two kinds of pass on it."""

    place: Place
    device: Device
    costs: Costs
    passes: tuple[Reached, ...]

    @property
    def nbytes(self) -> int:
        """Bytes held; a few figures."""
        return 1024


def measure_roof(
    model: LoadedModel, ids: Ids, tokens: int,
    progress: Progress = lambda share: None, cancelled: Cancelled = lambda: False, clock: Clock = time.perf_counter,
) -> Roof | None:  # fmt: skip
    """Probe the device, then a prefill of `tokens` and decode steps after it; `None` where it was cancelled.

    Raises:
        RequestError, MemoryLimitError: as `inference.time_sweeps.prefill_times`.
    """
    device = probe_device(model, cancelled, clock)
    progress(0.2)
    if device is None:
        return None
    found = costs(model)
    prefill = prefill_times(model, ids, [tokens], 3, lambda share: progress(0.2 + 0.5 * share), cancelled, clock)
    decode = prefill and decode_times(
        model, ids, [tokens], STEP_ROUNDS, False, lambda share: progress(0.7 + 0.3 * share), cancelled, clock
    )
    if prefill is None or decode is None:
        return None
    loads = {"prefill": (found.prefill(tokens), prefill), "decode": (found.decode(tokens + 1), decode)}
    passes = tuple(
        Reached(phase, tokens, load, float(sweep.lines[0].median_s[0]), load.seconds(device))
        for phase, (load, sweep) in loads.items()
    )
    return Roof(place(model), device, found, passes)


def probe_device(model: LoadedModel, cancelled: Cancelled, clock: Clock) -> Device | None:
    """Bytes a second of summing a long vector, and FLOPs a second of a square matrix product in the model's type."""
    forward = model.forward
    kind, dtype = forward.device.type, forward.model.dtype
    with torch.inference_mode():
        n_bytes, side = READ_BYTES.get(kind, READ_BYTES["cpu"]), SIDE.get(kind, SIDE["cpu"])
        vector = torch.ones(n_bytes // 4, dtype=torch.float32, device=forward.device)
        reading = _fastest(vector.sum, forward.synchronise, cancelled, clock)
        del vector
        matrix = torch.ones(side, side, dtype=dtype, device=forward.device)
        computing = _fastest(lambda: torch.mm(matrix, matrix), forward.synchronise, cancelled, clock)
    if reading is None or computing is None:
        return None
    return Device(place(model).machine, n_bytes / reading, 2 * side**3 / computing)


def _fastest(
    kernel: Callable[[], Any], synchronise: Callable[[], None], cancelled: Cancelled, clock: Clock
) -> float | None:
    rounds = []
    for _ in range(ROUNDS + 1):
        if cancelled():
            return None
        synchronise()
        began = clock()
        kernel()
        synchronise()
        rounds.append(clock() - began)
    return float(np.min(rounds[1:]))


def costs(model: LoadedModel) -> Costs:
    """What a model's passes read and compute, counted on its own tensors.

    The input embedding counts only where the head is the same table: a pass looks a row of it up.
    """
    network, facts = model.forward.model, model.facts
    config: Any = network.config.get_text_config(decoder=True)
    head, table = network.get_output_embeddings().weight, network.get_input_embeddings().weight
    share = _share_of_experts(config)
    params, weight_bytes = 0.0, 0.0
    for name, weight in network.named_parameters():
        if weight is table and weight is not head:
            continue
        part = share if ".experts." in name else 1.0
        params += part * weight.numel()
        weight_bytes += part * weight.nbytes
    return Costs(
        body=params - head.numel(),
        head=head.numel(),
        weight_bytes=weight_bytes,
        layout=KVLayout.from_config(network.config),
        heads=facts.n_heads,
        head_dim=facts.head_dim,
        element=facts.dtype,
    )


def _share_of_experts(config: Any) -> float:
    """The share of a layer's experts that one token is sent to; 1 where there are none."""
    active = next((getattr(config, name) for name in ACTIVE if getattr(config, name, None)), None)
    every = next((getattr(config, name) for name in EXPERTS if getattr(config, name, None)), None)
    return active / every if active and every else 1.0
