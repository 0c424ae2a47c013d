"""The curves of a position: what temperature, top-p and top-k would do, each alone moved, and where other steps lie."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import streamlit as st
from numpy.typing import NDArray

from charts.sweeps import entropy_curve, kept_curve, probability_curves
from inference.counterfactual import Choice
from inference.sampling_params import SamplingParams
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
    """Four charts, two a row."""
    params, palette = state.params, session.palette()
    by_t, by_p, by_k = sweeps(spot, params)
    entropies = _of_run(found, "entropy")
    counts = _of_run(found, "n_kept")
    t = 0.0 if params.is_greedy else 1.0 if params.temperature is None else params.temperature
    p = 1.0 if params.top_p is None else params.top_p
    k = float(params.top_k or len(spot.position.logits))
    left, right = st.columns(2)
    with left:
        labels = spot.tokens(by_t.ids.tolist())
        chart_card(probability_curves(by_t, labels, t, palette=palette, t=_), "curve-probability", t=_)
    with right:
        chart_card(entropy_curve(by_t, entropies, spot.step, t, palette=palette, t=_), "curve-entropy", t=_)
    left, right = st.columns(2)
    with left:
        chart_card(kept_curve(by_p, counts, spot.step, p, palette=palette, t=_), "curve-top-p", t=_)
    with right:
        chart_card(kept_curve(by_k, counts, spot.step, k, palette=palette, t=_), "curve-top-k", t=_)


def sweeps(spot: Spot, params: SamplingParams) -> tuple[Sweep, Sweep, Sweep]:
    """Temperature, top-p and top-k, each moved alone."""
    size = len(spot.position.logits)
    n = min(N_TOKENS, size)
    highest = np.argpartition(-spot.position.logits, n - 1)[:n]
    ids = highest[np.argsort(-spot.position.logits[highest], kind="stable")].tolist()
    counts = np.unique(np.geomspace(1, size, N_COUNTS).round())
    return (
        sweep(spot.position, params, "temperature", TEMPERATURES.tolist(), ids),
        sweep(spot.position, params, "top_p", SHARES.tolist()),
        sweep(spot.position, params, "top_k", counts.tolist()),
    )


def _of_run(found: Sequence[Choice], figure: str) -> NDArray[np.float64]:
    """[N] a figure of the decision at each step; NaN where there is none."""
    return np.array([np.nan if c.decision is None else getattr(c.decision, figure) for c in found], dtype=np.float64)
