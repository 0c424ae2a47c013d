"""How the KV cache of one model grows with the length of a sequence, under MHA, GQA, MQA and MLA."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from charts.base import Chart, Palette, Translate, base_figure, size, size_unit
from inference.errors import listed, sentences

DASHES = {"MHA": "solid", "GQA": "dash", "MQA": "dot", "MLA": "dashdot"}


@dataclass(frozen=True, slots=True)
class Curve:
    """Bytes of one arrangement: at each of the chart's lengths, and at the length that is asked about.

    Attributes:
        heads: key-value heads a layer; 0 for a latent.
        nbytes: [N] bytes.
        at: bytes at the marked length.
    """

    heads: int
    nbytes: NDArray[np.float64]
    at: int


def kv_curves(
    curves: Mapping[str, Curve], tokens: NDArray[np.int64], at: int, own: str, *, palette: Palette, t: Translate
) -> Chart:
    """One line an arrangement over the length of a sequence, the model's own thick, with the marked length's bytes.

    Args:
        curves: by the names of `DASHES`.
        tokens: [N] lengths, ascending.
        at: the marked length.
        own: the arrangement that the model has.
    """
    figure = _figure(curves, tokens, at, own, palette, t)
    table = pd.DataFrame({t("tokens"): tokens} | {name: c.nbytes.astype(np.int64) for name, c in curves.items()})
    return Chart(figure, table, _describe(curves, at, own, t), t("Memory by attention type"))


def _figure(
    curves: Mapping[str, Curve], tokens: NDArray[np.int64], at: int, own: str, palette: Palette, t: Translate
) -> go.Figure:
    highest = max(float(curve.nbytes.max()) for curve in curves.values())
    unit, factor = size_unit(highest)
    figure = base_figure(palette, hovermode="x unified")
    for (name, curve), colour in zip(curves.items(), palette.categorical, strict=False):
        figure.add_scatter(
            name=label(name, curve.heads, t),
            x=tokens,
            y=(curve.nbytes / factor).astype(np.float32),
            mode="lines",
            line={"color": colour, "width": 3.5 if name == own else 1.8, "dash": DASHES[name]},
            hovertemplate=f"%{{y:,.2f}} {unit}",
        )
        figure.add_scatter(
            x=[at],
            y=[curve.at / factor],
            mode="markers",
            marker={
                "color": colour,
                "size": 10 if name == own else 6,
                "line": {"color": palette.background, "width": 1.5},
            },
            showlegend=False,
            hoverinfo="skip",
        )
    line = {"color": palette.quiet, "width": 1, "dash": "dash"}
    figure.add_shape(type="line", x0=at, x1=at, y0=0, y1=1, yref="y domain", line=line)
    figure.update_xaxes(
        title_text=t("tokens a sequence"), range=[0, int(tokens[-1])], tickformat=",d", nticks=5, showgrid=False
    )
    figure.update_yaxes(title_text=unit, range=[0, highest / factor * 1.05], nticks=6)
    figure.update_layout(margin={"t": 52})
    return figure


def label(name: str, heads: int, t: Translate) -> str:
    """An arrangement with its number of key-value heads."""
    if heads == 0:
        return t("{name}, one latent").format(name=name)
    return (
        t("{name}, one KV head").format(name=name)
        if heads == 1
        else t("{name}, {n} KV heads").format(name=name, n=heads)
    )


def _describe(curves: Mapping[str, Curve], at: int, own: str, t: Translate) -> str:
    sizes = listed((f"{name} {size(curve.at)}" for name, curve in curves.items()), t)
    text = t("At {tokens} tokens a sequence: {sizes}.").format(tokens=f"{at:,}", sizes=sizes)
    mine = t("This model has {own} (thick line).").format(own=own) if own in curves else ""
    return sentences([text, mine], t)
