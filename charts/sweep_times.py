"""Measured times against how much is fed: medians with their spread, and the curve fitted to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from charts.base import Chart, Palette, Translate, base_figure, duration
from charts.labels import escape
from charts.series import DASHES, SYMBOLS
from inference.errors import listed, sentences
from inference.measured import Fit, Line, Place, Sweep, fit

CURVE = 100  # points of a fitted curve


def place_text(place: Place, t: Translate) -> str:
    """The machine, the model and its type, for a sentence."""
    return listed((place.machine, place.model, place.dtype), t)


def prefill_chart(sweep: Sweep, *, palette: Palette, t: Translate) -> Chart:
    """Prefill time against prompt length, with the linear and the quadratic part of the fit."""
    line = sweep.lines[0]
    found = fit(line.x, line.median_s)
    figure = _figure(palette, t("prompt tokens"))
    curve = np.linspace(line.x[0], line.x[-1], CURVE)
    fixed, linear, quadratic = found.parts(curve)
    _curve(figure, curve, fixed + linear + quadratic, t("fit"), palette.muted, "solid")
    _curve(figure, curve, linear, t("linear part"), palette.categorical[1], "dash")
    _curve(figure, curve, quadratic, t("quadratic part"), palette.categorical[2], "dot")
    _measured(figure, line, t("measured"), 0, palette, "markers")
    table = _table({"": line}, t("prompt tokens"), t)
    whole = found.parts(line.x)
    for name, part in ((t("linear part (ms)"), whole[1]), (t("quadratic part (ms)"), whole[2])):
        table[name] = (part * 1e3).round(2)
    said = t("Measured on {place}: {n:,} tokens took {s}, {speed:,.0f} tok/s.").format(
        place=place_text(sweep.place, t),
        n=int(line.x[-1]),
        s=duration(line.median_s[-1]),
        speed=line.x[-1] / line.median_s[-1],
    )
    return Chart(figure, table, sentences([said, _fitted(found, whole, t)], t), t("Prefill time"))


def decode_chart(sweep: Sweep, *, palette: Palette, t: Translate) -> Chart:
    """Time of one decode step against the context's length, with the cache and, if measured, without."""
    names = {"cached": t("with the cache"), "uncached": t("without")}
    lines = {names[line.name]: line for line in sweep.lines}
    figure = _figure(palette, t("positions in the context"))
    for at, (name, line) in enumerate(lines.items()):
        _measured(figure, line, name, at, palette, "lines+markers")
    if len(lines) > 1:
        _log_ticks(figure, sweep.lines)
    cached = sweep.lines[0]
    said = t("Measured on {place}: a step after {n:,} positions takes {s} with the cache.").format(
        place=place_text(sweep.place, t), n=int(cached.x[-1]), s=duration(cached.median_s[-1])
    )
    if len(sweep.lines) > 1:
        without = sweep.lines[1]
        longer = t("Without it, {s}: {ratio:.1f} × as long.").format(
            s=duration(without.median_s[-1]), ratio=without.median_s[-1] / cached.median_s[-1]
        )
        said = sentences([said, longer], t)
    return Chart(figure, _table(lines, t("positions in the context"), t), said, t("Decode step time"))


def chunk_chart(sweep: Sweep, *, palette: Palette, t: Translate) -> Chart:
    """Prefill time of one prompt against the size of the chunks that it is fed in; the largest is a single pass."""
    line = sweep.lines[0]
    figure = _figure(palette, t("tokens a chunk"))
    _measured(figure, line, t("measured"), 0, palette, "lines+markers")
    figure.update_xaxes(type="log", tickvals=line.x, ticktext=[f"{x:,}" for x in line.x], range=None)
    figure.update_layout(showlegend=False)
    table = _table({"": line}, t("tokens a chunk"), t)
    table.insert(1, t("passes"), -(-sweep.fixed // line.x))
    best = int(np.argmin(line.median_s))
    said = t(
        "Measured on {place}: {n:,} tokens take {whole} in one pass and {small} in chunks of {size:,}; fastest are "
        "chunks of {best:,}."
    ).format(
        place=place_text(sweep.place, t), n=sweep.fixed, whole=duration(line.median_s[-1]),
        small=duration(line.median_s[0]), size=int(line.x[0]), best=int(line.x[best]),
    )  # fmt: skip
    return Chart(figure, table, said, t("Chunked prefill"))


def batch_chart(sweep: Sweep, *, palette: Palette, t: Translate) -> Chart:
    """Tokens a second of all sequences together, above; and what each of them waits for its token, below."""
    line = sweep.lines[0]
    median, (fastest, slowest) = line.median_s, line.spread_s
    figure = _figure(palette, t("sequences at once"))
    rates = Line("rate", line.x, line.x / line.seconds)
    _measured(figure, rates, t("tok/s, all together"), 0, palette, "lines+markers", factor=1)
    _measured(figure, line, t("TPOT of each (ms)"), 1, palette, "lines+markers")
    figure.data[0].hovertemplate = "%{x:,d} · %{y:,.1f} tok/s<extra></extra>"
    figure.data[1].yaxis = "y2"
    below = figure.layout.yaxis.to_plotly_json() | {"domain": [0, 0.42]}
    figure.update_layout(yaxis2=below)
    figure.update_yaxes(domain=[0.54, 1], title_text="tok/s", selector=0)
    figure.update_xaxes(anchor="y2", tickvals=line.x, ticktext=[str(x) for x in line.x])
    table = pd.DataFrame({t("sequences at once"): line.x})
    table[t("tok/s, all together")] = (line.x / median).round(1)
    for name, seconds in ((t("median (ms)"), median), (t("fastest (ms)"), fastest), (t("slowest (ms)"), slowest)):
        table[name] = (seconds * 1e3).round(2)
    said = t(
        "Measured on {place}: {n} sequences at once make {many:,.1f} tok/s together and one alone {one:,.1f}; each "
        "waits {slow} for its token instead of {quick}."
    ).format(
        place=place_text(sweep.place, t), n=int(line.x[-1]), many=line.x[-1] / median[-1], one=line.x[0] / median[0],
        slow=duration(median[-1]), quick=duration(median[0]),
    )  # fmt: skip
    return Chart(figure, table, said, t("Batch size"))


CHARTS: dict[str, Callable[..., Chart]] = {
    "prefill": prefill_chart,
    "decode": decode_chart,
    "chunked": chunk_chart,
    "batch": batch_chart,
}


def _fitted(found: Fit, whole: NDArray[np.float64], t: Translate) -> str:
    """What the fit says of the longest prompt."""
    if not found.linear or not found.quadratic:
        return t("A linear and a quadratic part cannot be told apart here: try longer prompts or more rounds.")
    said = t("Fitted: {linear} a token and {quadratic} a token squared, which is {share:.0%} of the longest.")
    share = whole[2, -1] / whole[:, -1].sum()
    return said.format(linear=_small(found.linear), quadratic=_small(found.quadratic), share=share)


def _log_ticks(figure: go.Figure, lines: Iterable[Line]) -> None:
    """A logarithmic axis of milliseconds with a tick at 1, 2 and 5 of each power of ten that the times reach."""
    low = min(float(line.spread_s[0].min()) for line in lines) * 1e3
    high = max(float(line.spread_s[1].max()) for line in lines) * 1e3
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    ticks = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    shown = [tick for tick in ticks if low / 2 <= tick <= high * 2]
    figure.update_yaxes(
        type="log",
        rangemode="normal",
        range=[np.log10(low / 1.4), np.log10(high * 1.4)],
        tickvals=shown,
        ticktext=[f"{tick:,g}" for tick in shown],
    )


def _figure(palette: Palette, x: str) -> go.Figure:
    figure = base_figure(palette)
    figure.update_xaxes(title_text=x, nticks=7, tickformat=",d", showgrid=False, rangemode="tozero")
    figure.update_yaxes(title_text="ms", nticks=6, rangemode="tozero")
    return figure


def _measured(
    figure: go.Figure, line: Line, name: str, at: int, palette: Palette, mode: str, factor: float = 1e3
) -> None:
    """Medians with bars from the fastest to the slowest round; `factor` makes milliseconds of seconds."""
    median, (fastest, slowest) = line.median_s, line.spread_s
    figure.add_scatter(
        name=name,
        x=line.x.astype(np.float32),
        y=(median * factor).astype(np.float32),
        mode=mode,
        line={"color": palette.categorical[at * 2], "width": 2, "dash": DASHES[at]},
        marker={"symbol": SYMBOLS[at], "size": 9, "color": palette.categorical[at * 2]},
        error_y={
            "array": ((slowest - median) * factor).astype(np.float32),
            "arrayminus": ((median - fastest) * factor).astype(np.float32),
            "symmetric": False,
            "thickness": 1.5,
            "width": 4,
        },
        hovertemplate=f"{escape(name)}<br>%{{x:,d}} · %{{y:,.2f}} ms<extra></extra>",
    )


def _curve(figure: go.Figure, x: np.ndarray, seconds: np.ndarray, name: str, colour: str, dash: str) -> None:
    figure.add_scatter(
        name=name,
        x=x.astype(np.float32),
        y=(seconds * 1e3).astype(np.float32),
        mode="lines",
        line={"color": colour, "width": 2, "dash": dash},
        hoverinfo="skip",
    )


def _table(lines: dict[str, Line], x: str, t: Translate) -> pd.DataFrame:
    first = next(iter(lines.values()))
    table = pd.DataFrame({x: first.x})
    for name, line in lines.items():
        before = f"{name}: " if name else ""
        fastest, slowest = line.spread_s
        table[before + t("median (ms)")] = (line.median_s * 1e3).round(2)
        table[before + t("fastest (ms)")] = (fastest * 1e3).round(2)
        table[before + t("slowest (ms)")] = (slowest * 1e3).round(2)
    return table


def _small(seconds: float) -> str:
    """Seconds a token, which may be far below a microsecond."""
    for factor, unit in ((1e3, "ms"), (1e6, "µs"), (1e9, "ns")):
        if seconds * factor >= 0.1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e12:.3g} ps"
