"""The map of heads as a grid of thumbnails that can be opened by click or keyboard."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

import streamlit as st

from charts.base import Palette, Translate
from charts.heads import Mosaic
from ui.components.mount import mount

Pick = Callable[[int, int], None]

_HEAD_MAP = mount("head_map", "elements", "colours")


def head_map(
    mosaic: Mosaic, chosen: tuple[int, int], *, palette: Palette, t: Translate, key: str, on_pick: Pick
) -> None:
    """Draw the map.

    Args:
        chosen: the layer and head that is open.
        on_pick: called with the layer and head that the reader opens, before the page is run again.
    """
    words = {
        "label": t("Heads; arrow keys move, Enter opens"),
        "head": t("layer {layer} · head {head} · KV head {group}: {note}"),
        "kv": t("KV head"),
        "axes": t("layer \\ head"),
    }
    data = {
        "mosaic": _json(mosaic),
        "chosen": {"layer": chosen[0], "head": chosen[1]},
        "colours": list(palette.sequential),
        "words": words,
    }

    def report() -> None:
        found = st.session_state[key]["chosen"]
        on_pick(int(found["layer"]), int(found["head"]))

    _HEAD_MAP(key=key, data=data, on_chosen_change=report)


def _json(mosaic: Mosaic) -> str:
    """One string: it has no values that Streamlit must walk through on every rerun."""
    n_heads, side = mosaic.levels.shape[1:3]
    return json.dumps(
        {
            "heads": mosaic.heads.tolist(),
            "layers": list(mosaic.layers),
            "groups": mosaic.groups.tolist(),
            "n_groups": int(mosaic.groups[-1]) + 1,
            "n_heads": n_heads,
            "side": side,
            "levels": base64.b64encode(mosaic.levels.tobytes()).decode(),
            "notes": mosaic.notes.tolist(),
            "bars": mosaic.bars.round(3).tolist(),
            "ranked": mosaic.ranked,
        },
        ensure_ascii=False,
        separators=(",", ":"),
    )
