"""The roofline of the device that was measured, and the speed that published figures allow on others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from charts.base import Chart, Palette, Translate, base_figure, duration
from charts.labels import escape
from charts.series import SYMBOLS
from charts.sweep_times import place_text
from inference.errors import sentences

if TYPE_CHECKING:
    from inference.device_probe import Reached, Roof

GIGA = 1e9
HEIGHT = 520
ROW = 24  # px a GPU


def roofline(roof: Roof, *, palette: Palette, t: Translate) -> Chart:
    """FLOPs a second against FLOPs a byte, both logarithmic: the measured limit, and the passes measured below it."""
    device, names = roof.device, {"prefill": t("prefill"), "decode": t("decode")}
    assert device.ridge is not None  # a probe measures both
    at = np.array([p.load.intensity for p in roof.passes])
    x = np.geomspace(min(at.min(), device.ridge) / 4, max(at.max(), device.ridge) * 4, 100)
    figure = base_figure(palette)
    figure.add_scatter(
        name=t("limit, measured"),
        x=x.astype(np.float32),
        y=np.array([device.ceiling(i) / GIGA for i in x], dtype=np.float32),
        mode="lines",
        line={"color": palette.text, "width": 2},
        hoverinfo="skip",
    )
    for place, one in enumerate(roof.passes):
        _pass(figure, one, device.ceiling(one.load.intensity), names[one.phase], place, palette)
    figure.update_layout(height=HEIGHT)
    figure.update_xaxes(type="log", title_text=t("FLOPs a byte"), dtick=1)
    figure.update_yaxes(type="log", title_text="GFLOP/s", dtick=1)
    return Chart(figure, _passes(roof, names, t), _said(roof, names, t), t("Roofline of this machine"))


def _pass(figure: go.Figure, one: Reached, ceiling: float, name: str, place: int, palette: Palette) -> None:
    """A measured pass as a mark, and a dotted line up to its limit."""
    colour, x, reached = palette.categorical[place], one.load.intensity, one.load.flops / one.seconds
    figure.add_scatter(
        x=np.array([x, x], dtype=np.float32),
        y=np.array([reached, ceiling], dtype=np.float32) / GIGA,
        mode="lines",
        line={"color": colour, "width": 1.5, "dash": "dot"},
        showlegend=False,
        hoverinfo="skip",
    )
    figure.add_scatter(
        name=name,
        x=np.array([x], dtype=np.float32),
        y=np.array([reached / GIGA], dtype=np.float32),
        mode="markers",
        marker={"size": 13, "symbol": SYMBOLS[place], "color": colour},
        hovertemplate=f"{escape(name)}<br>%{{y:,.1f}} GFLOP/s<extra></extra>",
    )


def _passes(roof: Roof, names: dict[str, str], t: Translate) -> pd.DataFrame:
    passes = roof.passes
    return pd.DataFrame(
        {
            t("pass"): [names[p.phase] for p in passes],
            t("positions"): [p.tokens for p in passes],
            "GFLOP": [round(p.load.flops / GIGA, 3) for p in passes],
            t("GB read"): [round(p.load.bytes / GIGA, 3) for p in passes],
            t("FLOPs a byte"): [round(p.load.intensity, 2) for p in passes],
            t("limit (ms)"): [round(p.limit_s * 1e3, 2) for p in passes],
            t("measured (ms)"): [round(p.seconds * 1e3, 2) for p in passes],
            t("share of the limit"): [f"{p.share:.0%}" for p in passes],
        }
    )


def _said(roof: Roof, names: dict[str, str], t: Translate) -> str:
    device = roof.device
    assert device.flops is not None
    said = [
        t("Measured on {place}: {read:.1f} GB/s read, {flops:,.0f} GFLOP/s; they meet at {ridge:.1f} FLOPs a byte.")
        .format(place=place_text(roof.place, t), read=device.bandwidth / GIGA, flops=device.flops / GIGA,
                ridge=device.ridge)
    ]  # fmt: skip
    for one in roof.passes:
        reading = one.load.bytes / device.bandwidth > one.load.flops / device.flops
        text = (
            t("{pass_} is bound by reading: {s}, {share:.0%} of the limit.")
            if reading
            else t("{pass_} is bound by computing: {s}, {share:.0%} of the limit.")
        )
        name = names[one.phase]
        said.append(text.format(pass_=name[:1].upper() + name[1:], s=duration(one.seconds), share=one.share))
    return sentences(said, t)


@dataclass(frozen=True, slots=True)
class Expected:
    """What published figures of a device allow.

    Attributes:
        tok_s: decode tokens a second of one sequence: bandwidth ÷ (weights + KV read).
        crossover: batch from which on computing is the limit; `None` where it never is, or throughput is not known.
        largest: the most sequences that fit; `None` where the memory is not known.
    """

    name: str
    tok_s: float
    crossover: float | None
    largest: int | None


def expected_chart(found: Sequence[Expected], model: str, context: int, *, palette: Palette, t: Translate) -> Chart:
    """Computed decode speed of one sequence on each device, fastest first; hollow bars do not hold the model."""
    rows = sorted(found, key=lambda one: -one.tok_s)
    held = [one.largest is None or one.largest > 0 for one in rows]
    figure = base_figure(palette, showlegend=False, bargap=0.3)
    figure.update_layout(height=ROW * len(rows) + 60, margin={"t": 8})
    figure.add_bar(
        orientation="h",
        y=np.arange(len(rows)),
        x=np.array([one.tok_s for one in rows], dtype=np.float32),
        marker={
            "color": [palette.categorical[0] if fits else "rgba(0,0,0,0)" for fits in held],
            "line": {"color": palette.categorical[0], "width": 1.5},
        },
        text=[f"{one.tok_s:,.0f}" if fits else t("does not fit") for one, fits in zip(rows, held, strict=True)],
        textposition="outside",
        cliponaxis=False,
        hovertemplate="%{x:,.1f} tok/s<extra></extra>",
    )
    figure.update_yaxes(
        tickvals=np.arange(len(rows)), ticktext=[escape(one.name) for one in rows], autorange="reversed",
        showgrid=False, fixedrange=True,
    )  # fmt: skip
    figure.update_xaxes(title_text=t("tok/s, at most"), nticks=6, range=[0, rows[0].tok_s * 1.25])
    table = pd.DataFrame(
        {
            t("device"): [one.name for one in rows],
            t("decode tok/s, at most"): [round(one.tok_s, 1) for one in rows],
            t("crossover batch"): [None if one.crossover is None else int(np.ceil(one.crossover)) for one in rows],
            t("sequences that fit"): [one.largest for one in rows],
        }
    )
    best = next((one for one, fits in zip(rows, held, strict=True) if fits), None)
    said = t("Computed, not measured: bandwidth ÷ (weights + KV read) for {model} after {n:,} positions.")
    text = said.format(model=model, n=context)
    if best is not None:
        most = t("At most {speed:,.0f} tok/s a sequence on {name}.").format(speed=best.tok_s, name=best.name)
        text = sentences([text, most], t)
    return Chart(figure, table, text, t("What other devices allow"))
