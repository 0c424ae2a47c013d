"""Cache blocks: what a run reserves and uses, which blocks requests share, and what a stored prefix saves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from charts.base import Chart, Palette, Translate, base_figure, duration, size
from charts.labels import escape, shorten
from charts.series import Series, line_figure
from inference.blocks import Placement
from inference.errors import listed, sentences
from inference.trace import Trace

if TYPE_CHECKING:
    from inference.reuse import Reuse

MOST_COLUMNS = 128  # blocks of a request that are drawn; the table counts all
NUMBERED = 40  # up to so many columns, a block's number stands in its cell
FOUND, COMPUTED, PARTIAL = range(3)


def reserved_and_used(trace: Trace, block_size: int, *, palette: Palette, t: Translate) -> Chart:
    """Positions that the run's cache used after each step, and those that whole blocks reserve for it."""
    used = trace.kv.positions.max(axis=1, initial=0)
    blocks = -(-used // block_size)
    reserved = blocks * block_size
    series = [Series(t("reserved"), reserved.astype(float)), Series(t("used"), used.astype(float))]
    figure = line_figure(series, t("positions"), palette=palette, t=t, decimals=0)
    for line in figure.data:
        line.update(mode="lines", line_shape="hv")
    table = pd.DataFrame(
        {
            t("step"): np.arange(len(used)),
            t("used"): used,
            t("blocks"): blocks,
            t("reserved"): reserved,
            t("wasted"): reserved - used,
        }
    )
    each = int(trace.kv.nbytes[-1].sum()) / max(1, int(used[-1]))
    said = t("At the end {used} positions lie in {blocks} blocks of {size}: {wasted} places, {bytes}, are wasted.")
    wasted = int(reserved[-1] - used[-1])
    described = said.format(
        used=int(used[-1]), blocks=int(blocks[-1]), size=block_size, wasted=wasted, bytes=size(wasted * each)
    )
    return Chart(figure, table, described, t("Reserved and used"))


def block_table(placements: Sequence[Placement], *, palette: Palette, t: Translate) -> Chart:
    """One row a request, one cell a block with its number in the pool: found, computed, or computed and not full."""
    widest = max((len(one.blocks) for one in placements), default=0)
    columns = max(1, min(widest, MOST_COLUMNS))
    states = np.full((len(placements), columns), np.nan, dtype=np.float32)
    numbers = np.full((len(placements), columns), "", dtype=object)
    for row, one in enumerate(placements):
        shown = len(one.blocks[:columns])
        states[row, :shown] = COMPUTED
        states[row, : min(one.hits, columns)] = FOUND
        if one.wasted_tokens and len(one.blocks) <= columns:
            states[row, len(one.blocks) - 1] = PARTIAL
        numbers[row, :shown] = [str(block) for block in one.blocks[:columns]]
    figure = _block_figure(states, numbers, palette, t)
    names = [escape(shorten(one.request.name)) for one in placements]
    figure.update_yaxes(tickvals=np.arange(len(names)), ticktext=names, autorange="reversed")
    figure.update_layout(height=max(220, min(600, 120 + 34 * len(names))))
    return Chart(figure, _placements(placements, t), _said(placements, t), t("Which blocks each request has"))


def _block_figure(states: np.ndarray, numbers: np.ndarray, palette: Palette, t: Translate) -> go.Figure:
    figure = base_figure(palette)
    light = palette.mode == "light"
    colours = ("#b1a8f7", "#3d2fa5", "#c96a06") if light else ("#4b4299", "#ddd6fe", "#fbbf24")
    steps = [((state + edge) / 3, colour) for state, colour in enumerate(colours) for edge in (0, 1)]
    names = (t("found in the pool"), t("computed"), t("computed, not full"))
    texts = np.array([["" if np.isnan(s) else names[int(s)] for s in row] for row in states], dtype=object)
    figure.add_heatmap(
        z=states,
        zmin=-0.5,
        zmax=2.5,
        colorscale=steps,
        showscale=False,
        xgap=2,
        ygap=4,
        customdata=np.stack([numbers, texts], axis=-1),
        hovertemplate=t("block {number}: {state}").format(number="%{customdata[0]}", state="%{customdata[1]}")
        + "<extra></extra>",
        text=numbers,
        texttemplate="%{text}" if states.shape[1] <= NUMBERED else "",
        hoverongaps=False,
    )
    for name, colour in zip(names, colours, strict=True):
        marker = {"symbol": "square", "size": 12, "color": colour}
        figure.add_scatter(x=[None], y=[None], mode="markers", marker=marker, name=name, hoverinfo="skip")
    figure.update_xaxes(title_text=t("block of the request"), tickformat="d", nticks=10, showgrid=False)
    figure.update_yaxes(showgrid=False)
    figure.update_layout(legend={"itemclick": False, "itemdoubleclick": False})
    return figure


def _placements(placements: Sequence[Placement], t: Translate) -> pd.DataFrame:
    return pd.DataFrame(
        {
            t("request"): [one.request.name for one in placements],
            t("tokens"): [one.request.tokens for one in placements],
            t("blocks"): [len(one.blocks) for one in placements],
            t("found in the pool"): [one.hits for one in placements],
            t("prefill saved (tokens)"): [one.reused_tokens for one in placements],
            t("prefilled (tokens)"): [one.computed_tokens for one in placements],
            t("wasted places"): [one.wasted_tokens for one in placements],
            t("blocks given up for it"): [listed(one.evicted, t) for one in placements],
            t("blocks lacking"): [one.lacking for one in placements],
        }
    )


def _said(placements: Sequence[Placement], t: Translate) -> str:
    saved, computed = (sum(getattr(one, name) for one in placements) for name in ("reused_tokens", "computed_tokens"))
    said = [
        t("The requests prefill {computed:,} tokens; {saved:,} are found in shared blocks and saved.").format(
            computed=computed, saved=saved
        )
    ]
    evicted = sum(len(one.evicted) for one in placements)
    if evicted:
        said.append(t("{n} blocks were given up to make room, the least recently used first.").format(n=evicted))
    refused = [one.request.name for one in placements if one.lacking]
    if refused:
        said.append(t("No room for: {names}.").format(names=listed(refused, t)))
    return sentences(said, t)


def reuse_times(found: Reuse, *, palette: Palette, t: Translate) -> Chart:
    """Milliseconds of the second request's prefill, from nothing and from the stored prefix: medians and each try."""
    names = (t("from nothing"), t("from the stored prefix"))
    both = (found.fresh_s * 1e3, found.reused_s * 1e3)
    figure = base_figure(palette, bargap=0.5, showlegend=False)
    medians = np.array([np.median(one) for one in both])
    patterns = {"shape": ["", "/"], "solidity": 0.25}
    colours = [palette.categorical[0], palette.categorical[1]]
    figure.add_bar(
        x=np.arange(2),
        y=medians,
        marker={"color": colours, "pattern": patterns},
        hovertemplate="%{y:.1f} ms<extra></extra>",
    )
    for at, tries in enumerate(both):
        marker = {"color": palette.text, "size": 7, "symbol": "circle-open"}
        x = np.full(len(tries), at)
        figure.add_scatter(x=x, y=tries, mode="markers", marker=marker, hovertemplate="%{y:.1f} ms<extra></extra>")
    figure.update_xaxes(tickvals=np.arange(2), ticktext=list(names), showgrid=False)
    figure.update_yaxes(title_text="ms", rangemode="tozero", nticks=6)
    columns = {t("try"): np.arange(len(both[0])), **dict(zip(names, (one.round(2) for one in both), strict=True))}
    said = t(
        "The prefill takes {fresh} from nothing and {reused} with the copied prefix: {ratio:.1f} × as fast (medians)."
    )
    described = said.format(
        fresh=duration(medians[0] / 1e3), reused=duration(medians[1] / 1e3), ratio=medians[0] / medians[1]
    )
    return Chart(figure, pd.DataFrame(columns), described, t("Prefill of the second request"))
