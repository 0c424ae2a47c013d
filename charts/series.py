"""Lines over the steps of several ways to run the same thing, told apart by dash and marker as well as by colour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from charts.base import Palette, Translate, base_figure

DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "x")
MOST_MARKERS = 64  # of a longer line, only some points are marked


@dataclass(frozen=True, slots=True)
class Series:
    """One way: its translated name and a value a step, NaN where it has none."""

    name: str
    values: NDArray[np.float64]


def line_figure(
    series: Sequence[Series], unit: str, *, palette: Palette, t: Translate, decimals: int = 2, log: bool = False
) -> go.Figure:
    """A figure of one line a series over the steps; `unit` is the title of its vertical axis."""
    figure = base_figure(palette, hovermode="x unified")
    longest = max(len(one.values) for one in series)
    for at, one in enumerate(series):
        colour, n = palette.categorical[at % len(palette.categorical)], len(one.values)
        figure.add_scatter(
            name=one.name,
            x=np.arange(n, dtype=np.float32),
            y=one.values.astype(np.float32),
            mode="lines+markers",
            line={"color": colour, "width": 2, "dash": DASHES[at % len(DASHES)]},
            marker={"symbol": SYMBOLS[at % len(SYMBOLS)], "size": 7, "maxdisplayed": MOST_MARKERS},
            hovertemplate=f"%{{y:,.{decimals}f}}" if not log else "%{y:.2g}",
        )
    figure.update_xaxes(title_text=t("step"), range=[-0.5, longest - 0.5], tickformat="d", nticks=7, showgrid=False)
    if longest < 7:
        figure.update_xaxes(dtick=1)
    if log:
        figure.update_yaxes(title_text=unit, type="log", nticks=6, tickformat=".0e")
    else:
        figure.update_yaxes(title_text=unit, rangemode="tozero", nticks=6)
    return figure
