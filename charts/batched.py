"""A real batch: what it was fed, row by row, and what its passes took against each request alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from charts.base import HEIGHT, Chart, Palette, Translate, base_figure, duration
from charts.labels import escape, shorten
from charts.series import Series, line_figure
from charts.sweep_times import place_text
from inference.errors import N_, sentences
from inference.step_costs import StepCosts

if TYPE_CHECKING:
    from inference.batched import BatchedRow, BatchedRun

MOST_COLUMNS = 160  # the newest positions; the table counts all
PADDING, PROMPT, NEW, ENDED = range(4)
NAMES = (N_("padding"), N_("prompt"), N_("new token"), N_("ended, still fed"))
SIGNS = ("·", "", "", "×")


def batch_grid(found: BatchedRun, *, palette: Palette, t: Translate) -> Chart:
    """One row a request, one column a position of the batch: padding, prompt, new tokens, and places after the end."""
    n_fed = found.length + len(found.seconds) - 1
    first = max(0, n_fed - MOST_COLUMNS)
    states, texts = _cells(found, n_fed)
    figure = _grid(states[:, first:], texts[:, first:], first, palette, t)
    wasted = int(np.isin(states, (PADDING, ENDED)).sum())
    said = t(
        "{n} prompts were padded on the left to {length} positions; {wasted} of all {fed} positions fed were padding "
        "or rows that had ended, {share:.0%}."
    ).format(n=len(found.rows), length=found.length, wasted=wasted, fed=states.size, share=wasted / states.size)
    if first:
        said = sentences([said, t("The newest {n} are drawn.").format(n=MOST_COLUMNS)], t)
    table = pd.DataFrame(
        {
            t("row"): np.arange(1, len(found.rows) + 1),
            t("padding"): (states == PADDING).sum(axis=1),
            t("prompt tokens"): (states == PROMPT).sum(axis=1),
            t("new tokens"): [len(row.tokens) for row in found.rows],
            t("fed after the end"): (states == ENDED).sum(axis=1),
            t("largest logit difference"): [f"{row.difference:.1e}" for row in found.rows],
        }
    )
    return Chart(figure, table, said, t("The batch as it was fed"))


def _cells(found: BatchedRun, n_fed: int) -> tuple[np.ndarray, np.ndarray]:
    """State and token text of every position that was fed; the last token of a row that ended last was not."""
    states = np.full((len(found.rows), n_fed), PADDING, dtype=np.uint8)
    texts = np.full(states.shape, "", dtype=object)
    for at, row in enumerate(found.rows):
        states[at, found.length - len(row.prompt) :] = ENDED
        states[at, found.length - len(row.prompt) : found.length] = PROMPT
        fed = row.tokens[:-1]
        states[at, found.length : found.length + len(fed)] = NEW
        start = found.length - len(row.prompt)
        shown = [escape(shorten(token.display)) for token in (*row.prompt, *fed)]
        texts[at, start : start + len(shown)] = shown
    return states, texts


def _grid(states: np.ndarray, texts: np.ndarray, first: int, palette: Palette, t: Translate) -> go.Figure:
    figure = base_figure(palette)
    light = palette.mode == "light"
    colours = ("#e3e1dc", "#b1a8f7", "#3d2fa5", "#c96a06") if light else ("#2b2f3d", "#4b4299", "#ddd6fe", "#fbbf24")
    names = [t(NAMES[state]) for state in range(len(NAMES))]
    labels = np.array([[names[state] for state in row] for row in states], dtype=object)
    x = np.arange(first, first + states.shape[1])
    figure.add_heatmap(
        z=states,
        x=x,
        y=np.arange(1, len(states) + 1),
        zmin=-0.5,
        zmax=3.5,
        colorscale=[((state + edge) / 4, colour) for state, colour in enumerate(colours) for edge in (0, 1)],
        showscale=False,
        xgap=1,
        ygap=4,
        customdata=np.stack([labels, texts], axis=-1),
        hovertemplate=t("position {at}: {state}").format(at="%{x}", state="%{customdata[0]} %{customdata[1]}")
        + "<extra></extra>",
        text=np.array([[SIGNS[state] for state in row] for row in states], dtype=object),
        texttemplate="%{text}",
    )
    for name, sign, colour in zip(names, SIGNS, colours, strict=True):
        marker = {"symbol": "square", "size": 12, "color": colour}
        shown = f"{name} {sign}".strip()
        figure.add_scatter(x=[None], y=[None], mode="markers", marker=marker, name=shown, hoverinfo="skip")
    figure.update_xaxes(title_text=t("position in the batch"), tickformat="d", nticks=12, showgrid=False)
    figure.update_yaxes(title_text=t("row"), dtick=1, autorange="reversed", showgrid=False)
    height = max(HEIGHT, 130 + 30 * len(states))
    figure.update_layout(height=height, legend={"itemclick": False, "itemdoubleclick": False})
    return figure


def batch_times(found: BatchedRun, costs: StepCosts | None = None, *, palette: Palette, t: Translate) -> Chart:
    """Milliseconds of every decode step of the batch, and of its rows' steps alone, added up.

    Args:
        costs: those of the simulation, to say what it would have expected.
    """
    together, apart = np.array(found.seconds), _added_up(found.rows)
    shown = [Series(t("in the batch"), together * 1e3), Series(t("each alone, added up"), apart * 1e3)]
    table = pd.DataFrame({t("step"): np.arange(len(together))} | {one.name: one.values.round(2) for one in shown})
    steps = [Series(one.name, np.where(np.arange(len(together)) > 0, one.values, np.nan)) for one in shown]
    figure = line_figure(steps, "ms", palette=palette, t=t)
    n = sum(len(row.tokens) for row in found.rows)
    said = t(
        "Measured on {place}: the prefill took {prefill} instead of {alone}, and the whole batch {whole} instead of "
        "{added}: {speed:,.1f} tok/s instead of {slow:,.1f}."
    ).format(
        place=place_text(found.place, t), prefill=duration(together[0]), alone=duration(apart[0]),
        whole=duration(together.sum()), added=duration(apart.sum()), speed=n / together.sum(), slow=n / apart.sum(),
    )  # fmt: skip
    return Chart(figure, table, sentences([said, _expected(found, costs, t)], t), t("Decode steps of the batch"))


def verdict(found: BatchedRun, t: Translate) -> str:
    """Whether every row chose what it chose alone; of those that did not, where and by how little."""
    parted = [(number, row) for number, row in enumerate(found.rows, start=1) if row.parting]
    largest = max(row.difference for row in found.rows)
    if not parted:
        said = t(
            "Each of the {n} rows chose the same tokens in the batch as alone; logits differ by {difference} at most: "
            "sums are added up in another order."
        )
        return said.format(n=len(found.rows), difference=f"{largest:.1e}")
    parts = [
        t(
            "Row {n} parts from its run alone at step {step}: there the two tokens lie {gap} logits apart, and batch "
            "and run alone differ by up to {difference}."
        ).format(
            n=number, step=row.parting.step, gap=f"{row.parting.gap:.2g}", difference=f"{row.parting.difference:.2g}"
        )
        for number, row in parted
        if row.parting
    ]
    if len(parted) < len(found.rows):
        parts.append(t("All other rows chose the same tokens both ways."))
    return sentences(parts, t)


def _added_up(rows: tuple[BatchedRow, ...]) -> np.ndarray:
    """[N] seconds of all rows' passes alone, by step."""
    longest = max(len(row.tokens) for row in rows)
    added: np.ndarray = np.sum(
        [np.pad(row.alone_s[:longest], (0, max(0, longest - len(row.alone_s)))) for row in rows], axis=0
    )
    return added


def _expected(found: BatchedRun, costs: StepCosts | None, t: Translate) -> str:
    if costs is None or costs.place != found.place or len(found.rows) > costs.largest_batch:
        return ""
    n = len(found.rows)
    steps = [costs.decode_s([found.length + k] * n) for k in range(len(found.seconds) - 1)]
    said = t("The costs of the simulation would have made it {prefill} and {whole}.")
    prefill = costs.prefill_s(found.length, n)
    return said.format(prefill=duration(prefill), whole=duration(prefill + sum(steps)))
