"""A faster product of one row with a weight on a CPU: in blocks of output features, so that every core reads some.

Decoding multiplies one row by every weight, and is bound by how fast they are read. MKL runs a product with one row on
one core, whatever the number of threads; a batch of products it shares out. So the weight [out, in] is seen as a batch
of blocks [out / n, in]: a view, no copy. Passes with more rows are left alone, and results differ by float32 rounding
only. Whether it pays is tried for each shape on the machine itself.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence

import torch

MIN_BYTES = 4 * 2**20  # weights of a shape that take less stay in the processor's cache, where reading hardly matters
SAMPLE_BYTES = 32 * 2**20  # weights tried a shape: more than is kept near the processor between two uses
BLOCKS_A_THREAD = 4  # more than one, so that a core that is held up elsewhere does not hold up the product
ROUNDS = 2
MIN_GAIN = 1.1

Shape = tuple[int, int]


class OneRowLinear(torch.nn.Linear):
    """A linear layer that multiplies a single row in blocks of its output features.

    Attributes:
        blocks: the weight seen as [n, in, out / n]; kept, because making it anew costs as much as a small operation.
    """

    blocks: torch.Tensor

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Input [..., in] to output [..., out]."""
        if input.numel() != self.in_features:
            return super().forward(input)
        product = in_blocks(input, self.blocks).view(*input.shape[:-1], self.out_features)
        return product if self.bias is None else product + self.bias


def as_blocks(weight: torch.Tensor, n_blocks: int) -> torch.Tensor:
    """A weight [out, in] seen as [n, in, out / n]."""
    return weight.view(n_blocks, -1, weight.shape[1]).transpose(1, 2)


def in_blocks(row: torch.Tensor, blocks: torch.Tensor) -> torch.Tensor:
    """The products [n, 1, out / n] of a row [..., in] of one position with every block [n, in, out / n]."""
    return torch.bmm(row.view(1, 1, -1).expand(len(blocks), 1, -1), blocks)


def speed_up(model: torch.nn.Module) -> dict[Shape, float]:
    """Let every float32 linear layer on the CPU take the faster way; call it before the model is shared.

    Returns:
        For each shape [out, in] that was changed, how many times faster its product with one row became.
    """
    gains: dict[Shape, float] = {}
    for shape, layers in _by_shape(model).items():
        n_blocks = _n_blocks(shape[0])
        gain = _gain([layer.weight.data for layer in layers], n_blocks)
        if gain >= MIN_GAIN:
            gains[shape] = gain
            for layer in layers:
                layer.__class__ = OneRowLinear
                layer.blocks = as_blocks(layer.weight.data, n_blocks)
    return gains


def _by_shape(model: torch.nn.Module) -> dict[Shape, list[torch.nn.Linear]]:
    found: dict[Shape, list[torch.nn.Linear]] = defaultdict(list)
    for module in model.modules():
        if type(module) is not torch.nn.Linear:
            continue
        weight = module.weight
        if weight.device.type == "cpu" and weight.dtype == torch.float32 and weight.is_contiguous():
            found[weight.shape[0], weight.shape[1]].append(module)
    return {shape: layers for shape, layers in found.items() if sum(m.weight.nbytes for m in layers) >= MIN_BYTES}


def _n_blocks(n_out: int) -> int:
    """The most equal blocks that some for each thread can be had of."""
    return max(n for n in range(1, BLOCKS_A_THREAD * torch.get_num_threads() + 1) if n_out % n == 0)


def _gain(weights: Sequence[torch.Tensor], n_blocks: int) -> float:
    """How many times faster products with one row are in blocks, on a sample of the weights of a shape."""
    if n_blocks == 1 or torch.get_num_threads() == 1:
        return 1.0
    sample = weights[: max(1, SAMPLE_BYTES // weights[0].nbytes)]
    row = torch.ones(1, 1, sample[0].shape[1])
    plain = _seconds(lambda weight: torch.nn.functional.linear(row, weight), sample)
    return plain / _seconds(lambda weight: in_blocks(row, as_blocks(weight, n_blocks)), sample)


def _seconds(product: Callable[[torch.Tensor], torch.Tensor], weights: Sequence[torch.Tensor]) -> float:
    """The fastest of a few rounds of products with all the weights."""
    rounds = []
    with torch.inference_mode():
        for _ in range(ROUNDS):
            began = time.perf_counter()
            for weight in weights:
                product(weight)
            rounds.append(time.perf_counter() - began)
    return min(rounds)
