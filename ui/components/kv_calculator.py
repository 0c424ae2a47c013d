"""The calculator's sliders: the result and its formula repaint in the browser, the server hears on release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import streamlit as st

from charts.base import Translate
from inference.elements import ELEMENT_TYPES
from inference.kv_layers import MAX_BATCH, MAX_HEADS, MAX_LAYERS, MAX_TOKENS, MAX_WIDTH, KVLayer, group
from ui.components.mount import mount

_KV_CALCULATOR = mount("kv_calculator", "elements", "kv_bytes", styles=("slider",))

COUNTED = ("kind", "kv_heads", "key_dim", "value_dim", "window", "conv_channels", "conv_kernel", "recurrent_elements")


@dataclass(frozen=True, slots=True)
class Shown:
    """What the component shows.

    Attributes:
        values: layers, kv_heads, head_dim, tokens, batch and element, as the sliders stand.
        lengths: one length a sequence instead of tokens and batch, or `None`.
        layers: of the whole model; `plain` where layers, KV heads and head size have sliders of their own.
        query_heads: attention heads, for the comparison with MHA.
        errors: a sentence by the name of a value that was refused.
    """

    values: Mapping[str, Any]
    lengths: Sequence[int] | None
    layers: Sequence[KVLayer]
    plain: bool
    query_heads: int
    value_element: str
    encoder_tokens: int
    page_size: int
    tp: int
    errors: Mapping[str, str]


def kv_calculator(shown: Shown, serial: int, *, t: Translate, key: str) -> None:
    """Draw the sliders, the result and the formula; `reported` gives what the reader sets.

    Args:
        serial: the number of the page's own wish; a new one makes the sliders take `shown.values`.
    """
    data = {
        "serial": serial,
        "values": {**shown.values, "lengths": _pairs(shown.lengths)},
        "groups": _groups(shown.layers),
        "plain": shown.plain,
        "query_heads": shown.query_heads,
        "value_element": shown.value_element,
        "encoder_tokens": shown.encoder_tokens,
        "page_size": shown.page_size,
        "tp": shown.tp,
        "errors": dict(shown.errors),
        "types": {name: asdict(e) | {"model_bytes": e.model_bytes} for name, e in ELEMENT_TYPES.items()},
        "type_names": sorted(ELEMENT_TYPES, key=lambda name: -ELEMENT_TYPES[name].bits_per_value),
        "fields": _fields(shown, t),
        "terms": _terms(t),
        "words": _words(t),
    }
    _KV_CALCULATOR(key=key, data=data, on_set_change=_ignore)


def reported(key: str, serial: int) -> Mapping[str, Any] | None:
    """What the browser reported since the page's last wish: `values`, and the `bytes` that it shows; else `None`."""
    state: Mapping[str, Any] = st.session_state.get(key) or {}
    report = state.get("set")
    return report if isinstance(report, Mapping) and report.get("serial") == serial else None


def _ignore() -> None:
    """A change of state needs a callback to be reported; the values are read on the next run of the page."""


def _pairs(lengths: Sequence[int] | None) -> list[list[int]] | None:
    """Each length with how many sequences have it."""
    if lengths is None:
        return None
    counts: dict[int, int] = {}
    for length in lengths:
        counts[length] = counts.get(length, 0) + 1
    return [[length, count] for length, count in counts.items()]


def _groups(layers: Sequence[KVLayer]) -> list[dict[str, Any]]:
    return [{"count": n} | {name: getattr(la, name) for name in COUNTED} for la, n in group(layers).items()]


def _fields(shown: Shown, t: Translate) -> list[dict[str, Any]]:
    """The sliders: those that the layout leaves free, from the top of the formula to its end."""
    layout = [
        _field("layers", "L", t("layers"), "linear", 1, 128, MAX_LAYERS),
        _field("kv_heads", "H_kv", t("KV heads"), "linear", 1, 128, MAX_HEADS),
        _field("head_dim", "D_head", t("head size"), "linear", 8, 512, MAX_WIDTH),
    ]
    sequences = [
        _field("batch", "B", t("sequences"), "log", 1, 4096, MAX_BATCH),
        _field("tokens", "T", t("tokens a sequence"), "log", 1, 2**20, MAX_TOKENS),
    ]
    free = sequences if shown.lengths is None else []
    return [layout[0], *free, *layout[1:]] if shown.plain else free


def _field(name: str, symbol: str, label: str, scale: str, step: int, slider_max: int, most: int) -> dict[str, Any]:
    shown = {"name": name, "symbol": symbol, "label": label}
    return shown | {"scale": scale, "step": step, "slider_max": slider_max, "max": most}


def _terms(t: Translate) -> dict[str, str]:
    return {
        "attention": t("{n} full-attention layers"),
        "sliding": t("{n} layers with a window"),
        "latent": t("{n} layers with a latent"),
        "indexer": t("{n} indexers"),
        "cross": t("{n} cross-attention layers"),
        "shared": t("{n} layers that share a cache"),
        "state": t("{n} layers with a constant state"),
    }


def _words(t: Translate) -> dict[str, str]:
    """The component's texts; `{…}` is filled in by its script."""
    return {
        "controls": t("Figures of the formula"),
        "element": t("bytes a value"),
        "result": t("KV cache"),
        "formula": t("Formula with its numbers"),
        "keys_and_values": t("keys and values"),
        "all_positions": t("positions of all sequences"),
        "whole_pages": t("positions in whole pages"),
        "on_a_device": t("KV heads on a device"),
        "pages": t("pages"),
        "unit": t("bytes"),
        "bytes": t("{n} bytes"),
        "per_token": t("One more token: {size} ({n} bytes)."),
        "saved": t("With {all} KV heads (MHA) it would be {size}; these {heads} save {saved}."),
        "whole": t("{name}: a whole number from {low} to {high} is needed, not {value}."),
        "blocks": t("{element} stores blocks of {block} values, which do not divide the head size {width}."),
        "shares": t("{name} is {amount}, which cannot be divided among {degree} devices."),
    }
