"""Many draws from one distribution: how often each token came, against how often chance lets it come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from charts.base import MONO, Chart, Palette, Translate, base_figure, percent
from charts.labels import escape, shorten
from inference.draws import COVERAGE, Draws, expected_band

N_ROWS = 12


@dataclass(frozen=True, slots=True)
class _Row:
    """A token, or all others together, with its count, its probability, and the band of counts [low, high]."""

    label: str
    count: int
    prob: float
    low: int
    high: int


def draws_chart(
    drawn: Draws, tokens: Callable[[Sequence[int]], list[str]], seed: int, *, palette: Palette, t: Translate
) -> Chart:
    """Observed frequencies as bars, expected ones as marks with the central 95 % interval of the binomial."""
    rows = _rows(drawn, tokens, t)
    outside = [row for row in rows if not row.low <= row.count <= row.high]
    said = t(
        "{n:,} draws with seed {seed}: “{token}” came {count:,} times, expected {expected:,.0f}. "
        "{inside} of {rows} rows lie in their band, in which a row lies in {coverage:.0%} of all such series "
        "(central interval of the binomial distribution)."
    ).format(
        n=drawn.n,
        seed=seed,
        token=rows[0].label,
        count=rows[0].count,
        expected=drawn.n * rows[0].prob,
        inside=len(rows) - len(outside),
        rows=len(rows),
        coverage=COVERAGE,
    )
    return Chart(
        _figure(rows, drawn.n, palette, t), _table(rows, drawn.n, t), said, t("Drawn {n:,} times").format(n=drawn.n)
    )


def _rows(drawn: Draws, tokens: Callable[[Sequence[int]], list[str]], t: Translate) -> list[_Row]:
    shown = min(N_ROWS, len(drawn.ids))
    labels = tokens(drawn.ids[:shown].tolist())
    parts = [
        (label, int(c), float(p)) for label, c, p in zip(labels, drawn.counts[:shown], drawn.probs[:shown], strict=True)
    ]
    if shown < len(drawn.ids):
        others = t("all other {n:,}").format(n=len(drawn.ids) - shown)
        parts.append((others, int(drawn.counts[shown:].sum()), min(1.0, float(drawn.probs[shown:].sum()))))
    return [_Row(label, count, prob, *expected_band(drawn.n, prob)) for label, count, prob in parts]


def _figure(rows: Sequence[_Row], n: int, palette: Palette, t: Translate) -> go.Figure:
    figure, at = base_figure(palette, bargap=0.3), np.arange(len(rows))
    inside = np.array([row.low <= row.count <= row.high for row in rows])
    hover = [_hover(row, n, t) for row in rows]
    figure.add_bar(
        name=t("observed"), x=[row.count / n for row in rows], y=at, orientation="h", hovertext=hover, hoverinfo="text",
        marker={"color": palette.quiet, "opacity": 0.6},
    )  # fmt: skip
    teal = palette.categorical[1]
    figure.add_scatter(
        name=t("expected, with band"),
        x=[row.prob for row in rows],
        y=at,
        mode="markers",
        marker={
            "symbol": np.where(inside, "line-ns", "x"),
            "size": 10,
            "color": teal,
            "line": {"width": 2, "color": teal},
        },
        error_x={
            "array": [row.high / n - row.prob for row in rows],
            "arrayminus": [row.prob - row.low / n for row in rows],
            "color": teal,
            "thickness": 2,
            "width": 5,
        },
        hoverinfo="skip",
    )
    figure.update_yaxes(
        tickmode="array",
        tickvals=at,
        ticktext=[escape(shorten(row.label)) for row in rows],
        tickfont={"family": MONO, "color": palette.text},
        range=[len(rows) - 0.4, -0.6],
        ticklabelstandoff=6,
        showgrid=False,
        fixedrange=True,
    )
    figure.update_xaxes(tickformat=".0%", rangemode="tozero", fixedrange=True, nticks=6)
    return figure


def _hover(row: _Row, n: int, t: Translate) -> str:
    said = t("{count:,} times ({share}), expected {expected}, band {low:,} to {high:,}")
    words = said.format(
        count=row.count, share=percent(row.count / n), expected=percent(row.prob), low=row.low, high=row.high
    )
    return f"<b>{escape(row.label)}</b><br>{words}"


def _table(rows: Sequence[_Row], n: int, t: Translate) -> pd.DataFrame:
    return pd.DataFrame(
        {
            t("token"): [row.label for row in rows],
            t("observed"): [row.count for row in rows],
            t("expected"): [n * row.prob for row in rows],
            t("band from"): [row.low for row in rows],
            t("band to"): [row.high for row in rows],
        }
    )
