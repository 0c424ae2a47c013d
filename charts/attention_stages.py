"""The way from q · k to a weight, for a few pairs: four small matrices, as words and shades."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from charts.base import Translate, percent
from charts.labels import shorten
from inference.attention_rows import Stages
from inference.trace import Floats, Trace

LONGEST_NAME = 10


@dataclass(frozen=True, slots=True)
class Panel:
    """One of the four matrices.

    Attributes:
        words: [n][m] its values for people; empty where a weight is hidden.
        shades: [n, m] from -1 to 1, the largest absolute value being 1; NaN where the mask hides the pair.
    """

    name: str
    words: list[list[str]]
    shades: Floats


@dataclass(frozen=True, slots=True)
class StagesView:
    """What is drawn of the four stages.

    Attributes:
        queries, keys: names of the rows and columns, with their positions.
        panels: q · k, scaled, masked, softmax.
        table: a row a pair of query and key.
    """

    queries: list[str]
    keys: list[str]
    panels: tuple[Panel, ...]
    table: pd.DataFrame
    description: str
    title: str


def stages_view(trace: Trace, found: Stages, *, t: Translate) -> StagesView:
    """Four small matrices side by side: q · k, scaled, masked, softmax; hidden cells hold no shade."""
    names = _names(found, t)
    panels = [
        Panel(name, _words(values, shares=number == len(names) - 1), _shades(values))
        for number, (name, values) in enumerate(names.items())
    ]
    return StagesView(
        queries=_labels(trace, found.queries),
        keys=_labels(trace, found.keys),
        panels=tuple(panels),
        table=_table(trace, found, names, t),
        description=_describe(trace, found, t),
        title=t("From q · k to a weight"),
    )


def _names(found: Stages, t: Translate) -> dict[str, Floats]:
    scaled = f"× {found.scale:.4g}"
    if found.softcap is not None:
        scaled += ", " + t("soft-capped at {cap}").format(cap=f"{found.softcap:g}")
    return {"q · k": found.products, scaled: found.scores, t("masked"): found.masked, "softmax": found.weights}


def _shades(values: Floats) -> Floats:
    shown = np.where(np.isfinite(values), values, np.float32(np.nan))
    top = max(float(np.nanmax(np.abs(shown), initial=0.0)), 1e-6)
    return (shown / np.float32(top)).astype(np.float32)


def _words(values: Floats, shares: bool) -> list[list[str]]:
    def word(value: float) -> str:
        if not np.isfinite(value):
            return "" if shares else "−∞"
        digits = 3 if shares else 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
        return f"{value:.{digits}f}"

    return [[word(value) for value in row] for row in values.tolist()]


def _labels(trace: Trace, positions: NDArray[np.int64]) -> list[str]:
    return [f"{shorten(trace.tokens[at].display, LONGEST_NAME)} {at}" for at in positions.tolist()]


def _table(trace: Trace, found: Stages, names: dict[str, Floats], t: Translate) -> pd.DataFrame:
    pairs = [(q, k) for q in found.queries.tolist() for k in found.keys.tolist()]
    return pd.DataFrame(
        {
            t("query"): [f"{q} {trace.tokens[q].display}" for q, _ in pairs],
            t("key"): [f"{k} {trace.tokens[k].display}" for _, k in pairs],
            **{name: values.ravel() for name, values in names.items()},
        }
    )


def _describe(trace: Trace, found: Stages, t: Translate) -> str:
    held = float(np.nansum(found.weights[-1]))
    return t(
        "The softmax of each row runs over every key that its query sees; of the row of “{token}” at position {at} "
        "the keys shown here hold {share}. −∞ is what the mask writes, and its weight is exactly 0."
    ).format(token=trace.tokens[int(found.queries[-1])].display, at=int(found.queries[-1]), share=percent(held))
