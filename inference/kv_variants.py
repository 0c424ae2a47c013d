"""The same model with another arrangement of its key-value heads: MHA, GQA, MQA, and MLA."""

from __future__ import annotations

from dataclasses import replace

from inference.kv_layers import KVLayer, heads_a_device
from inference.kv_memory import KVLayout

SELF_ATTENTION = ("attention", "sliding", "latent")
WITH_HEADS = (*SELF_ATTENTION, "cross")
USUAL_GROUPS = 8  # KV heads of most models with grouped queries


def variants(layout: KVLayout) -> dict[str, KVLayout]:
    """The model with a key-value head for each query head, for a group of them, for all, and with a latent.

    Layers, windows and constant states stay. A model that has one of the four is there as it is. The latent of a model
    without one has DeepSeek-V2's proportions: 4 head sizes, and half a one for the rotary part (arXiv 2405.04434,
    table 1). Empty for a model without attention; without GQA where the heads form no groups.
    """
    layer = next((layer for layer in layout.layers if layer.kind in SELF_ATTENTION), None)
    if layer is None:
        return {}
    heads = query_heads(layout)
    counts = {"MHA": heads, "GQA": _groups(heads), "MQA": 1}
    found = {name: with_kv_heads(layout, count) for name, count in counts.items() if count is not None}
    found["MLA"] = _with_latent(layout)
    if layout.attention in found:
        found[layout.attention] = layout
    return found


def query_heads(layout: KVLayout) -> int:
    """Attention heads; as many as key-value heads where the layout does not say."""
    return layout.query_heads or max(layer.kv_heads for layer in layout.layers)


def with_kv_heads(layout: KVLayout, kv_heads: int) -> KVLayout:
    """The layout with so many key-value heads in each layer with attention; a latent is expanded first."""

    def changed(layer: KVLayer) -> KVLayer:
        if layer.kind not in WITH_HEADS:
            return layer
        return replace(layer.expand() if layer.kind == "latent" else layer, kv_heads=kv_heads, expanded=None)

    return replace(layout, layers=tuple(changed(layer) for layer in layout.layers))


def _with_latent(layout: KVLayout) -> KVLayout:
    def changed(layer: KVLayer) -> KVLayer:
        if layer.kind not in SELF_ATTENTION:
            return layer
        latent, rotary = 4 * layer.key_dim, max(layer.key_dim // 2, 1)
        return replace(layer, kind="latent", kv_heads=1, key_dim=latent, value_dim=rotary, expanded=None)

    return replace(layout, layers=tuple(changed(layer) for layer in layout.layers))


def _groups(heads: int) -> int | None:
    """How many groups the heads would form: 8, else the fewest; `None` for one head or a prime number of them."""
    if heads > USUAL_GROUPS and heads % USUAL_GROUPS == 0:
        return USUAL_GROUPS
    return next((n for n in range(2, heads // 2 + 1) if heads % n == 0), None)


def replicated(layout: KVLayout, degree: int) -> int:
    """How many copies of each key-value head `degree` tensor-parallel devices keep together; 1 where none is doubled.

    Raises:
        CalculatorError: neither number divides the other.
    """
    layer = next((layer for layer in layout.layers if layer.kind in SELF_ATTENTION), None)
    return 1 if layer is None else heads_a_device(layer.kv_heads, degree) * degree // layer.kv_heads
