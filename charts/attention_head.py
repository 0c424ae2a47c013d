"""One head: its weights pooled or exact, what a token reads and who reads it, and the way from q · k to a weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from charts.base import MONO, Chart, Palette, Translate, base_figure, percent
from charts.labels import escape, shorten
from inference.attention_rows import Axis, LayerRows, Stages, pooled
from inference.trace import Floats, Trace

Side = Literal["reads", "read_by"]

TOP = 5
LONGEST_TICK = 10


@dataclass(frozen=True, slots=True)
class HeadView:
    """What is drawn of one head.

    Attributes:
        weights: [n, m] the largest weight of each cell; NaN where the mask hides all of it.
        queries, keys: the axes of `weights`.
        line: [T] the weights of the focus token, NaN where hidden: on each key, or of each query on it.
        top: the `TOP` positions with the largest of them, largest first.
    """

    title: str
    description: str
    table: pd.DataFrame
    weights: Floats
    queries: Axis
    keys: Axis
    focus: int
    side: Side
    line: Floats
    top: tuple[int, ...]


def head_view(
    trace: Trace, layer: LayerRows, head: int, weights: Floats, queries: Axis, keys: Axis, *, focus: int, side: Side,
    t: Translate,
) -> HeadView:  # fmt: skip
    """A head of a layer, seen through a window.

    Args:
        weights: [n, m] of the window, as `inference.attention_rows.pooled` gives them.
        focus: the position whose line is read: as a query (`side` is `"reads"`) or as a key (`"read_by"`).
    """
    line = reads(layer, head, focus) if side == "reads" else read_by(layer, head, focus)
    known = np.flatnonzero(~np.isnan(line))
    top = known[np.argsort(-line[known], kind="stable")[:TOP]]
    return HeadView(
        title=t("Attention · layer {layer} · head {head}").format(layer=layer.number, head=head),
        description=_describe(trace, line, top, focus, side, t),
        table=_table(trace, weights, queries, keys),
        weights=weights,
        queries=queries,
        keys=keys,
        focus=focus,
        side=side,
        line=line,
        top=tuple(top.tolist()),
    )


def reads(layer: LayerRows, head: int, query: int) -> Floats:
    """[T] the weights of one query on every key; NaN where the mask hides the key."""
    line = np.full(layer.n_positions, np.nan, dtype=np.float32)
    at = np.array([query])
    visible = layer.visible(at)[0]
    line[: len(visible)] = np.where(visible, layer.weights(np.array([head]), at)[0, 0], np.float32(np.nan))
    return line


def read_by(layer: LayerRows, head: int, key: int) -> Floats:
    """[T] the weights of every query on one key; NaN where the mask hides the key from the query."""
    return pooled(layer, head, Axis(0, layer.n_positions, layer.n_positions), Axis(key, key + 1))[:, 0]


def _describe(trace: Trace, line: Floats, top: NDArray[np.intp], focus: int, side: Side, t: Translate) -> str:
    n_seen = int((~np.isnan(line)).sum())
    if not n_seen:
        return t("Position {at}, “{token}”: no visible key.").format(at=focus, token=trace.tokens[focus].display)
    said = (
        t("“{token}” at position {at} reads most from position {other}, “{other_token}”: {share} of its attention, "
          "spread over {n} visible keys.")
        if side == "reads"
        else t("“{token}” at position {at} is read most by position {other}, “{other_token}”, which gives it {share} "
               "of its attention; {n} queries can see it.")
    )  # fmt: skip
    return said.format(
        token=trace.tokens[focus].display,
        at=focus,
        other=int(top[0]),
        other_token=trace.tokens[int(top[0])].display,
        share=percent(float(line[top[0]])),
        n=f"{n_seen:,}",
    )


def _table(trace: Trace, weights: Floats, queries: Axis, keys: Axis) -> pd.DataFrame:
    """The weights as drawn: rows are queries, columns are keys, both with their position."""
    return pd.DataFrame(weights, index=pd.Index(_names(trace, queries)), columns=_names(trace, keys))


def _names(trace: Trace, axis: Axis) -> list[str]:
    if axis.cell == 1:
        return [f"{at} {trace.tokens[at].display}" for at in range(axis.start, axis.stop)]
    return [f"{at}–{min(at + axis.cell, axis.stop) - 1}" for at in axis.starts]


def stages_chart(trace: Trace, found: Stages, *, palette: Palette, t: Translate) -> Chart:
    """Four small matrices side by side: q · k, scaled, masked, softmax; hidden cells are left empty."""
    title = t("From q · k to a weight")
    names = _stage_names(found, t)
    figure = base_figure(palette)
    for number, (name, values) in enumerate(names.items()):
        _panel(figure, number, len(names), name, values, trace, found, palette)
    figure.update_layout(height=330, margin={"t": 28, "b": 4}, showlegend=False)
    return Chart(figure, _stage_table(trace, found, names, t), _describe_stages(trace, found, t), title)


def _stage_names(found: Stages, t: Translate) -> dict[str, Floats]:
    scaled = f"× {found.scale:.4g}"
    if found.softcap is not None:
        scaled += ", " + t("soft-capped at {cap}").format(cap=f"{found.softcap:g}")
    return {"q · k": found.products, scaled: found.scores, t("masked"): found.masked, "softmax": found.weights}


def _panel(
    figure: go.Figure, number: int, of: int, name: str, values: Floats, trace: Trace, found: Stages, palette: Palette
) -> None:
    n_rows, n_columns = values.shape
    suffix = "" if number == 0 else str(number + 1)
    left, right = number / of, (number + 0.94) / of
    last = number == of - 1
    shown = np.where(np.isfinite(values), values, np.float32(np.nan))
    top = max(float(np.nanmax(np.abs(shown), initial=0.0)), 1e-6)
    figure.add_heatmap(
        z=shown,
        x=np.arange(n_columns),
        y=np.arange(n_rows),
        zmin=0 if last else -top,
        zmax=top,
        colorscale=_scale(palette.sequential if last else palette.diverging),
        xgap=1,
        ygap=1,
        showscale=False,
        text=_cell_words(values, last),
        texttemplate="%{text}",
        textfont={"size": 10},
        hoverinfo="skip",
        xaxis=f"x{suffix}",
        yaxis=f"y{suffix}",
    )
    font = {"family": MONO, "size": 11, "color": palette.muted}
    keys, queries = (_ticks(trace, at) for at in (found.keys, found.queries))
    common = {
        "showgrid": False,
        "zeroline": False,
        "tickfont": font,
        "fixedrange": True,
        "tickmode": "array",
        "ticks": "",
    }
    x = {**common, "domain": [left, right], "anchor": f"y{suffix}", "tickvals": np.arange(n_columns)}
    y = {**common, "anchor": f"x{suffix}", "tickvals": np.arange(n_rows), "range": [n_rows - 0.5, -0.5]}
    figure.update_layout(
        {
            f"xaxis{suffix}": {**x, "ticktext": keys, "tickangle": -60, "range": [-0.5, n_columns - 0.5]},
            f"yaxis{suffix}": {**y, "ticktext": queries, "showticklabels": number == 0},
        }
    )
    figure.add_annotation(
        text=escape(name), x=left, y=1, xref="paper", yref="paper", xanchor="left", yanchor="bottom", showarrow=False
    )


def _scale(colours: tuple[str, ...]) -> list[tuple[float, str]]:
    last = len(colours) - 1
    return [(i / last, colour) for i, colour in enumerate(colours)]


def _ticks(trace: Trace, positions: NDArray[np.int64]) -> list[str]:
    return [f"{escape(shorten(trace.tokens[at].display, LONGEST_TICK))} {at}" for at in positions.tolist()]


def _cell_words(values: Floats, shares: bool) -> list[list[str]]:
    def word(value: float) -> str:
        if not np.isfinite(value):
            return "" if shares else "−∞"
        digits = 3 if shares else 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
        return f"{value:.{digits}f}"

    return [[word(value) for value in row] for row in values.tolist()]


def _stage_table(trace: Trace, found: Stages, names: dict[str, Floats], t: Translate) -> pd.DataFrame:
    """One row a pair of query and key."""
    pairs = [(q, k) for q in found.queries.tolist() for k in found.keys.tolist()]
    return pd.DataFrame(
        {
            t("query"): [f"{q} {trace.tokens[q].display}" for q, _ in pairs],
            t("key"): [f"{k} {trace.tokens[k].display}" for _, k in pairs],
            **{name: values.ravel() for name, values in names.items()},
        }
    )


def _describe_stages(trace: Trace, found: Stages, t: Translate) -> str:
    held = float(np.nansum(found.weights[-1]))
    return t(
        "The softmax of each row runs over every key that its query sees; of the row of “{token}” at position {at} "
        "the keys shown here hold {share}. −∞ is what the mask writes, and its weight is exactly 0."
    ).format(token=trace.tokens[int(found.queries[-1])].display, at=int(found.queries[-1]), share=percent(held))
