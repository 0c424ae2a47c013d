"""Masks: the one that a layer used in a step, the ones that other architectures use, and a softmax with a mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from charts.base import MONO, Chart, Palette, Translate, base_figure, percent
from charts.labels import escape, shorten
from inference.attention_rows import Axis, axis_of
from inference.errors import sentences
from inference.masks import Example, Mask, causal, everything, prefix, sliding
from inference.tokens import Token

WRITTEN = 20  # so many cells a side have what the mask adds written in them
LONGEST_TICK = 10
HIDDEN, SEEN = "−∞", "0"


def used_mask(
    visible: Mask,
    first: int,
    tokens: Sequence[Token],
    window: int | None,
    *,
    layer: int,
    palette: Palette,
    t: Translate,
) -> Chart:
    """The mask of one layer in one step: `[T, T]` in the prefill, one row in a decode step.

    Args:
        visible: [Q, K] which keys each query sees.
        first: position of the first query.
        tokens: those of the K keys.
        window: the layer's own window, if it has one.
    """
    n_queries, n_keys = visible.shape
    queries, keys = axis_of(n_queries), axis_of(n_keys)
    share = _pooled(visible, queries, keys)
    figure = base_figure(palette)
    at = [queries.starts + first + (queries.cell - 1) / 2, keys.starts + (keys.cell - 1) / 2]
    written = max(share.shape) <= WRITTEN
    _cells(figure, share, at[1], at[0], palette, written=written)
    names = [escape(shorten(token.display, LONGEST_TICK)) for token in tokens]
    for axis, positions, update in ((keys, at[1], figure.update_xaxes), (queries, at[0], figure.update_yaxes)):
        update(**_axis(positions, axis, names, palette))
    figure.update_xaxes(title={"text": t("key")}, tickangle=-60 if n_keys <= WRITTEN else 0)
    figure.update_yaxes(title={"text": t("query")}, autorange="reversed")
    if n_queries == n_keys:
        figure.update_yaxes(scaleanchor="x", constrain="domain")
        figure.update_xaxes(constrain="domain")
    figure.update_layout(margin={"t": 8}, height=400 if n_queries > 1 else 150)
    title = t("The mask of layer {layer}: {kind}").format(layer=layer, kind=_kind(visible, window, t))
    table = pd.DataFrame(
        {t("query"): np.arange(first, first + n_queries), t("visible keys"): visible.sum(axis=1)}
    )  # fmt: skip
    return Chart(figure, table, _describe(visible, first, window, t), title)


def _kind(visible: Mask, window: int | None, t: Translate) -> str:
    """What the mask is, read off its own cells."""
    n_queries, n_keys = visible.shape
    if np.array_equal(visible, causal(n_queries, n_keys)):
        return t("causal")
    if window is not None and np.array_equal(visible, sliding(n_queries, n_keys, window)):
        return t("causal with a sliding window of {n}").format(n=window)
    if (visible & ~causal(n_queries, n_keys)).any():
        return t("prefix: some queries see later positions")
    return t("causal, with keys left out")


def _describe(visible: Mask, first: int, window: int | None, t: Translate) -> str:
    n_queries, n_keys = visible.shape
    blind = int((~visible.any(axis=1)).sum())
    if n_queries == 1:
        said = t("Decode: one query, at position {at}, and {n} keys in the row; it sees {seen} of them.").format(
            at=first, n=n_keys, seen=int(visible.sum())
        )
    else:
        said = t("Prefill: {n} queries at once, {n} × {k} cells, {share} of them visible.").format(
            n=n_queries, k=n_keys, share=percent(float(visible.mean()))
        )
    notes = []
    if window is not None:
        notes.append(t("This layer's window is {n} keys, the query's own among them.").format(n=window))
    if blind:
        notes.append(t("Queries with no visible key: {n}.").format(n=blind))
    return sentences([said, *notes], t)


def compared_masks(n: int, window: int, n_prefix: int, *, palette: Palette, t: Translate) -> Chart:
    """The masks of several architectures side by side, for `n` positions."""
    masks: Mapping[str, Mask] = {
        t("causal (GPT)"): causal(n, n),
        t("sliding window {n}").format(n=window): sliding(n, n, window),
        t("prefix {n}").format(n=n_prefix): prefix(n, n_prefix),
        t("bidirectional (BERT)"): everything(n, n),
        t("decoder (T5)"): causal(n - 2, n - 2),
        t("cross-attention (T5)"): everything(n - 2, n),
    }
    figure = base_figure(palette)
    for number, (name, mask) in enumerate(masks.items()):
        _panel(figure, number, 3, name, mask, palette)
    figure.update_layout(height=470, margin={"t": 28, "b": 28})
    table = pd.DataFrame(
        {
            t("mask"): list(masks),
            t("visible cells"): [int(mask.sum()) for mask in masks.values()],
            t("cells"): [mask.size for mask in masks.values()],
        }
    )
    said = t(
        "Rows are queries, columns are keys; −∞ marks what a query must not see. T5's encoder is bidirectional like "
        "BERT; its decoder is causal and reads the whole encoder: autoregressive is not the same as decoder-only."
    )
    return Chart(figure, table, said, t("Masks of other architectures"))


def _panel(figure: go.Figure, number: int, across: int, name: str, mask: Mask, palette: Palette) -> None:
    column, row = number % across, number // across
    suffix = "" if not number else str(number + 1)
    left, right = column / across, (column + 0.92) / across
    bottom, top = (0.54, 1.0) if row == 0 else (0.0, 0.42)
    n_queries, n_keys = mask.shape
    _cells(
        figure, mask.astype(np.float32), np.arange(n_keys), np.arange(n_queries), palette, written=True, suffix=suffix
    )
    common = {
        "showgrid": False,
        "zeroline": False,
        "fixedrange": True,
        "dtick": 2,
        "ticks": "",
        "tickfont": _font(palette),
    }
    figure.update_layout(
        {
            f"xaxis{suffix}": {**common, "domain": [left, right], "anchor": f"y{suffix}"},
            f"yaxis{suffix}": {**common, "domain": [bottom, top], "anchor": f"x{suffix}", "autorange": "reversed"},
        }
    )
    figure.add_annotation(
        text=escape(name), x=left, y=top, xref="paper", yref="paper", xanchor="left", yanchor="bottom", showarrow=False,
        font={"size": 11},
    )  # fmt: skip


def _cells(
    figure: go.Figure, share: NDArray[np.float32], x: NDArray[Any], y: NDArray[Any], palette: Palette, *,
    written: bool, suffix: str = "",
) -> None:  # fmt: skip
    """A heatmap of how much of each cell is visible; what the mask adds is written where there is room."""
    hidden, seen = palette.secondary_background, palette.sequential[5 if palette.mode == "light" else 6]
    words = np.where(share > 0, SEEN, HIDDEN)
    figure.add_heatmap(
        z=share,
        x=x,
        y=y,
        zmin=0,
        zmax=1,
        colorscale=[(0, hidden), (1, seen)],
        showscale=False,
        xgap=1 if written else 0,
        ygap=1 if written else 0,
        text=words if written else None,
        texttemplate="%{text}" if written else None,
        textfont={"size": 10},
        hoverinfo="skip",
        xaxis=f"x{suffix}",
        yaxis=f"y{suffix}",
    )


def _font(palette: Palette) -> dict[str, Any]:
    return {"family": MONO, "size": 11, "color": palette.muted}


def _pooled(visible: Mask, queries: Axis, keys: Axis) -> NDArray[np.float32]:
    """[n, m] the share of each cell that is visible."""
    rows = np.add.reduceat(visible, np.arange(0, len(visible), queries.cell), axis=0, dtype=np.float32)
    cells = np.add.reduceat(rows, np.arange(0, visible.shape[1], keys.cell), axis=1)
    sizes = np.outer(np.diff(np.append(queries.starts, queries.stop)), np.diff(np.append(keys.starts, keys.stop)))
    share: NDArray[np.float32] = (cells / sizes).astype(np.float32)
    return share


def _axis(positions: NDArray[Any], axis: Axis, names: list[str], palette: Palette) -> dict[str, Any]:
    spans: dict[str, Any] = {"showgrid": False, "tickfont": _font(palette), "fixedrange": True}
    if axis.stop - axis.start > WRITTEN:
        return {**spans, "nticks": 8, "tickformat": "d"}
    return {**spans, "tickmode": "array", "tickvals": positions, "ticktext": [names[int(at)] for at in positions]}


def example_chart(found: Example, *, palette: Palette, t: Translate) -> Chart:
    """The weights of typed scores as bars, hidden ones marked, and every step in the table."""
    at = np.arange(len(found.scores))
    hidden = ~np.isfinite(found.masked)
    figure = base_figure(palette)
    words = [HIDDEN if gone else f"{weight:.4f}" for gone, weight in zip(hidden, found.weights, strict=True)]
    figure.add_bar(
        x=at,
        y=found.weights,
        text=words,
        textposition="outside",
        cliponaxis=False,
        marker={"color": palette.categorical[0]},
        hoverinfo="skip",
    )
    figure.update_xaxes(tickvals=at, ticktext=[f"{i}: {score:g}" for i, score in enumerate(found.scores)])
    figure.update_xaxes(showgrid=False, title={"text": t("position: score")})
    figure.update_yaxes(range=[0, 1.12], tickformat=".0%")
    figure.update_layout(height=260, margin={"t": 8}, bargap=0.5)
    table = pd.DataFrame(
        {
            t("position"): at,
            t("score"): found.scores,
            t("masked"): [f"{value:g}" if np.isfinite(value) else HIDDEN for value in found.masked],
            t("exp(score − largest)"): found.exps,
            t("weight"): found.weights,
        }
    )
    return Chart(figure, table, _describe_example(found, t), t("A softmax with a mask, by hand"))


def _describe_example(found: Example, t: Translate) -> str:
    if not found.any_visible:
        return t("No visible key: every score is −∞, so there is nothing to share out and every weight is 0.")
    masked = ", ".join(f"{value:g}" if np.isfinite(value) else HIDDEN for value in found.masked)
    weights = ", ".join(f"{value:.4f}" if value else "0" for value in found.weights)
    return f"softmax([{masked}]) = [{weights}]"
