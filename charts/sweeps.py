"""Curves over one sampling setting: probabilities, entropy and the number of candidates, and where other steps lie."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from charts.base import MONO, Chart, Palette, Translate, base_figure, percent, translucent
from charts.labels import escape, shorten
from inference.errors import sentences
from inference.sweep import Sweep

DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star")
FEW = 20  # counts up to here stand on a linear axis
N_MARKS = 5  # symbols along a line, to tell lines apart without colour
Numbers = NDArray[np.float64]


def probability_curves(found: Sweep, labels: Sequence[str], now: float, *, palette: Palette, t: Translate) -> Chart:
    """Probability of some tokens, after all settings, against temperature.

    Args:
        found: a sweep of the temperature; `labels` are the texts of its tokens.
        now: the temperature that is set.
    """
    figure = base_figure(palette)
    every = max(1, len(found.values) // N_MARKS)
    for at, label in enumerate(labels):
        figure.add_scatter(
            x=found.values,
            y=found.probs[:, at],
            name=escape(shorten(label)),
            mode="lines+markers",
            line={"color": palette.categorical[at], "dash": DASHES[at % len(DASHES)], "width": 2},
            marker={"symbol": SYMBOLS[at % len(SYMBOLS)], "size": 8, "maxdisplayed": len(found.values) // every},
            hovertemplate="%{y:.2%}<extra>" + escape(shorten(label)) + "</extra>",
        )
    figure.update_layout(hovermode="x", legend={"font": {"family": MONO}})
    _axes(figure, t("temperature"), t("probability"), found.values, now, palette)
    figure.update_yaxes(range=[0, 1.02], tickformat=".0%")
    table = pd.DataFrame(found.probs, columns=_distinct(labels))
    table.insert(0, t("temperature"), found.values)
    return Chart(figure, table, _probabilities_said(found, labels, now, t), t("Probability against temperature"))


def _probabilities_said(found: Sweep, labels: Sequence[str], now: float, t: Translate) -> str:
    known = np.flatnonzero(~np.isnan(found.probs[:, 0]))
    if not known.size:
        return _cannot_tell(t)
    low, high = known[0], known[-1]
    return t(
        "“{token}” goes from {most} at temperature {low} to {least} at {high}; temperature {now:g} is set."
    ).format(
        token=labels[0],
        most=percent(float(found.probs[low, 0])),
        least=percent(float(found.probs[high, 0])),
        low=f"{found.values[low]:g}",
        high=f"{found.values[high]:g}",
        now=now,
    )


def entropy_curve(found: Sweep, others: Numbers, step: int, now: float, *, palette: Palette, t: Translate) -> Chart:
    """Entropy after all settings against temperature, with every step of the run at the settings as they are.

    Args:
        others: [N] entropy of each step of the run under these settings; NaN where it cannot be told. May be empty.
        step: the one whose curve is drawn.
    """
    figure = base_figure(palette)
    _line(figure, found.values, found.entropy, t("this position"), palette, "%{y:.2f}")
    _marks(figure, others, step, now, palette, t, "%{y:.2f}")
    _axes(figure, t("temperature"), t("entropy (nats)"), found.values, now, palette)
    figure.update_yaxes(rangemode="tozero")
    known = found.entropy[~np.isnan(found.entropy)]
    said = _cannot_tell(t)
    if known.size:
        said = t("The entropy goes from {low:.2f} to {high:.2f} nats as the temperature rises.").format(
            low=abs(known[0]), high=known[-1]
        )
    table = pd.DataFrame({t("temperature"): found.values, t("entropy (nats)"): found.entropy})
    return Chart(figure, table, _with_others(said, others, t, ".2f"), t("Entropy against temperature"))


def kept_curve(found: Sweep, others: Numbers, step: int, now: float, *, palette: Palette, t: Translate) -> Chart:
    """How many tokens can be chosen against top-p or top-k, with every step of the run at the settings as they are.

    Args:
        found: a sweep of `"top_p"` or `"top_k"`.
        others: [N] number of candidates at each step of the run under these settings. May be empty.
        now: the value that is set; outside the sweep's range where the setting is off.
    """
    figure = base_figure(palette)
    _line(figure, found.values, found.n_kept, t("this position"), palette, "%{y:,}")
    _marks(figure, others, step, now, palette, t, "%{y:,}")
    _axes(figure, found.name, t("candidates"), found.values, now, palette)
    top = float(np.nanmax(np.concatenate([found.n_kept, others, [1.0]])))
    if top > FEW:
        figure.update_yaxes(type="log", range=[-0.08, np.log10(top) * 1.08], dtick=1, tickformat=",")
    else:
        figure.update_yaxes(range=[0, top + 0.5], dtick=1)
    if found.name == "top_k" and found.values[-1] > FEW:
        figure.update_xaxes(
            type="log", dtick=1, tickformat=",", range=[-0.05, float(np.log10(found.values[-1])) * 1.02]
        )
    said = _kept_said(found, t)
    table = pd.DataFrame({found.name: found.values, t("candidates"): found.n_kept})
    return Chart(
        figure, table, _with_others(said, others, t, ",.0f"), t("Candidates against {name}").format(name=found.name)
    )


def _kept_said(found: Sweep, t: Translate) -> str:
    known = np.flatnonzero(~np.isnan(found.n_kept))
    if not known.size:
        return _cannot_tell(t)
    first, last = known[0], known[-1]
    return t("With {name} {low} the settings leave {few}, with {high} they leave {many}.").format(
        name=found.name,
        low=f"{found.values[first]:,g}",
        few=f"{found.n_kept[first]:,.0f}",
        high=f"{found.values[last]:,g}",
        many=f"{found.n_kept[last]:,.0f}",
    )


def _with_others(said: str, others: Numbers, t: Translate, spec: str) -> str:
    known = others[~np.isnan(others)]
    if not known.size:
        return said
    steps = t("Over this run's steps, the settings as they are give {low} to {high}.").format(
        low=format(known.min(), spec), high=format(known.max(), spec)
    )
    return sentences([said, steps], t)


def _cannot_tell(t: Translate) -> str:
    return t("The recorded logits cannot tell; run the prompt again with all logits recorded.")


def _line(figure: go.Figure, x: Numbers, y: Numbers, name: str, palette: Palette, spec: str) -> None:
    figure.add_scatter(
        x=x, y=y, name=name, mode="lines", line={"color": palette.categorical[0], "width": 2.5}, hovertemplate=spec
    )


def _marks(
    figure: go.Figure, others: Numbers, step: int, now: float, palette: Palette, t: Translate, spec: str
) -> None:
    """Each step of the run as an open circle at the value that is set; this one as a filled diamond."""
    if not len(others):
        return
    here = np.arange(len(others)) == step
    for which, name, marker in (
        (~here, t("other steps"), {"symbol": "circle-open", "size": 9, "color": palette.categorical[2]}),
        (here, t("this step"), {"symbol": "diamond", "size": 11, "color": palette.categorical[0]}),
    ):
        at = np.flatnonzero(which)
        figure.add_scatter(
            x=np.full(len(at), now),
            y=others[at],
            name=name,
            mode="markers",
            marker=marker,
            hovertext=[t("step {step}").format(step=i) for i in at],
            hovertemplate="%{hovertext}: " + spec + "<extra></extra>",
        )


def _axes(figure: go.Figure, x: str, y: str, values: Numbers, now: float, palette: Palette) -> None:
    figure.update_xaxes(title_text=x, range=[float(values[0]), float(values[-1]) * 1.02], fixedrange=True)
    figure.update_yaxes(title_text=y, fixedrange=True)
    if values[0] <= now <= values[-1]:
        figure.add_vline(x=now, line={"color": translucent(palette.categorical[2], 0.8), "width": 1.5, "dash": "dot"})


def _distinct(labels: Sequence[str]) -> list[str]:
    """Column names of a table: a label that comes again gets its number."""
    return [f"{label} ({list(labels[:at]).count(label) + 1})" if label in labels[:at] else label
            for at, label in enumerate(labels)]  # fmt: skip
