"""The curves of a position: what temperature, top-p and top-k would do, each alone moved, and where other steps lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import streamlit as st
from numpy.typing import NDArray

from charts.sweeps import entropy_curve, kept_curve, probability_curves
from inference.counterfactual import Choice
from inference.sampling_params import OFF, SamplingParams
from inference.sweep import Sweep, sweep
from ui import session
from ui.cards import chart_card
from ui.components.sampling_lab import LabState
from ui.i18n import _
from ui.sampling.spot import Spot

TEMPERATURES = np.array([0.05, *np.round(np.arange(0.1, 2.01, 0.1), 1)])
SHARES = np.array([*np.round(np.arange(0, 0.91, 0.1), 1), 0.95, 0.98, 0.99, 1.0])
N_COUNTS = 17
N_TOKENS = 5


def curves(spot: Spot, state: LabState, found: Sequence[Choice]) -> None:
    """Four charts, two a row; each is drawn before the next is computed, so that another release need not wait."""
    params, palette = state.params, session.palette()
    entropies, counts = _of_run(found, "entropy"), _of_run(found, "n_kept")
    size = len(spot.position.logits)
    left, right = st.columns(2)
    with left:
        t = 0.0 if params.is_greedy else 1.0 if params.temperature is None else params.temperature
        by_t = _swept(spot, params, "temperature", TEMPERATURES, _likeliest(spot))
        labels = spot.tokens(by_t.ids.tolist())
        chart_card(probability_curves(by_t, labels, t, palette=palette, t=_), "curve-probability", t=_)
    with right:
        chart_card(entropy_curve(by_t, entropies, spot.step, t, palette=palette, t=_), "curve-entropy", t=_)
    left, right = st.columns(2)
    with left:
        p = 1.0 if params.top_p is None else params.top_p
        by_p = _swept(spot, params, "top_p", SHARES)
        chart_card(kept_curve(by_p, counts, spot.step, p, palette=palette, t=_), "curve-top-p", t=_)
    with right:
        k = float(params.top_k or size)
        by_k = _swept(spot, params, "top_k", np.unique(np.geomspace(1, size, N_COUNTS).round()))
        chart_card(kept_curve(by_k, counts, spot.step, k, palette=palette, t=_), "curve-top-k", t=_)


def _swept(
    spot: Spot, params: SamplingParams, name: str, values: NDArray[np.float64], ids: Sequence[int] = ()
) -> Sweep:
    """One setting moved alone. The latest answer is kept: it does not depend on where that setting stands now."""
    held = replace(params, greedy=False, **{name: OFF[name]})
    asked = (spot.position.logits.tobytes(), spot.position.context.ids.tobytes(), held)
    kept = st.session_state.get(f"lab sweep {name}")
    if kept is None or kept[0] != asked:
        kept = (asked, sweep(spot.position, params, name, values.tolist(), ids))
        st.session_state[f"lab sweep {name}"] = kept
    found: Sweep = kept[1]
    return found


def _likeliest(spot: Spot) -> list[int]:
    n = min(N_TOKENS, len(spot.position.logits))
    highest = np.argpartition(-spot.position.logits, n - 1)[:n]
    ids: list[int] = highest[np.argsort(-spot.position.logits[highest], kind="stable")].tolist()
    return ids


def _of_run(found: Sequence[Choice], figure: str) -> NDArray[np.float64]:
    """[N] a figure of the decision at each step; NaN where there is none."""
    return np.array([np.nan if c.decision is None else getattr(c.decision, figure) for c in found], dtype=np.float64)
