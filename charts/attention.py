"""The attention of one layer and head up to a step: which positions each query looked at, this step's query marked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from charts.base import MONO, Chart, Palette, Translate, base_figure, check_step, percent, refused
from charts.labels import escape, shorten
from inference.attention import attention_weights
from inference.errors import N_, TraceError
from inference.trace import Trace

Floats = NDArray[np.float32]

MOST_CELLS = 256  # a side; more blank the page, so they are pooled
NAMED_TICKS = 26  # so many tokens still fit beside an axis
LONGEST_TICK = 11
NAMED_CELLS = 64  # so many a side carry their tokens in the hover text
BLOCK = 2**20  # weights computed at a time


@dataclass(frozen=True, slots=True)
class Window:
    """The part of the weights that is drawn: positions `start` to before `stop`, `cell` of them to a side of a cell."""

    start: int
    stop: int

    @property
    def cell(self) -> int:
        """Positions a side of a cell."""
        return -(-(self.stop - self.start) // MOST_CELLS)

    @property
    def starts(self) -> NDArray[np.int64]:
        """[n] the first position of each cell."""
        return np.arange(self.start, self.stop, self.cell)


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
    _check(trace, layer, head)
    title = t("Attention · layer {layer} · head {head}").format(layer=layer, head=head)
    try:
        row = trace.attention(step, layer, heads=slice(head, head + 1), queries=slice(-1, None))[0, 0]
    except TraceError as error:
        return refused(title, error, palette, t)
    window = _window(len(row), positions)
    weights = pooled_weights(trace, step, layer, head, window)
    labels = [trace.tokens[at].display for at in range(len(row))]
    figure = _figure(weights, window, labels, palette, t)
    return Chart(figure, _table(weights, window, labels), _describe(step, row, window, labels, t), title)


def pooled_weights(trace: Trace, step: int, layer: int, head: int, window: Window) -> Floats:
    """[n, n] the largest weight of each cell of a window; NaN where no query of the cell sees any key of it."""
    n, cell = len(window.starts), window.cell
    pooled = np.full((n, n), -np.inf, dtype=np.float32)
    keys = None if trace.steps[step].weights is not None else trace.keys(step, layer)[:, : window.stop]
    rows_a_block = max(1, BLOCK // (window.stop * cell)) * cell
    for start in range(window.start, window.stop, rows_a_block):
        stop = min(start + rows_a_block, window.stop)
        rows = (
            _eager_rows(trace, layer, head, start, stop)
            if keys is None
            else _rows(trace, layer, head, start, stop, keys)
        )
        padded = np.full((-(-len(rows) // cell) * cell, n * cell), -np.inf, dtype=np.float32)
        padded[: len(rows), : stop - window.start] = rows[:, window.start :]
        cells = padded.reshape(-1, cell, n, cell).max(axis=(1, 3))
        first = (start - window.start) // cell
        pooled[first : first + len(cells)] = cells
    return np.where(np.isfinite(pooled), pooled, np.float32(np.nan))


def _rows(trace: Trace, layer: int, head: int, start: int, stop: int, keys: Floats) -> Floats:
    """[stop - start, stop] weights of the queries at positions from `start` to before `stop`; -inf where masked.

    Args:
        keys: [G, K, D] of the layer; those from `stop` on lie in the future of every one of these queries.
    """
    spec = trace.layers[layer]
    assert spec is not None  # the step's own row has just been computed from it
    queries = np.empty((stop - start, keys.shape[-1]), dtype=np.float32)
    visible = np.zeros((stop - start, stop), dtype=np.bool_)
    for at, rows, place in _places(trace, start, stop):
        queries[place] = trace.queries(at, layer)[head][rows]
        seen = trace.visible(at, layer)[rows, :stop]
        visible[place, : seen.shape[1]] = seen
    weights = attention_weights(queries[None], keys[:, :stop], spec, visible, np.array([head]))[0]
    return np.where(visible, weights, np.float32(-np.inf))


def _eager_rows(trace: Trace, layer: int, head: int, start: int, stop: int) -> Floats:
    """The same from weights that an eager model gave; such models are causal over the whole context."""
    weights = np.full((stop - start, stop), -np.inf, dtype=np.float32)
    for at, rows, place in _places(trace, start, stop):
        kept = trace.steps[at].weights
        assert kept is not None
        part = kept[layer][head][rows, :stop]
        weights[place, : part.shape[1]] = part
    return np.where(np.tri(stop, dtype=np.bool_)[start:], weights, np.float32(-np.inf))


def _places(trace: Trace, start: int, stop: int) -> Iterator[tuple[int, slice, slice]]:
    """The steps that fed the positions from `start` to before `stop`, which of their queries, and where those go."""
    in_prompt = min(stop, trace.n_prompt)
    if start < in_prompt:
        yield 0, slice(start, in_prompt), slice(0, in_prompt - start)
    for position in range(max(start, trace.n_prompt), stop):
        yield position - trace.n_prompt + 1, slice(0, 1), slice(position - start, position - start + 1)


def _window(n_positions: int, positions: tuple[int, int] | None) -> Window:
    if positions is None:
        return Window(0, n_positions)
    start, stop = max(0, positions[0]), min(n_positions, positions[1])
    if start >= stop:
        raise TraceError(
            N_("There is nothing to draw from position {start} to {stop}; this step has {n} positions."),
            start=positions[0],
            stop=positions[1],
            n=n_positions,
        )
    return Window(start, stop)


def _check(trace: Trace, layer: int, head: int) -> None:
    if not 0 <= layer < trace.model.n_layers:
        raise TraceError(N_("There is no layer {layer}; the model has {n}."), layer=layer, n=trace.model.n_layers)
    if not 0 <= head < trace.model.n_heads:
        raise TraceError(N_("There is no head {head}; the model has {n} a layer."), head=head, n=trace.model.n_heads)


def _figure(weights: Floats, window: Window, labels: list[str], palette: Palette, t: Translate) -> go.Figure:
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


def _cell_texts(words: list[str], window: Window, t: Translate) -> NDArray[np.object_]:
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


def _table(weights: Floats, window: Window, labels: list[str]) -> pd.DataFrame:
    """The weights as drawn; rows are queries, columns are keys, both with their position."""
    if window.cell == 1:
        names = [f"{at} {labels[at]}" for at in range(window.start, window.stop)]
    else:
        names = [f"{at}–{min(at + window.cell, window.stop) - 1}" for at in window.starts]
    return pd.DataFrame(weights, index=pd.Index(names), columns=names)


def _describe(step: int, row: Floats, window: Window, labels: list[str], t: Translate) -> str:
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
        said += " " + note.format(n=window.cell)
    return said
