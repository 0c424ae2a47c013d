"""Layers from plain numbers: sliders, and the entries of the model catalogue `assets/models.json`."""

from __future__ import annotations

from collections.abc import Mapping

from inference.errors import N_, CalculatorError, Note
from inference.kv_layers import MAX_HEADS, MAX_LAYERS, MAX_STATE, MAX_TOKENS, MAX_WIDTH, KVLayer, whole

Entry = Mapping[str, object]


def plain_layers(
    num_layers: object, num_kv_heads: object, head_dim: object, window: object = None, full_layers: object = 0
) -> tuple[KVLayer, ...]:
    """Equal layers; with a window, all but `full_layers` have it. Those are spread evenly, the last one full.

    Raises:
        CalculatorError: a number is out of its range.
    """
    count = whole(num_layers, "num_layers", high=MAX_LAYERS)
    heads = whole(num_kv_heads, "num_kv_heads", high=MAX_HEADS)
    width = whole(head_dim, "head_dim", high=MAX_WIDTH)
    if window is None:
        return tuple(KVLayer(i, "attention", heads, width, width) for i in range(count))
    window = whole(window, "window", high=MAX_TOKENS)
    full = whole(full_layers, "full_layers", low=0, high=count)
    return tuple(
        KVLayer(i, "attention", heads, width, width)
        if _is_full(i, full, count)
        else KVLayer(i, "sliding", heads, width, width, window)
        for i in range(count)
    )


def _is_full(index: int, full: int, count: int) -> bool:
    return (index + 1) * full // count > index * full // count


def catalogue_layers(entry: Entry) -> tuple[tuple[KVLayer, ...], tuple[Note, ...]]:
    """The layers of a catalogue entry, and what had to be assumed.

    Raises:
        CalculatorError: the entry lacks a figure, or its rule is not known.
    """
    rule = entry.get("rule")
    if rule == "mla":
        return _latent(entry), ()
    if rule in ("hybrid_linear", "hybrid_mamba"):
        return _hybrid(entry), (EVENLY,)
    layers = plain_layers(
        entry.get("num_layers"),
        entry.get("num_kv_heads"),
        entry.get("head_dim"),
        entry.get("window"),
        entry.get("full_layers", 0),
    )
    if rule in ("mha", "gqa", "mqa", "sliding_all"):
        return _broadcast(entry, layers), ()
    if rule == "sliding_mixed":
        return layers, (EVENLY,)
    if rule == "encoder_decoder":
        cross = (KVLayer(la.index, "cross", la.kv_heads, la.key_dim, la.value_dim) for la in layers)
        return (*layers, *cross), ()
    raise CalculatorError(
        N_("The catalogue's rule {rule} is not known."),
        N_("Correct the entry in assets/models.json."),
        rule=repr(rule),
    )


EVENLY = Note(N_("The order of the layers is not in the catalogue: full-attention layers are spread evenly."))


def _broadcast(entry: Entry, layers: tuple[KVLayer, ...]) -> tuple[KVLayer, ...]:
    """Falcon 40B: transformers caches `hf_stored_heads`, all query heads."""
    if entry.get("hf_stored_heads") is None:
        return layers
    heads = whole(entry["hf_stored_heads"], "hf_stored_heads", high=MAX_HEADS)
    return tuple(
        KVLayer(
            la.index,
            la.kind,
            la.kv_heads,
            la.key_dim,
            la.value_dim,
            la.window,
            (heads, la.key_dim, la.value_dim),
        )
        for la in layers
    )


def _latent(entry: Entry) -> tuple[KVLayer, ...]:
    latent, rotary, plain, value = (
        whole(entry.get(key), key, high=MAX_WIDTH)
        for key in ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
    )
    heads = whole(entry.get("num_attention_heads"), "num_attention_heads", high=MAX_HEADS)
    count = whole(entry.get("num_layers"), "num_layers", high=MAX_LAYERS)
    expanded = (heads, plain + rotary, value)
    return tuple(KVLayer(i, "latent", 1, latent, rotary, expanded=expanded) for i in range(count))


def _hybrid(entry: Entry) -> tuple[KVLayer, ...]:
    layers = plain_layers(entry.get("num_layers"), entry.get("num_kv_heads"), entry.get("head_dim"))
    full = whole(entry.get("full_layers"), "full_layers", low=0, high=len(layers))
    channels, kernel, recurrent = (
        whole(entry.get(key), key, high=MAX_STATE) for key in ("conv_channels", "conv_cols_hf", "recurrent_elems")
    )
    return tuple(
        layer
        if _is_full(layer.index, full, len(layers))
        else KVLayer(layer.index, "state", conv_channels=channels, conv_kernel=kernel, recurrent_elements=recurrent)
        for layer in layers
    )
