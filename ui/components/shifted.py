"""A scored text as pairs: what each position is fed, and under it the target; the mask hides what comes later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import streamlit as st

from charts.base import Translate, percent
from charts.strip import surprise_levels
from inference.forcing import Forcing
from ui.components.mount import mount

_SHIFTED = mount("shifted", "elements")


def shifted(forcing: Forcing, first: int, last: int, *, run: str, t: Translate, key: str) -> int:
    """Draw positions `first` to before `last`; return the position that the reader is on.

    Args:
        run: names the text for the browser; for another text the reader begins at the most surprising position.
    """
    shown = forcing.losses[first:last]
    start = first + int(shown.argmax()) if len(shown) else first
    at = _reported(key, run, first, last)
    data = {
        "run": run,
        "start": start if at is None else at,
        "columns": json.dumps(_columns(forcing, first, last), ensure_ascii=False, separators=(",", ":")),
        "words": _words(t),
    }
    _SHIFTED(key=key, data=data, on_at_change=_ignore)
    return start if at is None else at


def _reported(key: str, run: str, first: int, last: int) -> int | None:
    """Where the browser says the reader is in this text and part, or `None`."""
    state: Mapping[str, Any] = st.session_state.get(key) or {}
    at = state.get("at")
    if not isinstance(at, Mapping) or at.get("run") != run:
        return None
    position = int(at["position"])
    return position if first <= position < last else None


def _ignore() -> None:
    """A change of state needs a callback to be reported; the value is read on the next run of the page."""


def _columns(forcing: Forcing, first: int, last: int) -> dict[str, Any]:
    logprobs = forcing.logprobs[first:last]
    return {
        "first": first,
        "texts": [token.display for token in forcing.tokens[first : last + 1]],
        "n": last - first,
        "ends": last == len(forcing.ids),
        "levels": surprise_levels(logprobs).tolist(),
        "shares": [percent(float(np.exp(value))) for value in logprobs],
        "ranks": [f"{rank:,}" for rank in forcing.ranks[first:last].tolist()],
    }


def _words(t: Translate) -> dict[str, str]:
    """The component's texts; `{…}` is filled in by its script."""
    return {
        "label": t("Positions of the text; arrow keys move"),
        "fed": t("above: what the position is fed"),
        "target": t("below: what it must guess, thicker the more surprising"),
        "hidden": t("striped: hidden by the causal mask"),
        "pair": t("position {at}: fed {input}, must guess {target}, probability {share}, rank {rank}"),
        "last": t("position {at}: fed {input}, what follows is unknown"),
        "unknown": t("unknown"),
    }
