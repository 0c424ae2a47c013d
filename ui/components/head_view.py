"""One head as a matrix that can be zoomed, beside the text shaded by its weights."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import streamlit as st

from charts.attention_head import HeadView, Side
from charts.base import Palette, Translate
from inference.attention_rows import Axis
from inference.tokens import Token
from ui.components.mount import mount

_HEAD_VIEW = mount("head_view", "elements", "colours")


@dataclass(frozen=True, slots=True)
class Place:
    """Where the reader looks.

    Attributes:
        focus: the position whose row or column is read, and `side` which of them.
        queries, keys: the positions of the matrix, from the first to before the second.
        asked: how often the reader has moved since `run` was put there.
    """

    run: str
    focus: int
    side: Side
    queries: tuple[int, int]
    keys: tuple[int, int]
    asked: int = 0


def place_of(key: str, start: Place, n_positions: int) -> Place:
    """Where the reader has gone in the view with this key since the page put it at `start`."""
    state: Mapping[str, Any] = st.session_state.get(key) or {}
    at = state.get("at")
    if not isinstance(at, Mapping) or at.get("run") != start.run:
        return start
    return replace(
        start,
        focus=min(max(int(at["focus"]), 0), n_positions - 1),
        side="read_by" if at["side"] == "read_by" else "reads",
        queries=_within(at["queries"], n_positions),
        keys=_within(at["keys"], n_positions),
        asked=int(at["asked"]),
    )


def texts_of(tokens: Sequence[Token]) -> str:
    """The texts of a run's T positions as `head_view` takes them; they are the same for every head."""
    return json.dumps([token.display for token in tokens], ensure_ascii=False)


def head_view(
    view: HeadView, place: Place, texts: str, n_prompt: int, *, palette: Palette, t: Translate, key: str
) -> None:
    """Draw the matrix and the text; `place_of` gives where the reader goes.

    Args:
        texts: what `texts_of` gives.
    """
    data = {
        "run": place.run,
        "asked": place.asked,
        "title": view.title,
        "texts": texts,
        "n_prompt": n_prompt,
        "weights": base64.b64encode(view.weights.astype(np.float32).tobytes()).decode(),
        "queries": _axis(view.queries),
        "keys": _axis(view.keys),
        "line": base64.b64encode(view.line.astype(np.float32).tobytes()).decode(),
        "focus": view.focus,
        "side": view.side,
        "top": list(view.top),
        "colours": list(palette.sequential),
        "words": _words(t),
    }
    _HEAD_VIEW(key=key, data=data, on_at_change=_ignore)


def _within(part: Sequence[int], n_positions: int) -> tuple[int, int]:
    start = min(max(int(part[0]), 0), n_positions - 1)
    return start, min(max(int(part[1]), start + 1), n_positions)


def _axis(axis: Axis) -> dict[str, int]:
    return {"start": axis.start, "stop": axis.stop, "cell": axis.cell}


def _ignore() -> None:
    """A change of state needs a callback to be reported; the value is read on the next run of the page."""


def _words(t: Translate) -> dict[str, str]:
    """The component's texts; `{…}` is filled in by its script."""
    return {
        "in": t("Zoom in"),
        "out": t("Zoom out"),
        "whole": t("Whole"),
        "query": t("query"),
        "key": t("key"),
        "exact": t("queries {queries}, keys {keys}"),
        "pooled": t("queries {queries}, keys {keys}; a cell is the largest of {cell}"),
        "weight": t("weight"),
        "largest": t("largest weight"),
        "hidden": t("hidden by the mask"),
        "reads": t("What this token reads"),
        "read_by": t("Who reads this token"),
        "text": t("Tokens, shaded by weight; arrow keys choose another one"),
        "strongest": t("Strongest"),
        "keys_help": t("Drag to zoom; arrow keys choose a token, + − zoom, 0 shows all, Enter turns rows and columns."),
    }
