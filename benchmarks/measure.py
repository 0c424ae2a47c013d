"""What the benchmarks share: interleaved medians, the plain loop to compare with, and the machine's name."""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping

import torch
from transformers import PreTrainedModel


def interleaved(runs: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Median of each run's own measure over rounds that take turns, so that a slow minute slows all; one warm-up."""
    values: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in runs.items():
            value = run()
            if number:
                values[name].append(value)
        sys.stderr.write(f"round {number} of {rounds}\n")
    return {name: statistics.median(v) for name, v in values.items()}


Choose = Callable[[torch.Tensor], torch.Tensor]


def argmax(logits: torch.Tensor) -> torch.Tensor:
    """The shortest greedy choice. Shapes: [1, V] to [1, 1]."""
    return logits.argmax(-1, keepdim=True)


def shortest_draw(temperature: float, top_k: int, top_p: float) -> Choose:
    """The shortest draw under these settings: everything after top-k happens on k numbers. Shapes: [1, V] to [1, 1]."""

    def choose(logits: torch.Tensor) -> torch.Tensor:
        values, ids = logits.topk(top_k)
        probs = (values / temperature).softmax(-1)
        probs[probs.cumsum(-1) - probs >= top_p] = 0
        return ids.gather(-1, torch.multinomial(probs, 1))

    return choose


def bare_loop(model: PreTrainedModel, ids: torch.Tensor, n_new: int, choose: Choose = argmax) -> float:
    """Decode tok/s of the shortest loop there is: SDPA, the model's own cache, a token chosen, nothing kept."""
    with torch.inference_mode():
        out = model(input_ids=ids, use_cache=True, logits_to_keep=1)
        token = choose(out.logits[:, -1])
        began = time.perf_counter()
        for _ in range(n_new - 1):
            out = model(input_ids=token, cache=out.cache, use_cache=True, logits_to_keep=1)
            token = choose(out.logits[:, -1])
        int(token)
    return (n_new - 1) / (time.perf_counter() - began)


def generate_loop(model: PreTrainedModel, ids: torch.Tensor, n_new: int, **settings: object) -> float:
    """Decode tok/s of transformers' `generate()`: the time of `n_new` tokens less the time of one."""

    def seconds(n: int) -> float:
        began = time.perf_counter()
        model.generate(ids, max_new_tokens=n, min_new_tokens=n, **settings)
        return time.perf_counter() - began

    one = seconds(1)
    return (n_new - 1) / (seconds(n_new) - one)


def machine() -> dict[str, object]:
    """The processor, its cores, torch and its threads."""
    name = platform.processor() or platform.machine()
    if sys.platform == "linux":
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            name = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "") or name
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "processor": name,
        "cores": os.cpu_count(),
        "gpu": gpu,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }
