"""One head: its weights pooled or exact, what a token reads and who reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from charts.base import Translate, percent
from inference.attention_rows import Axis, LayerRows, pooled
from inference.trace import Floats, Trace

Side = Literal["reads", "read_by"]

TOP = 5


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
