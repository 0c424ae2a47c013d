"""Whether weights, KV cache and activations fit into a device's memory, and how far the rest of it reaches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from inference.errors import N_, CalculatorError
from inference.kv_layers import MAX_BATCH, MAX_TOKENS, whole
from inference.kv_memory import Element, KVLayout, Tokens

MAX_PARAMS = 10**14
ACTIVATION_BYTES = 2  # activations are computed in 16 bits
PASS_TOKENS = 2048  # positions that a prefill pass takes at once; longer prompts are fed in chunks
RESERVE_PERCENT = 10  # CUDA context, allocator, what else runs on the device

# Blocks of weights: how many share one, and its bytes with the scales. GGML_QUANT_SIZES of the gguf package;
# NF4 with a float32 scale for each 64 (QLoRA, arXiv 2305.14314, before its double quantisation).
WEIGHT_TYPES = {
    "float32": (1, 4),
    "bfloat16": (1, 2),
    "int8": (1, 1),
    "q8_0": (32, 34),
    "q6_k": (256, 210),
    "q4_k": (256, 144),
    "nf4": (64, 36),
    "mxfp4": (32, 17),
}


@dataclass(frozen=True, slots=True)
class Need:
    """What a deployment takes of one device, in bytes; `activations` is an estimate, the other two are not."""

    weights: int
    kv: int
    activations: int

    @property
    def total(self) -> int:
        """All three."""
        return self.weights + self.kv + self.activations


@dataclass(frozen=True)
class Deployment:
    """A model on a device, or on `tensor_parallel` equal ones; every figure is of one of them.

    Attributes:
        layout: of the whole model.
        params: parameters; of a mixture of experts all of them, since all must lie in memory.
        weights: a name of `WEIGHT_TYPES`.
        width: values a position that the widest part of one layer computes: the larger of hidden and feed-forward size.
        memory: bytes of the device.
    """

    layout: KVLayout
    params: int
    weights: str
    width: int
    memory: int
    element: Element = "float16"
    encoder_tokens: int = 0
    page_size: int | None = None
    tensor_parallel: int = 1
    reserve_percent: int = RESERVE_PERCENT

    @cached_property
    def shard(self) -> KVLayout:
        """The layout of one device; CalculatorError as `KVLayout.shard`."""
        return self.layout.shard(self.tensor_parallel)

    @property
    def usable(self) -> int:
        """Bytes that are left when the reserve is taken away."""
        return self.memory * (100 - self.reserve_percent) // 100

    def need(self, tokens: Tokens, batch: int = 1) -> Need:
        """What the device must hold for sequences of these lengths.

        Weights are divided evenly. Activations are those of one layer for the positions of one pass: earlier ones
        are overwritten.

        Raises:
            CalculatorError: as `KVLayout.bytes` and `KVLayout.shard`, or the weights' type is not known.
        """
        kv = self.shard.bytes(tokens, batch, self.element, encoder_tokens=self.encoder_tokens, page_size=self.page_size)
        positions = tokens * batch if isinstance(tokens, int) else sum(tokens)
        activations = min(positions, PASS_TOKENS) * self.width * ACTIVATION_BYTES
        weights = -(-weight_bytes(self.params, self.weights) // self.tensor_parallel)
        return Need(weights, kv, activations)

    def fits(self, tokens: Tokens, batch: int = 1) -> bool:
        """Whether that fits beside the reserve."""
        return self.need(tokens, batch).total <= self.usable

    def longest(self, batch: int = 1) -> int:
        """The most positions a sequence that fit; 0 where none does, `MAX_TOKENS` where a cache stops growing."""
        return _largest(lambda tokens: self.fits(tokens, batch), MAX_TOKENS)

    def largest_batch(self, tokens: int) -> int:
        """The most sequences of that length that fit; 0 where not even one does."""
        return _largest(lambda batch: self.fits(tokens, batch), MAX_BATCH)


def weight_bytes(params: int, weights: str) -> int:
    """Bytes of the weights, all in one type.

    Raises:
        CalculatorError: the type is not known, or the number of parameters is out of its range.
    """
    if weights not in WEIGHT_TYPES:
        raise CalculatorError(
            N_("There is no weight type {name}."),
            N_("Choose one of: {known}."),
            name=str(weights)[:40],
            known=tuple(WEIGHT_TYPES),
        )
    block, block_bytes = WEIGHT_TYPES[weights]
    return -(-whole(params, "params", high=MAX_PARAMS) * block_bytes // block)


def _largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest number from 0 to `most` that fits, where what fits also fits with less."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
