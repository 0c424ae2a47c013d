"""Weights, KV cache and activations stacked against the memory of a GPU, as asked and at the two limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from charts.base import Chart, Palette, Translate, base_figure, size, size_unit
from charts.labels import escape
from inference.kv_fit import Need

MOST_SCENARIOS = 3  # the place of a stack is the same with fewer of them
PATTERNS = ("", "/", ".")  # so that the parts can be told apart without their colours


@dataclass(frozen=True, slots=True)
class Scenario:
    """One stack: its translated name, how many sequences of how many tokens, and what they take of one GPU."""

    name: str
    tokens: int
    batch: int
    need: Need


def gpu_fit(
    scenarios: Sequence[Scenario], memory: int, usable: int, gpu: str, *, palette: Palette, t: Translate
) -> Chart:
    """A stack a scenario, a line at the GPU's memory and one at what is left beside the reserve.

    Args:
        scenarios: what is asked first.
        memory, usable: bytes of one GPU, without and with the reserve taken away.
    """
    figure = _figure(scenarios, memory, usable, palette, t)
    table = pd.DataFrame(
        {
            t("scenario"): [s.name for s in scenarios],
            t("tokens"): [s.tokens for s in scenarios],
            t("sequences"): [s.batch for s in scenarios],
            t("model weights"): [s.need.weights for s in scenarios],
            t("KV cache"): [s.need.kv for s in scenarios],
            t("activations"): [s.need.activations for s in scenarios],
            t("total"): [s.need.total for s in scenarios],
            t("memory less reserve"): usable,
        }
    )
    return Chart(figure, table, _describe(scenarios[0], usable, gpu, t), t("Does it fit?"))


def _figure(scenarios: Sequence[Scenario], memory: int, usable: int, palette: Palette, t: Translate) -> go.Figure:
    highest = max(memory, *(s.need.total for s in scenarios))
    unit, factor = size_unit(highest)
    places = list(range(len(scenarios)))
    figure = base_figure(palette, barmode="stack")
    parts = (("weights", t("model weights")), ("kv", t("KV cache")), ("activations", t("activations")))
    for (field, name), colour, pattern in zip(parts, palette.categorical, PATTERNS, strict=False):
        held = [getattr(s.need, field) for s in scenarios]
        figure.add_bar(
            name=name,
            orientation="h",
            width=0.34,
            y=places,
            x=np.array([n / factor for n in held], dtype=np.float32),
            marker={"color": colour, "pattern": _pattern(pattern, palette)},
            customdata=[size(n) for n in held],
            hovertemplate=f"{name} %{{customdata}}<extra></extra>",
        )
    _limits(figure, ((memory / factor, "solid"), (usable / factor, "dash")), palette)
    for at, s in enumerate(scenarios):
        figure.add_annotation(
            x=0,
            y=at,
            text=escape(s.name),
            showarrow=False,
            xanchor="left",
            yanchor="bottom",
            yshift=15,
            font={"color": palette.muted, "size": 12},
        )
    figure.update_yaxes(visible=False, range=[MOST_SCENARIOS - 0.6, -0.7])
    figure.update_xaxes(title_text=unit, range=[0, highest / factor * 1.04], nticks=6)
    figure.update_layout(margin={"t": 40}, legend={"traceorder": "normal"})
    return figure


def _pattern(shape: str, palette: Palette) -> dict[str, object]:
    return {"shape": shape, "fillmode": "overlay", "fgcolor": palette.background, "fgopacity": 0.45, "size": 7}


def _limits(figure: go.Figure, limits: Sequence[tuple[float, str]], palette: Palette) -> None:
    for x, dash in limits:
        line = {"color": palette.text, "width": 1.5, "dash": dash}
        figure.add_shape(type="line", x0=x, x1=x, y0=0, y1=1, yref="y domain", line=line)


def _describe(asked: Scenario, usable: int, gpu: str, t: Translate) -> str:
    values = {"gpu": gpu, "total": size(asked.need.total), "usable": size(usable)}
    if asked.need.total <= usable:
        text = t("{gpu}: {total} of the {usable} beside the reserve (dashed line); it fits, {free} are free.")
        return text.format(free=size(usable - asked.need.total), **values)
    text = t("{gpu}: {total} do not fit into the {usable} beside the reserve (dashed line); {over} too much.")
    return text.format(over=size(asked.need.total - usable), **values)
