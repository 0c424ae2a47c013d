"""What a layer keeps between passes, and how long the sequences are: the records that are counted."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, TypeGuard

from inference.elements import ElementType
from inference.errors import N_, CalculatorError

Kind = Literal["attention", "sliding", "latent", "indexer", "cross", "shared", "state"]

# The largest figures accepted: beyond them a number is a slip, not a plan.
MAX_TOKENS = 10**9
MAX_BATCH = 10**6
MAX_LAYERS = 10**4
MAX_HEADS = 10**5
MAX_WIDTH = 10**6
MAX_STATE = 10**9
MAX_PAGE = 10**6

RECURRENT_BYTES = 4  # transformers and llama.cpp keep the recurrent state in float32, in a 16-bit model too


def whole(value: object, name: str, *, high: int, low: int = 1) -> int:
    """`value` as an int from `low` to `high`; booleans, floats and text are refused.

    Raises:
        CalculatorError: it is not a whole number in that range; the message names it and the range.
    """
    try:
        number = low - 1 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = low - 1
    if not low <= number <= high:
        raise CalculatorError(
            N_("{name} must be a whole number from {low:,} to {high:,}, not {value}."),
            N_("Give a number in that range."),
            name=name,
            low=low,
            high=high,
            value=repr(value)[:40],
        )
    return number


@dataclass(frozen=True, slots=True)
class KVLayer:
    """What one layer keeps. A layer that keeps two things (self- and cross-attention, say) has two records.

    Attributes:
        index: the layer's number in the model, from 0.
        kind: `"attention"` keeps keys and values of all positions, `"sliding"` of the last `window`;
            `"latent"` is MLA (keys: the latent, values: the rotary part, one "head"); `"indexer"` the keys of
            a sparse-attention indexer; `"cross"` keys and values of the encoder's output; `"shared"` reads
            another layer's cache; `"state"` keeps a constant state.
        kv_heads, key_dim, value_dim: heads, and values a head and position.
        window: how many positions a query sees, itself included; `None` is all.
        expanded: (heads, key_dim, value_dim) where an engine caches keys and values after expanding them.
        conv_channels, conv_kernel: the convolution state of a `"state"` layer, in the model's own type.
        recurrent_elements: its recurrent state, in float32.
    """

    index: int
    kind: Kind
    kv_heads: int = 0
    key_dim: int = 0
    value_dim: int = 0
    window: int | None = None
    expanded: tuple[int, int, int] | None = None
    conv_channels: int = 0
    conv_kernel: int = 0
    recurrent_elements: int = 0

    @property
    def elements(self) -> int:
        """Values a position: keys and values of all heads; 0 for a shared or a state layer."""
        return self.kv_heads * (self.key_dim + self.value_dim)

    def positions(self, tokens: int, encoder_tokens: int = 0) -> int:
        """How many positions the layer needs after `tokens` positions; a window of W needs the last W."""
        if self.kind == "cross":
            return encoder_tokens
        if not self.elements:
            return 0
        return tokens if self.window is None else min(tokens, self.window)

    def position_bytes(self, positions: int, types: tuple[ElementType, ElementType]) -> int:
        """Bytes of `positions` positions of one sequence; MLA has no values: the key type holds."""
        key_type, value_type = (types[0], types[0]) if self.kind == "latent" else types
        rows = positions * self.kv_heads
        return key_type.bytes(rows, self.key_dim) + value_type.bytes(rows, self.value_dim)

    def state_bytes(self, conv_bytes: int) -> int:
        """Bytes of the constant state of one sequence; a value of the convolution state has `conv_bytes`."""
        conv = self.conv_channels * self.conv_kernel * conv_bytes
        return conv + self.recurrent_elements * RECURRENT_BYTES

    def expand(self) -> KVLayer:
        """The record of an engine that caches the expanded heads, where there are any."""
        if self.expanded is None:
            return self
        heads, key_dim, value_dim = self.expanded
        kind: Kind = "attention" if self.kind == "latent" else self.kind
        return replace(self, kind=kind, kv_heads=heads, key_dim=key_dim, value_dim=value_dim, expanded=None)

    def shard(self, degree: int) -> KVLayer:
        """The record of one of `degree` tensor-parallel devices.

        Heads are divided; with fewer heads than devices each device keeps a copy of one, as vLLM's
        `get_num_kv_heads` has it. A latent and an indexer's keys, one "head" each, are whole on each device.

        Raises:
            CalculatorError: neither number divides the other, or the state cannot be divided.
        """
        if self.kind == "shared":
            return self
        if self.kind == "state":
            channels = _share(self.conv_channels, degree, "conv_channels")
            recurrent = _share(self.recurrent_elements, degree, "recurrent_elements")
            return replace(self, conv_channels=channels, recurrent_elements=recurrent)
        expanded = self.expanded and (heads_a_device(self.expanded[0], degree), *self.expanded[1:])
        return replace(self, kv_heads=heads_a_device(self.kv_heads, degree), expanded=expanded)


def heads_a_device(heads: int, degree: int) -> int:
    """KV heads that each of `degree` devices keeps; at least one.

    Raises:
        CalculatorError: neither number divides the other.
    """
    if degree % heads == 0:
        return 1
    return _share(heads, degree, "kv_heads")


def _share(amount: int, degree: int, name: str) -> int:
    if amount % degree:
        raise CalculatorError(
            N_("{name} is {amount}, which cannot be divided among {degree} devices."),
            N_("Choose a tensor-parallel degree that divides {amount}."),
            name=name,
            amount=amount,
            degree=degree,
        )
    return amount // degree


@dataclass(frozen=True, slots=True)
class Sequences:
    """Lengths of the sequences that are counted: `tokens[i]` and `encoder_tokens[i]`, `copies` times over."""

    tokens: tuple[int, ...]
    encoder_tokens: tuple[int, ...]
    copies: int

    @classmethod
    def read(cls, tokens: object, batch: object, encoder_tokens: object) -> Sequences:
        """From one length and a batch size, or from a list with one length a sequence.

        Raises:
            CalculatorError: a length is not a whole number in its range, the list is empty, a list comes with
                a batch size, or the two lists differ in length.
        """
        copies = whole(batch, "batch", high=MAX_BATCH)
        lengths = _lengths(tokens, "tokens", low=1)
        encoder = _lengths(encoder_tokens, "encoder_tokens", low=0)
        if _is_list(tokens) and copies != 1:
            raise CalculatorError(
                N_("A list of {count} lengths already says how many sequences there are; batch is {batch}."),
                N_("Give either a list of lengths, or one length and a batch."),
                count=len(lengths),
                batch=copies,
            )
        if len(encoder) == 1:
            encoder *= len(lengths)
        if len(encoder) != len(lengths):
            raise CalculatorError(
                N_("encoder_tokens has {encoder} lengths and tokens has {tokens}."),
                N_("Give one encoder length for all, or one a sequence."),
                encoder=len(encoder),
                tokens=len(lengths),
            )
        return cls(lengths, encoder, copies)

    @property
    def count(self) -> int:
        """How many sequences there are."""
        return len(self.tokens) * self.copies

    def padded(self) -> Sequences:
        """The same number of sequences, each as long as the longest: a batch that is padded."""
        return Sequences((max(self.tokens),), (max(self.encoder_tokens),), self.count)


def _is_list(value: object) -> TypeGuard[Iterable[object]]:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes))


def _lengths(value: object, name: str, low: int) -> tuple[int, ...]:
    if not _is_list(value):
        return (whole(value, name, low=low, high=MAX_TOKENS),)
    lengths = tuple(whole(v, f"{name}[{i}]", low=low, high=MAX_TOKENS) for i, v in enumerate(value))
    if not lengths:
        raise CalculatorError(N_("{name} is an empty list."), N_("Give one length a sequence."), name=name)
    return lengths


_LIKE = operator.attrgetter(*(f.name for f in fields(KVLayer) if f.name != "index"))


def group(layers: Sequence[KVLayer]) -> dict[KVLayer, int]:
    """Equal layers together, in order of first appearance: the record (with index 0) and its count."""
    return {KVLayer(0, *values): count for values, count in Counter(map(_LIKE, layers)).items()}


def held_bytes(
    layers: Sequence[KVLayer],
    sequences: Sequences,
    types: tuple[ElementType, ElementType],
    positions: Callable[[KVLayer, int, int], int],
) -> int:
    """Bytes of all layers and sequences; `positions(layer, tokens, encoder_tokens)` says what is stored."""
    total = 0
    for layer, count in group(layers).items():
        if layer.kind == "state":
            total += count * sequences.count * layer.state_bytes(types[0].model_bytes)
        elif layer.elements:
            lengths = zip(sequences.tokens, sequences.encoder_tokens, strict=True)
            held = sum(layer.position_bytes(positions(layer, *length), types) for length in lengths)
            total += count * sequences.copies * held
    return total
