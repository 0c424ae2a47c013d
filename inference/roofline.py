"""The roofline: how fast a pass can be on a device that reads so many bytes and computes so many FLOPs a second.

    seconds of a pass >= max(bytes / bandwidth, FLOPs / throughput)

after Williams, Waterman, Patterson 2009 (doi 10.1145/1498765.1498785). Where its FLOPs a byte lie below
throughput / bandwidth, a pass is bound by reading; above, by computing. Everything here is arithmetic; what a device
reaches is measured in `inference.device_probe`.
"""

from __future__ import annotations

from dataclasses import dataclass

from inference.kv_fit import weight_bytes
from inference.kv_memory import KVLayout
from inference.kv_variants import query_heads

READS_ALL = ("attention", "sliding", "latent", "shared")


@dataclass(frozen=True, slots=True)
class Device:
    """What a device can do: bytes read a second, FLOPs a second (`None` where not known), bytes of memory."""

    name: str
    bandwidth: float
    flops: float | None
    memory: int | None = None

    @property
    def ridge(self) -> float | None:
        """FLOPs a byte from which on computing is the limit."""
        return None if self.flops is None else self.flops / self.bandwidth

    def ceiling(self, intensity: float) -> float:
        """The most FLOPs a second at so many FLOPs a byte."""
        reading = self.bandwidth * intensity
        return reading if self.flops is None else min(reading, self.flops)


@dataclass(frozen=True, slots=True)
class Load:
    """What a pass asks of a device."""

    flops: float
    bytes: float

    @property
    def intensity(self) -> float:
        """FLOPs a byte."""
        return self.flops / self.bytes

    def seconds(self, device: Device) -> float:
        """The least seconds that it takes."""
        reading = self.bytes / device.bandwidth
        return reading if device.flops is None else max(reading, self.flops / device.flops)


@dataclass(frozen=True, slots=True)
class Costs:
    """A model as the sum of what its passes read and compute.

    Attributes:
        body: parameters that every position is multiplied with; of experts, those that a token is sent to.
        head: parameters of the output head, which only the positions meet whose logits are wanted.
        weight_bytes: of both, as stored.
        layout: the KV cache.
        heads, head_dim: H and D of the attention.
        element: type of the cache.
    """

    body: float
    head: float
    weight_bytes: float
    layout: KVLayout
    heads: int
    head_dim: int
    element: str

    def prefill(self, tokens: int) -> Load:
        """One pass over a prompt of so many tokens; logits of its last position only.

        FLOPs are 2 a parameter and position, and 4 · H · D a query, visible key and layer (q · k, and the weighted
        sum of the values). Bytes are the weights, read once, and the keys and values written.
        """
        pairs = sum(_pairs(tokens, window) for window in self._windows())
        flops = 2 * (self.body * tokens + self.head) + 4 * self.heads * self.head_dim * pairs
        return Load(flops, self.weight_bytes + self.kv_bytes(tokens))

    def decode(self, context: int, batch: int = 1) -> Load:
        """One step of `batch` sequences, each with so many positions in the cache after it."""
        keys = sum(context if window is None else min(context, window) for window in self._windows())
        flops = 2 * (self.body + self.head) + 4 * self.heads * self.head_dim * keys
        return Load(batch * flops, self.weight_bytes + batch * self.kv_bytes(context))

    def kv_bytes(self, tokens: int) -> int:
        """Bytes of one sequence's cache."""
        return self.layout.bytes(tokens, 1, self.element)

    def crossover(self, device: Device, context: int) -> float | None:
        """The batch from which on a decode step is bound by computing; `None` where it never is.

        Weights are read once for all sequences, each cache for its own: B · FLOPs / throughput = (weights + B · KV) /
        bandwidth.
        """
        if device.flops is None:
            return None
        one = self.decode(context)
        gain = one.flops / device.flops - self.kv_bytes(context) / device.bandwidth
        return self.weight_bytes / device.bandwidth / gain if gain > 0 else None

    @classmethod
    def of_figures(cls, layout: KVLayout, params: int, weights: str, element: str = "float16") -> Costs:
        """The costs of a model of which only figures are known; the embedding counts as read.

        Args:
            params: those that one token meets: of a mixture of experts the active ones.
            weights: a name of `inference.kv_fit.WEIGHT_TYPES`.

        Raises:
            CalculatorError: as `inference.kv_fit.weight_bytes`.
        """
        layer = next((layer for layer in layout.layers if layer.kind in READS_ALL), None)
        width = 0 if layer is None else layer.key_dim
        heads = 0 if layer is None else query_heads(layout)
        return cls(params, 0, weight_bytes(params, weights), layout, heads, width, element)

    def _windows(self) -> list[int | None]:
        """The window of every layer with attention, `None` for one that sees everything."""
        return [layer.window or None for layer in self.layout.layers if layer.kind in READS_ALL]


def _pairs(tokens: int, window: int | None) -> int:
    """Query-key pairs of causal attention over so many positions."""
    full = min(tokens, window or tokens)
    return full * (full + 1) // 2 + (tokens - full) * full
