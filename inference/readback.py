"""From a device to the host in one wait: every tensor of a pass is copied on the device's own stream, behind the pass.

Asked for one by one, each tensor would stop the host until the device had caught up, and the device would idle until
the host had asked again. Here the host asks for everything at once, waits once (`Forward.synchronise`), and reads.
On the CPU there is nothing to bring back, and the tensors are given as they are; other devices are asked one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch

PINNED_BYTES = 16 * 2**20  # page-locked memory is scarce and stays with the process; a decode step needs far less


class Readback:
    """Starts the copies of some tensors to the host.

    Args:
        tensors: on any devices, in use by no pass that is still to come.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._tensors = list(tensors)
        away = defaultdict(list)
        for index, tensor in enumerate(self._tensors):
            if is_away(tensor):
                away[tensor.device].append(index)
        self._copies = [(places, _Copy.start([self._tensors[i] for i in places])) for places in away.values()]

    def tensors(self) -> list[torch.Tensor]:
        """The tensors on the host, in order; to be called once, when their devices have been waited for."""
        found = [tensor if is_away(tensor) else tensor.cpu() for tensor in self._tensors]
        for places, copy in self._copies:
            for place, tensor in zip(places, unpack(copy.buffer, [found[i] for i in places]), strict=True):
                found[place] = tensor
        return found

    def seconds(self) -> float:
        """How long the devices were busy with the copies; known when they have been waited for."""
        milliseconds = [float(copy.began.elapsed_time(copy.ended)) for _, copy in self._copies]
        return sum(milliseconds) / 1000


@dataclass(frozen=True, slots=True)
class _Copy:
    """Bytes on their way from one device, between two events on its stream."""

    buffer: torch.Tensor
    began: torch.cuda.Event
    ended: torch.cuda.Event

    @classmethod
    def start(cls, tensors: list[torch.Tensor]) -> _Copy:
        with torch.cuda.device(tensors[0].device):
            began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            began.record()
            packed = pack(tensors)
            buffer = torch.empty(packed.shape, dtype=torch.uint8, pin_memory=packed.nbytes <= PINNED_BYTES)
            buffer.copy_(packed, non_blocking=True)
            ended.record()
        return cls(buffer, began, ended)


def is_away(tensor: torch.Tensor) -> bool:
    """Whether a tensor lies on a device that works on its own while the host goes on."""
    return tensor.device.type == "cuda"


def pack(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The bytes of tensors of one device, one after the other, the widest elements first so that all are aligned."""
    return torch.cat([tensors[i].contiguous().view(-1).view(torch.uint8) for i in _by_width(tensors)])


def unpack(buffer: torch.Tensor, like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What `pack` packed, from a copy of its bytes: views of `buffer` in the shapes and types of `like`."""
    order = _by_width(like)
    parts = buffer.split([like[i].nbytes for i in order])
    found = {i: part.view(like[i].dtype).view(like[i].shape) for i, part in zip(order, parts, strict=True)}
    return [found[i] for i in range(len(like))]


def _by_width(tensors: Sequence[torch.Tensor]) -> list[int]:
    return sorted(range(len(tensors)), key=lambda i: -tensors[i].element_size())
