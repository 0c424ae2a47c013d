"""The machine: what it is called, since no speed is told without it, and what its processor can do."""

from __future__ import annotations

import os
import platform
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

CPUINFO = Path("/proc/cpuinfo")
# flags of the Linux kernel (arch/x86/include/asm/cpufeatures.h, arch/arm64/kernel/cpuinfo.c); torch's own differ in one
BFLOAT16 = {
    "avx512_bf16": "AVX512-BF16",
    "amx_bf16": "AMX-BF16",
    "bf16": "BF16",
    "svebf16": "SVE-BF16",
    "sve_bf16": "SVE-BF16",
}


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
        lines = CPUINFO.read_text(encoding="utf-8").splitlines()
        name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "") or name
    return name


def runs_on_cpu() -> bool:
    """Whether a model that may choose its device comes to the CPU here; told without importing torch."""
    if sys.platform == "darwin":
        return platform.machine() != "arm64"  # Apple's own processors have MPS
    return version("torch").endswith("+cpu") or not Path("/dev/nvidiactl").exists()


def bfloat16_instructions(cpuinfo: Path = CPUINFO) -> tuple[str, ...]:
    """The processor's instructions for bfloat16 products, by the names of its maker; none where it has none.

    On Linux the kernel is asked, elsewhere torch, which is imported for it.
    """
    if cpuinfo.is_file():
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
        flags = {flag for line in lines if line.startswith(("flags", "Features")) for flag in line.split()}
    else:
        from torch.cpu import get_capabilities

        flags = {flag for flag, there in get_capabilities().items() if there is True}
    return tuple(dict.fromkeys(name for flag, name in BFLOAT16.items() if flag in flags))
