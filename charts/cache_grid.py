"""The KV cache as a grid, layer × position: what a step computed, what it reused, and what has left."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from charts.base import Chart, Palette, Translate, base_figure, check_step
from inference.errors import listed, sentences
from inference.trace import Trace

MOST_CELLS = 256  # a side; more blank the page
GAPS = 96  # up to so many columns, gaps between the cells are seen
EMPTY, LEFT, REUSED, NEW = range(4)


def cache_grid(trace: Trace, step: int, *, palette: Palette, t: Translate) -> Chart:
    """One row a layer, one column a position of the whole run; the step's own cells lit, the reused ones quiet.

    With more than 256 positions a column stands for several, and shows the newest state among them.

    Raises:
        TraceError: the run has no such step.
    """
    check_step(trace, step)
    states = cell_states(trace, step)
    figure = _figure(trace, states, palette, t)
    return Chart(figure, _table(trace, step, t), _describe(trace, step, states, t), t("The cache, layer by position"))


def cell_states(trace: Trace, step: int) -> NDArray[np.uint8]:
    """[L, T_end] of every layer and position: 0 not there, 1 left in this step, 2 reused, 3 computed in this step.

    A layer that holds n positions holds the newest n: transformers' sliding layers drop the oldest.
    """
    kv, fed = trace.steps[step].kv, trace.n_prompt + step
    at = np.arange(trace.n_prompt + len(trace.steps) - 1)
    first_held = (fed - kv.positions)[:, None]
    held = (at >= first_held) & (at < fed)
    new = (at >= trace.first_position(step)) & held
    was_held = (at >= first_held - kv.dropped[:, None]) & (at < first_held) & (kv.positions[:, None] > 0)
    return np.select([new, held, was_held], [NEW, REUSED, LEFT], EMPTY).astype(np.uint8)


def _figure(trace: Trace, states: NDArray[np.uint8], palette: Palette, t: Translate) -> go.Figure:
    n_layers, n_positions = states.shape
    cell = -(-n_positions // MOST_CELLS)
    pooled = np.pad(states, ((0, 0), (0, -n_positions % cell))).reshape(n_layers, -1, cell).max(axis=2)
    at = np.arange(pooled.shape[1]) * cell + (cell - 1) / 2
    figure = base_figure(palette)
    gap = 1 if pooled.shape[1] <= GAPS else 0
    names = (t("not there"), t("dropped in this step"), t("reused"), t("computed in this step"))
    place = "%{x:d}" if cell == 1 else "≈ %{x:d}"
    hover = t("layer {layer}, position {position}<br>{state}")
    # a picture a state: a text for each of thousands of cells would be sent with every step
    for state, colour in zip((NEW, REUSED, LEFT, EMPTY), _colours(palette), strict=True):
        figure.add_heatmap(
            z=np.where(pooled == state, np.float32(1), np.float32(np.nan)),
            x=at,
            y=np.arange(n_layers),
            colorscale=[(0, colour), (1, colour)],
            showscale=False,
            xgap=gap,
            ygap=gap,
            hoverongaps=False,
            hovertemplate=hover.format(layer="%{y:d}", position=place, state=names[state]) + "<extra></extra>",
        )
        marker = {"symbol": "square", "size": 12, "color": colour, "line": {"color": palette.quiet, "width": 1}}
        figure.add_scatter(x=[None], y=[None], mode="markers", marker=marker, name=names[state], hoverinfo="skip")
    figure.update_layout(legend={"itemclick": False, "itemdoubleclick": False})
    _boundary(figure, trace, n_layers, palette, t)
    figure.update_xaxes(title_text=t("position"), range=[-0.5, n_positions - 0.5], **_ticks(n_positions, 12))
    figure.update_yaxes(title_text=t("layer"), range=[n_layers - 0.5, -0.5], **_ticks(n_layers, 8))
    figure.update_layout(height=max(220, min(420, 110 + 9 * n_layers)), margin={"t": 44})
    return figure


def _ticks(n: int, most: int) -> dict[str, object]:
    """Whole numbers along an axis of `n` cells: each of a few, else about `most` of them."""
    return {"tickformat": "d", "showgrid": False, **({"dtick": 1} if n <= most else {"nticks": most})}


def _colours(palette: Palette) -> tuple[str, str, str, str]:
    """Of new, reused, dropped and empty cells: their lightness differs too."""
    if palette.mode == "light":
        return "#3d2fa5", "#b1a8f7", palette.categorical[2], "#f1f0ee"
    return "#ddd6fe", "#4b4299", palette.categorical[2], "#191c26"


def _boundary(figure: go.Figure, trace: Trace, n_layers: int, palette: Palette, t: Translate) -> None:
    """A line between the prompt's positions and those of the new tokens."""
    x = trace.n_prompt - 0.5
    line = {"color": palette.muted, "width": 1, "dash": "dot"}
    figure.add_shape(type="line", x0=x, x1=x, y0=-0.5, y1=n_layers - 0.5, line=line)
    figure.add_annotation(
        x=x, y=1, yref="y domain", yanchor="bottom", text=t("end of the prompt"), showarrow=False,
        font={"color": palette.muted, "size": 11},
    )  # fmt: skip


def _table(trace: Trace, step: int, t: Translate) -> pd.DataFrame:
    kv = trace.steps[step].kv
    return pd.DataFrame(
        {
            t("layer"): np.arange(len(kv.positions)),
            t("positions held"): kv.positions,
            t("computed in this step"): np.minimum(kv.added, kv.positions),
            t("reused"): np.maximum(kv.positions - kv.added, 0),
            t("dropped in this step"): kv.dropped,
            t("bytes"): kv.nbytes,
        }
    )


def _describe(trace: Trace, step: int, states: NDArray[np.uint8], t: Translate) -> str:
    new, reused, left = (int((states == state).sum()) for state in (NEW, REUSED, LEFT))
    said = [
        t("Step {step} lit {new} cells and reused {reused}.").format(step=step, new=f"{new:,}", reused=f"{reused:,}")
    ]
    if left:
        said.append(t("{left} were dropped.").format(left=f"{left:,}"))
    without = [layer for layer, held in enumerate(trace.steps[step].kv.positions) if not held]
    if without:
        said.append(t("Layers without keys of their own: {layers}.").format(layers=listed(without, t)))
    return sentences(said, t)
