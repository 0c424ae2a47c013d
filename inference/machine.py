"""What the machine is called on which times are measured: no speed is told without it."""

from __future__ import annotations

import os
import platform
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def machine(device: torch.device) -> str:
    """The device's own name; of a CPU also how many cores the system sees: `"AMD EPYC, 2 cores"`."""
    if device.type == "cuda":
        import torch

        return str(torch.cuda.get_device_name(device))
    return f"{processor()}, {os.cpu_count()} cores" + ("" if device.type == "cpu" else f", {device.type}")


@cache
def processor() -> str:
    """The processor's name as the system gives it."""
    name = platform.processor() or platform.machine()
    if sys.platform == "linux":
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "") or name
    return name
