"""The calculator's expression with its numbers, for people: `2 · 32 · 1 · 8192 · 8 · 128 · 2`."""

from __future__ import annotations

from collections.abc import Sequence

from inference.elements import ElementType
from inference.kv_layers import RECURRENT_BYTES, KVLayer, Sequences, group

LONGEST_SUM = 8  # so many lengths are written out; of more, their sum

Types = tuple[ElementType, ElementType]


def expression(layers: Sequence[KVLayer], sequences: Sequences, types: Types, page_size: int | None) -> str:
    """One term a kind of layer, its layer count first; the value of the expression is the number of bytes."""
    terms = []
    for layer, count in group(layers).items():
        if layer.kind == "state":
            terms.append(_state_term(layer, count, sequences, types))
        elif layer.elements and any(_positions(layer, sequences)):
            terms.append(_term(layer, count, sequences, types, page_size))
    return " + ".join(terms) or "0"


def _state_term(layer: KVLayer, count: int, sequences: Sequences, types: Types) -> str:
    conv = f"{layer.conv_channels} · {layer.conv_kernel} · {types[0].model_bytes}"
    return f"{count} · {sequences.count} · ({conv} + {layer.recurrent_elements} · {RECURRENT_BYTES})"


def _term(layer: KVLayer, count: int, sequences: Sequences, types: Types, page_size: int | None) -> str:
    positions = _positions(layer, sequences)
    if page_size:
        positions = [-(-p // page_size) * page_size for p in positions]
    key_type, value_type = (types[0], types[0]) if layer.kind == "latent" else types
    if key_type.across_heads or value_type.across_heads:
        return f"{count} · {sequences.copies} · ({_blocks(layer, positions, key_type, value_type)})"
    heads = "" if layer.kind in ("latent", "indexer") else f"{layer.kv_heads} · "
    lengths = _lengths(positions, page_size)
    batch = f"{sequences.copies} · " if len(positions) == 1 else ""
    if layer.key_dim == layer.value_dim and key_type is value_type:
        return f"2 · {count} · {batch}{lengths} · {heads}{_row(layer.key_dim, key_type)}"
    return f"{count} · {batch}{lengths} · {heads}{_two_rows(layer, key_type, value_type)}"


def _positions(layer: KVLayer, sequences: Sequences) -> list[int]:
    lengths = zip(sequences.tokens, sequences.encoder_tokens, strict=True)
    return [layer.positions(*length) for length in lengths]


def _lengths(positions: Sequence[int], page_size: int | None) -> str:
    amounts = [p // page_size for p in positions] if page_size else list(positions)
    text = " + ".join(str(amount) for amount in amounts)
    if len(amounts) > LONGEST_SUM:
        text = str(sum(amounts))
    elif len(amounts) > 1:
        text = f"({text})"
    return f"{text} · {page_size}" if page_size else text


def _cost(element: ElementType) -> str:
    return str(element.block_bytes) if element.block == 1 else f"{element.block_bytes}/{element.block}"


def _row(width: int, element: ElementType) -> str:
    row = f"{width} · {_cost(element)}"
    return f"({row} + {element.row_bytes})" if element.row_bytes else row


def _two_rows(layer: KVLayer, key_type: ElementType, value_type: ElementType) -> str:
    if not layer.value_dim:
        return _row(layer.key_dim, key_type)
    if key_type is value_type and not key_type.row_bytes:
        return f"({layer.key_dim} + {layer.value_dim}) · {_cost(key_type)}"
    return f"({_row(layer.key_dim, key_type)} + {_row(layer.value_dim, value_type)})"


def _blocks(layer: KVLayer, positions: Sequence[int], key_type: ElementType, value_type: ElementType) -> str:
    """Blocks that run through a whole tensor: their number, then their size, for keys and for values."""
    rows = [p * layer.kv_heads for p in positions]
    parts = []
    for element, width in ((key_type, layer.key_dim), (value_type, layer.value_dim)):
        if element.across_heads:
            parts.append(f"{sum(element.blocks(r * width) for r in rows)} · {element.block_bytes}")
        elif width:
            parts.append(f"{sum(rows)} · {_row(width, element)}")
    return " + ".join(parts)
