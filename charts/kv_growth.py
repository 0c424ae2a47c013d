"""How the KV cache grew: its measured bytes after each step, with the current step marked."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from charts.base import Chart, Palette, Translate, base_figure, check_step, size, size_unit, translucent
from inference.trace import Trace


def kv_growth(trace: Trace, step: int, *, palette: Palette, t: Translate) -> Chart:
    """Bytes that the KV cache's own tensors took after each step; past steps are filled, later ones are a dotted line.

    Raises:
        TraceError: the run has no such step.
    """
    check_step(trace, step)
    total = trace.kv.nbytes.sum(axis=1)
    return Chart(_figure(total, step, palette, t), _table(trace, t), _describe(trace, step, t), t("KV cache memory"))


def _figure(total: NDArray[np.int64], step: int, palette: Palette, t: Translate) -> go.Figure:
    unit, factor = size_unit(int(total.max()))
    at = np.arange(len(total), dtype=np.float32)
    held = (total / factor).astype(np.float32)
    figure = base_figure(palette, showlegend=False, hovermode="x")
    hover = t("step {step}").format(step="%{x:d}") + f"<br>%{{y:.2f}} {unit}<extra></extra>"
    colour = palette.primary if palette.mode == "light" else palette.categorical[0]
    line = {"color": colour, "width": 2, "shape": "hv"}
    figure.add_scatter(
        name=t("so far"),
        x=at[: step + 1],
        y=held[: step + 1],
        mode="lines",
        line=line,
        fill="tozeroy",
        fillcolor=translucent(colour, 0.16),
        hovertemplate=hover,
    )
    figure.add_scatter(
        name=t("later"), x=at[step:], y=held[step:], mode="lines", line={**line, "dash": "dot"}, hovertemplate=hover
    )
    figure.add_scatter(
        name=t("this step"),
        x=at[step : step + 1],
        y=held[step : step + 1],
        mode="markers",
        marker={"color": colour, "size": 11, "symbol": "diamond", "line": {"color": palette.background, "width": 2}},
        hovertemplate=hover,
    )
    _mark(figure, step, held, size(int(total[step])), palette)
    figure.update_xaxes(title_text=t("step"), range=[-0.5, len(total) - 0.5], tickformat="d", nticks=7, showgrid=False)
    figure.update_yaxes(title_text=unit, range=[0, float(held.max()) * 1.18 or 1], nticks=6)
    if len(total) < 7:
        figure.update_xaxes(dtick=1)
    figure.update_layout(margin={"t": 12})
    return figure


def _mark(figure: go.Figure, step: int, held: NDArray[np.float32], label: str, palette: Palette) -> None:
    """A vertical line at the step, and the size beside its point where the rising line leaves room."""
    left = step > len(held) * 0.3
    figure.add_shape(
        type="line",
        x0=step,
        x1=step,
        y0=0,
        y1=1,
        yref="y domain",
        line={"color": palette.quiet, "width": 1, "dash": "dash"},
    )
    figure.add_annotation(
        x=step,
        y=float(held[step]),
        text=f"<b>{label}</b>",
        showarrow=False,
        xanchor="right" if left else "left",
        yanchor="bottom" if left else "top",
        xshift=-10 if left else 12,
        yshift=6 if left else -2,
        font={"color": palette.text, "size": 13},
    )


def _table(trace: Trace, t: Translate) -> pd.DataFrame:
    kv = trace.kv
    return pd.DataFrame(
        {
            t("step"): np.arange(len(trace.steps)),
            t("positions fed"): [len(step.fed_ids) for step in trace.steps],
            t("positions held"): kv.positions.max(axis=1, initial=0),
            t("positions dropped"): kv.dropped.sum(axis=1),
            t("bytes"): kv.nbytes.sum(axis=1),
        }
    )


def _describe(trace: Trace, step: int, t: Translate) -> str:
    kv = trace.steps[step].kv
    n_layers = int((kv.positions > 0).sum())
    return t(
        "After step {step} the cache holds {positions} positions in {layers} layers, {size} in all; "
        "the token just chosen is not in it yet."
    ).format(step=step, positions=int(kv.positions.max(initial=0)), layers=n_layers, size=size(int(kv.nbytes.sum())))
