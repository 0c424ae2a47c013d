"""Two examples worked out step by step: one gibibyte, and from one key to 32 users."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd
import streamlit as st

from charts.base import size_unit
from inference.kv_memory import KVLayout
from ui.calculator.controls import put
from ui.calculator.plan import USUAL, Plan
from ui.calculator.sources import catalogue
from ui.i18n import _

ONE_GIBIBYTE = replace(USUAL, tokens=8192)
MANY_USERS = replace(USUAL, tokens=4096, batch=32)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of an example: what is counted, with which factors, and how many bytes that is."""

    what: str
    factors: str
    nbytes: int


def one_gibibyte() -> None:
    """The six factors of the first example, and their product."""
    with st.container(border=True):
        st.subheader(_("Exactly one gibibyte"), anchor=False)
        layout = _layout()
        layer = layout.layers[0]
        st.text(f"L = {len(layout.layers)}, B = 1, T = 8,192, H_kv = {layer.kv_heads}, D_head = {layer.key_dim}, S = 2")
        st.code(layout.formula(ONE_GIBIBYTE.tokens), language=None, wrap_lines=True)
        _button("one gibibyte", ONE_GIBIBYTE)


def many_users() -> None:
    """The second example, line by line."""
    with st.container(border=True):
        st.subheader(_("From one key to 32 users"), anchor=False)
        rows = ladder(_layout())
        table = {
            _("what"): [row.what for row in rows],
            _("factors"): [row.factors for row in rows],
            _("bytes"): [f"{row.nbytes:,}" for row in rows],
            _("size"): [_readable(row.nbytes) for row in rows],
        }
        st.dataframe(pd.DataFrame(table), hide_index=True)
        st.text(_("{model}, 16 bits.", model=USUAL.model))
        _button("32 users", MANY_USERS)


def _layout() -> KVLayout:
    return KVLayout.from_catalogue(catalogue()[USUAL.model])


def _readable(n_bytes: int) -> str:
    """Bytes in the largest binary unit, exact to three decimals."""
    unit, factor = size_unit(n_bytes)
    return f"{n_bytes / factor:,.3f}".rstrip("0").rstrip(".") + f" {unit}"


def ladder(layout: KVLayout) -> list[Line]:
    """The second example, every line counted by the calculator.

    Args:
        layout: of a model whose layers all have equal heads.
    """
    layer = layout.layers[0]
    one_head = KVLayout.from_geometry(1, 1, layer.key_dim)
    one_layer = KVLayout.from_geometry(1, layer.kv_heads, layer.key_dim)
    all_heads = KVLayout.from_geometry(len(layout.layers), layout.query_heads or layer.kv_heads, layer.key_dim)
    key, pair, n_layers = one_head.bytes(1) // 2, one_head.bytes(1), len(layout.layers)
    token = layout.bytes(1)
    return [
        Line(_("one key"), f"{layer.key_dim} · 2", key),
        Line(_("key and value"), f"2 · {key:,}", pair),
        Line(_("one layer: {n} KV heads", n=layer.kv_heads), f"{layer.kv_heads} · {pair:,}", one_layer.bytes(1)),
        Line(_("one token: {n} layers", n=n_layers), f"{n_layers} · {one_layer.bytes(1):,}", token),
        Line(_("{n} tokens", n="4,096"), f"4,096 · {token:,}", layout.bytes(4096)),
        Line(_("{n} tokens", n="128,000"), f"128,000 · {token:,}", layout.bytes(128_000)),
        Line(
            _("{users} users of {n} tokens", users=32, n="4,096"),
            f"32 · {layout.bytes(4096):,}",
            layout.bytes(4096, 32),
        ),
        Line(
            _("the same with {n} KV heads (MHA)", n=layout.query_heads),
            f"{(layout.query_heads or 1) // layer.kv_heads} · {layout.bytes(4096, 32):,}",
            all_heads.bytes(4096, 32),
        ),
    ]


def _button(key: str, plan: Plan) -> None:
    label = _("Put into the calculator")
    st.button(label, key=f"example {key}", icon=":material/calculate:", on_click=put, args=(plan,))
