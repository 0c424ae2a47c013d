"""The attention of one layer and head up to a step: which positions each query looked at, this step's query marked."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from charts.base import MONO, Chart, Palette, Translate, base_figure, check_step, percent, refused
from charts.labels import escape, shorten
from inference.attention_rows import Axis, LayerRows, axis_of, check_place, pooled
from inference.errors import TraceError, sentences
from inference.trace import Trace

Floats = NDArray[np.float32]

NAMED_TICKS = 26  # so many tokens still fit beside an axis
LONGEST_TICK = 11
NAMED_CELLS = 64  # so many a side carry their tokens in the hover text


def attention_map(
    trace: Trace,
    step: int,
    layer: int,
    head: int,
    *,
    palette: Palette,
    t: Translate,
    positions: tuple[int, int] | None = None,
) -> Chart:
    """Attention weights, one row a query position up to `step`, one column a key position; the step's own row framed.

    Args:
        positions: draw only these, from the first to before the second. Up to 256 are exact; of more, each cell
            shows the largest weight among the positions that it stands for.

    Raises:
        TraceError: the run has no such step, layer or head. What was not recorded gives a chart that says so.
    """
    check_step(trace, step)
    check_place(trace, layer, head)
    title = t("Attention · layer {layer} · head {head}").format(layer=layer, head=head)
    try:
        row = trace.attention(step, layer, heads=slice(head, head + 1), queries=slice(-1, None))[0, 0]
    except TraceError as error:
        return refused(title, error, palette, t)
    window = axis_of(len(row), positions)
    weights = pooled(LayerRows(trace, layer, step + 1), head, window, window)
    labels = [trace.tokens[at].display for at in range(len(row))]
    figure = _figure(weights, window, labels, palette, t)
    return Chart(figure, _table(weights, window, labels), _describe(step, row, window, labels, t), title)


def _figure(weights: Floats, window: Axis, labels: list[str], palette: Palette, t: Translate) -> go.Figure:
    figure = base_figure(palette)
    n, at = len(weights), window.starts.astype(np.float64) + (window.cell - 1) / 2
    named = n <= NAMED_CELLS and window.cell == 1
    words = [escape(shorten(label)) for label in labels[window.start : window.stop]]
    places = t("query {query}<br>key {key}").format(query="%{y}", key="%{x}")
    figure.add_heatmap(
        z=weights,
        x=at,
        y=at,
        zmin=0,
        colorscale=_root_scale(palette),
        xgap=1 if n <= NAMED_CELLS else 0,
        ygap=1 if n <= NAMED_CELLS else 0,
        colorbar=_colour_bar(palette),
        hoverongaps=False,
        text=_cell_texts(words, window, t) if named else None,
        hovertemplate=("%{text}" if named else places)
        + "<br>"
        + t("weight {share}").format(share="%{z:.2%}")
        + "<extra></extra>",
    )
    edge = window.cell / 2 if window.cell > 1 else 0.5
    figure.add_shape(
        type="rect",
        x0=at[0] - edge,
        x1=at[-1] + edge,
        y0=at[-1] - edge,
        y1=at[-1] + edge,
        line={"color": palette.categorical[2], "width": 2},
    )
    ticks: dict[str, object] = {"tickmode": "auto", "nticks": 8, "tickformat": "d"}
    if n <= NAMED_TICKS and window.cell == 1:
        font = {"family": MONO, "size": 11, "color": palette.muted}
        names = [escape(shorten(label, LONGEST_TICK)) for label in labels[window.start : window.stop]]
        ticks = {"tickmode": "array", "tickvals": at, "ticktext": names, "tickfont": font}
    spans = {"showgrid": False, "constrain": "domain", "ticklabelstandoff": 4, **ticks}
    figure.update_xaxes(range=[at[0] - edge, at[-1] + edge], tickangle=-60 if "ticktext" in ticks else 0, **spans)
    figure.update_yaxes(range=[at[-1] + edge, at[0] - edge], scaleanchor="x", constraintoward="top", **spans)
    figure.update_layout(margin={"t": 0})
    return figure


def _cell_texts(words: list[str], window: Axis, t: Translate) -> NDArray[np.object_]:
    text = t("query {query}<br>key {key}")
    names = [f"{at} {word}" for at, word in enumerate(words, window.start)]
    return np.array([[text.format(query=q, key=k) for k in names] for q in names], dtype=object)


def _root_scale(palette: Palette) -> list[tuple[float, str]]:
    """Colour by the square root of the weight, so that small weights beside a dominant one can be told apart."""
    last = len(palette.sequential) - 1
    return [((i / last) ** 2, colour) for i, colour in enumerate(palette.sequential)]


def _colour_bar(palette: Palette) -> dict[str, object]:
    return {
        "orientation": "h",
        "thickness": 8,
        "outlinewidth": 0,
        "y": 1,
        "yanchor": "bottom",
        "ypad": 2,
        "xpad": 0,
        "ticklabelposition": "outside top",
        "tickformat": ".0%",
        "nticks": 6,
        "tickfont": {"color": palette.muted, "size": 11},
    }


def _table(weights: Floats, window: Axis, labels: list[str]) -> pd.DataFrame:
    """The weights as drawn; rows are queries, columns are keys, both with their position."""
    if window.cell == 1:
        names = [f"{at} {labels[at]}" for at in range(window.start, window.stop)]
    else:
        names = [f"{at}–{min(at + window.cell, window.stop) - 1}" for at in window.starts]
    return pd.DataFrame(weights, index=pd.Index(names), columns=names)


def _describe(step: int, row: Floats, window: Axis, labels: list[str], t: Translate) -> str:
    best = int(row.argmax())
    said = t(
        "Step {step}: the query at position {query}, “{token}”, looks most at position {key}, “{key_token}”, "
        "with a weight of {share}; its row is framed."
    ).format(
        step=step,
        query=len(row) - 1,
        token=labels[-1],
        key=best,
        key_token=labels[best],
        share=percent(float(row[best])),
    )
    if window.cell > 1:
        note = t("Each cell shows the largest of {n} × {n} weights.")
        said = sentences([said, note.format(n=window.cell)], t)
    return said
