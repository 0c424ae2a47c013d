"""A run on its own clock: when it waited, tokenised, ran each pass, chose and recorded, a row for each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from charts.base import Chart, Palette, Translate, base_figure, duration
from inference.errors import sentences
from inference.metrics import taken_over
from inference.trace import Trace

Spans = NDArray[np.float64]  # [n, 2] seconds: from, to
BAR = 18  # px
LEAST_S = 0.003  # of the whole width, so that a part that took next to no time is still seen


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of work and when it was done."""

    name: str
    spans: Spans

    @property
    def seconds(self) -> float:
        """In all."""
        return float((self.spans[:, 1] - self.spans[:, 0]).sum())


def parts(trace: Trace, waited_s: float | None, t: Translate) -> list[Part]:
    """The run's parts in the order of a step; times before 0 lie before the request was taken up.

    Steps that a branch took over from another run are left out: their times are that run's.
    """
    first = taken_over(trace)
    steps = trace.steps[first:]
    at = np.array([step.timing.at_s for step in steps])
    chose = np.array([step.timing.sampling_s for step in steps])
    wrote = np.array([step.timing.recording_s for step in steps])
    decode = [_passes(step.timing.passes_s, at[i] - chose[i] - step.timing.forward_s) for i, step in enumerate(steps)]
    prefill = [decode.pop(0)] if steps and not first else []
    found = [
        Part(t("tokenise"), np.array([[0.0, trace.tokenise_s]])),
        Part(t("prefill"), _joined(prefill)),
        Part(t("decode"), _joined(decode)),
        Part(t("choose"), np.stack([at - chose, at], axis=1)),
        Part(t("record"), np.stack([at, at + wrote], axis=1)),
    ]
    if waited_s is not None:
        found.insert(0, Part(t("queue and loading"), np.array([[-waited_s, 0.0]])))
    return [part for part in found if len(part.spans)]


def timeline(trace: Trace, waited_s: float | None = None, *, palette: Palette, t: Translate) -> Chart:
    """Every pass, choice and recording of a run as bars on one time axis; times are as recorded.

    Args:
        waited_s: seconds that the request waited for its model; `None` where that is not known.
    """
    shown = parts(trace, waited_s, t)
    table = pd.DataFrame(
        {
            t("part"): [part.name for part in shown],
            t("times"): [len(part.spans) for part in shown],
            t("from (s)"): [round(float(part.spans[0, 0]), 4) for part in shown],
            t("to (s)"): [round(float(part.spans[-1, 1]), 4) for part in shown],
            t("in all (ms)"): [round(part.seconds * 1e3, 2) for part in shown],
        }
    )
    return Chart(_figure(trace, shown, palette, t), table, _said(trace, shown, waited_s, t), t("Timeline"))


def _figure(trace: Trace, shown: list[Part], palette: Palette, t: Translate) -> go.Figure:
    figure = base_figure(palette, showlegend=False)
    start, end = min(p.spans[0, 0] for p in shown), max(p.spans[-1, 1] for p in shown)
    least = (end - start) * LEAST_S
    for at, part in enumerate(shown):
        begins, ends = part.spans[:, 0], np.maximum(part.spans[:, 1], part.spans[:, 0] + least)
        took = part.spans[:, 1] - part.spans[:, 0]
        figure.add_scatter(
            x=np.stack([begins, ends, np.full(len(begins), np.nan)], axis=1).ravel().astype(np.float32),
            y=np.full(3 * len(begins), at, dtype=np.float32),
            text=np.repeat(np.array([duration(s) for s in took], dtype=object), 3),
            mode="lines",
            line={"color": palette.categorical[at % len(palette.categorical)], "width": BAR},
            connectgaps=False,
            hovertemplate=f"{part.name}<br>%{{text}}<extra></extra>",
        )
    labels = [f"{part.name} · {duration(part.seconds)}" for part in shown]
    ticks = np.arange(len(shown))
    figure.update_yaxes(
        tickvals=ticks, ticktext=labels, range=[len(shown) - 0.4, -0.9], showgrid=False, fixedrange=True
    )
    margin = (end - start) * 0.02
    figure.update_xaxes(title_text=t("seconds since the request"), range=[start - margin, end + margin], nticks=8)
    _marks(figure, trace, palette, t)
    return figure


def _marks(figure: go.Figure, trace: Trace, palette: Palette, t: Translate) -> None:
    at_s = trace.timing.at_s[taken_over(trace) :]
    marks = [(at_s[0], t("first token"), "left"), (at_s[-1], t("last token"), "right")]
    for x, name, side in marks[: len(at_s)]:
        line = {"color": palette.text, "width": 1.5, "dash": "dot"}
        figure.add_shape(type="line", x0=x, x1=x, y0=0, y1=1, yref="y domain", line=line)
        figure.add_annotation(
            x=x, y=1, yref="y domain", yanchor="top", xanchor=side, text=f"{name} · {duration(x)}", showarrow=False,
            font={"color": palette.muted, "size": 12}, xshift=4 if side == "left" else -4,
        )  # fmt: skip


def _said(trace: Trace, shown: list[Part], waited_s: float | None, t: Translate) -> str:
    at_s = trace.timing.at_s[taken_over(trace) :]
    whole = sum(part.seconds for part in shown if part.spans[0, 0] >= 0)
    largest = max((part for part in shown if part.spans[0, 0] >= 0), key=lambda part: part.seconds)
    said = [
        t("As recorded: {n} tokens in {whole}; {part} took most of it, {share:.0%}.").format(
            n=len(at_s), whole=duration(float(at_s[-1])), part=largest.name, share=largest.seconds / whole
        )
    ]
    if waited_s is None:
        said.append(t("Whether the request waited in a queue is not known for this run."))
    return sentences(said, t)


def _passes(seconds: tuple[float, ...], start: float) -> Spans:
    """The passes of one step, one after the other."""
    ends = start + np.cumsum(seconds)
    return np.stack([ends - np.array(seconds), ends], axis=1)


def _joined(spans: list[Spans]) -> Spans:
    return np.concatenate(spans) if spans else np.empty((0, 2))
