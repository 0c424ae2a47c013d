"""The logit lens: what each layer would say, how the chosen token climbs, and in which layer each step is decided."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from charts.base import MONO, Chart, Palette, Translate, base_figure, check_step, empty_chart, percent, translucent
from charts.labels import escape, in_context, pending, shorten
from inference.lens import LensRecord
from inference.trace import Trace

N_RANKS = 6
LONGEST_CELL = 11
ROW_HEIGHT = 19
TURNS = {"light": 0.5, "dark": 0.62}  # the share from which a cell is nearer to the text's colour than to the page's
MOST_NAMED = 48  # so many layers or steps are named one by one


def lens_map(trace: Trace, step: int, *, palette: Palette, t: Translate, n: int = N_RANKS) -> Chart:
    """The `n` likeliest tokens of each layer, one row a layer with the last one on top; the chosen token is marked.

    Raises:
        TraceError: the run has no such step.
    """
    title = t("What each layer would say")
    lens = _lens(trace, step)
    if lens is None:
        return _missing(title, palette, t)
    words = _words(trace, step, lens)
    figure = _map_figure(trace, step, lens, words, palette, t, min(n, lens.ids.shape[1]))
    return Chart(figure, _map_table(lens, words, t), _describe_map(trace, step, lens, words, t), title)


def lens_climb(trace: Trace, step: int, *, palette: Palette, t: Translate) -> Chart:
    """The rank of the chosen token in each layer, on a logarithmic axis with rank 1 on top.

    Raises:
        TraceError: the run has no such step.
    """
    title = t("How the chosen token climbs")
    lens = _lens(trace, step)
    if lens is None:
        return _missing(title, palette, t)
    layers = np.arange(lens.n_layers)
    table = pd.DataFrame(
        {t("layer"): layers, t("rank"): lens.chosen_ranks, t("probability"): lens.chosen_probs.astype(np.float64)}
    )
    return Chart(_climb_figure(lens, palette, t), table, _describe_climb(trace, step, lens, t), title)


def lens_run(trace: Trace, step: int, *, palette: Palette, t: Translate) -> Chart:
    """The rank of the chosen token by layer for every step of the run; the current step is framed.

    Raises:
        TraceError: the run has no such step.
    """
    check_step(trace, step)
    title = t("Where each token is decided")
    records = [(s.index, s.lens) for s in trace.steps if s.lens is not None]
    if not records:
        return _missing(title, palette, t)
    steps = np.array([index for index, _ in records])
    ranks = np.stack([lens.chosen_ranks for _, lens in records])
    leads = np.array([lens.lead for _, lens in records])
    names = [_name(trace, index) for index in steps.tolist()]
    table = pd.DataFrame({t("step"): steps, t("chosen token"): names, t("the last layer's choice leads from"): leads})
    said = t(
        "The last layer's highest token leads from layer {median} on in the median step, and from {first} at best."
    )
    described = said.format(median=int(np.median(leads)), first=int(leads.min()))
    return Chart(_run_figure(steps, ranks, names, step, palette, t), table, described, title)


def _lens(trace: Trace, step: int) -> LensRecord | None:
    check_step(trace, step)
    return trace.steps[step].lens


def _missing(title: str, palette: Palette, t: Translate) -> Chart:
    return empty_chart(title, t("The logit lens of this step is not in the record."), palette)


def _name(trace: Trace, step: int) -> str:
    """The chosen token of a step, a piece of a character with what it completes."""
    return in_context(
        trace.vocabulary.token(trace.steps[step].token_id), pending(trace.tokens[: trace.n_prompt + step])
    )


def _words(trace: Trace, step: int, lens: LensRecord) -> list[list[str]]:
    """L lists of n readable texts, of the record's tokens."""
    before = pending(trace.tokens[: trace.n_prompt + step])
    known = {int(i): in_context(trace.vocabulary.token(int(i)), before) for i in np.unique(lens.ids)}
    return [[known[int(i)] for i in row] for row in lens.ids]


def _map_figure(
    trace: Trace, step: int, lens: LensRecord, words: list[list[str]], palette: Palette, t: Translate, n: int
) -> go.Figure:
    figure = base_figure(palette)
    figure.add_heatmap(
        z=lens.probs[:, :n],
        x=np.arange(1, n + 1),
        y=np.arange(lens.n_layers),
        zmin=0,
        zmax=1,
        colorscale=_scale(palette),
        colorbar=_bar(palette, t("probability"), tickformat=".0%", tickvals=[0, 0.25, 0.5, 0.75, 1]),
        xgap=1,
        ygap=1,
        hovertext=_cell_hovers(lens, words, n, t),
        hoverinfo="text",
    )
    _write_tokens(figure, lens, words, trace.steps[step].token_id, n, palette)
    _frame_lead(figure, lens, palette)
    ranks, layers = [0.5, n + 0.5], [-0.5, lens.n_layers - 0.5]
    figure.update_xaxes(title_text=t("rank"), tickvals=np.arange(1, n + 1), side="top", range=ranks)
    figure.update_yaxes(title_text=t("layer"), range=layers, **_ticks(lens.n_layers))
    for axes in (figure.update_xaxes, figure.update_yaxes):
        axes(showgrid=False, fixedrange=True)
    figure.update_layout(height=max(300, 90 + ROW_HEIGHT * lens.n_layers), margin={"t": 4})
    return figure


def _cell_hovers(lens: LensRecord, words: list[list[str]], n: int, t: Translate) -> list[list[str]]:
    text = t("layer {layer}, rank {rank}<br><b>{token}</b><br>id {id}<br>probability {share}")
    return [
        [
            text.format(layer=layer, rank=rank + 1, token=escape(row[rank]), id=ids[rank], share=percent(shares[rank]))
            for rank in range(n)
        ]
        for layer, (row, ids, shares) in enumerate(zip(words, lens.ids.tolist(), lens.probs.tolist(), strict=True))
    ]


def _write_tokens(
    figure: go.Figure, lens: LensRecord, words: list[list[str]], chosen: int, n: int, palette: Palette
) -> None:
    """The tokens in their cells, in the colour that can be read there; the chosen one bold and with a sign."""
    short = [escape(shorten(word, LONGEST_CELL)) for row in words for word in row[:n]]
    marked = (lens.ids[:, :n] == chosen).ravel()
    on_dark = lens.probs[:, :n].ravel() > TURNS[palette.mode]
    figure.add_scatter(
        x=np.tile(np.arange(1, n + 1), lens.n_layers),
        y=np.repeat(np.arange(lens.n_layers), n),
        mode="text",
        text=[f"<b>▸ {word}</b>" if hit else word for word, hit in zip(short, marked, strict=True)],
        textfont={"family": MONO, "size": 11, "color": np.where(on_dark, palette.background, palette.text)},
        hoverinfo="skip",
        showlegend=False,
    )


def _frame_lead(figure: go.Figure, lens: LensRecord, palette: Palette) -> None:
    """A frame around the layers in which the last layer's choice leads."""
    figure.add_shape(
        type="rect",
        x0=0.5,
        x1=1.5,
        y0=lens.lead - 0.5,
        y1=lens.n_layers - 0.5,
        line={"color": palette.categorical[2], "width": 2},
    )


def _climb_figure(lens: LensRecord, palette: Palette, t: Translate) -> go.Figure:
    figure = base_figure(palette)
    hover = t("layer {layer}<br>rank {rank}<br>probability {share}")
    figure.add_scatter(
        x=lens.chosen_ranks,
        y=np.arange(lens.n_layers),
        mode="lines+markers",
        line={"color": palette.categorical[0], "width": 2},
        marker={"size": 6, "color": palette.categorical[0]},
        hovertext=[
            hover.format(layer=layer, rank=f"{rank:,}", share=percent(float(share)))
            for layer, (rank, share) in enumerate(zip(lens.chosen_ranks, lens.chosen_probs, strict=True))
        ],
        hoverinfo="text",
        showlegend=False,
    )
    figure.add_hrect(
        y0=lens.lead - 0.5,
        y1=lens.n_layers - 0.5,
        fillcolor=translucent(palette.categorical[2], 0.14),
        line_width=0,
        layer="below",
    )
    highest = int(lens.chosen_ranks.max())
    ticks = [1, 3, 10, 30, 100] if highest <= 300 else [10**power for power in range(len(str(highest)) + 1)]
    figure.update_xaxes(
        title_text=t("rank"),
        type="log",
        side="top",
        tickvals=ticks,
        ticktext=[f"{rank:,}" for rank in ticks],
        range=[np.log10(max(highest, 3)) + 0.1, -0.1],
        fixedrange=True,
    )
    figure.update_yaxes(
        title_text=t("layer"), range=[-0.5, lens.n_layers - 0.5], fixedrange=True, **_ticks(lens.n_layers)
    )
    figure.update_layout(height=max(300, 90 + ROW_HEIGHT * lens.n_layers), margin={"t": 4})
    return figure


def _run_figure(
    steps: NDArray[np.int64], ranks: NDArray[np.int32], names: list[str], step: int, palette: Palette, t: Translate
) -> go.Figure:
    """Colour by the logarithm of the rank, darkest where the chosen token leads."""
    figure = base_figure(palette)
    hover = t("step {step}: {token}<br>layer {layer}<br>rank {rank}")
    hovers = [
        [hover.format(step=s, token=escape(name), layer=layer, rank=f"{row[layer]:,}") for s, name, row in columns]
        for layer in range(ranks.shape[1])
        if (columns := list(zip(steps.tolist(), names, ranks, strict=True)))
    ]
    powers = np.arange(int(np.ceil(np.log10(max(10, int(ranks.max()))))) + 1)
    figure.add_heatmap(
        z=-np.log10(ranks.T),
        x=steps,
        y=np.arange(ranks.shape[1]),
        zmin=-float(powers[-1]),
        zmax=0,
        colorscale=_scale(palette),
        colorbar=_bar(palette, t("rank"), tickvals=-powers, ticktext=[f"{10**power:,}" for power in powers]),
        xgap=1 if len(steps) <= MOST_NAMED else 0,
        ygap=1,
        hovertext=hovers,
        hoverinfo="text",
    )
    frame = {"color": palette.categorical[2], "width": 2}
    figure.add_shape(type="rect", x0=step - 0.5, x1=step + 0.5, y0=-0.5, y1=ranks.shape[1] - 0.5, line=frame)
    if len(steps) <= MOST_NAMED:
        figure.update_xaxes(tickvals=steps, ticktext=[escape(shorten(name, LONGEST_CELL)) for name in names])
    figure.update_xaxes(showgrid=False, tickangle=-60, tickfont={"family": MONO, "color": palette.text, "size": 11})
    figure.update_yaxes(title_text=t("layer"), showgrid=False, **_ticks(ranks.shape[1]))
    figure.update_layout(margin={"t": 4})
    return figure


def _ticks(n_layers: int) -> dict[str, object]:
    """Whole layer numbers, counted down from the last so that it has its tick; every one where there is room."""
    return {"tickvals": np.arange(n_layers - 1, -1, -1 if n_layers <= 12 else -(n_layers // 10))}


def _scale(palette: Palette) -> list[tuple[float, str]]:
    last = len(palette.sequential) - 1
    return [(i / last, colour) for i, colour in enumerate(palette.sequential)]


def _bar(palette: Palette, title: str, **ticks: object) -> dict[str, object]:
    font = {"color": palette.muted, "size": 11}
    return {"title": {"text": title, "font": font}, "thickness": 10, "outlinewidth": 0, "tickfont": font, **ticks}


def _map_table(lens: LensRecord, words: list[list[str]], t: Translate) -> pd.DataFrame:
    columns: dict[str, object] = {t("layer"): np.arange(lens.n_layers)}
    for rank in range(min(3, lens.ids.shape[1])):
        columns[t("token at rank {rank}").format(rank=rank + 1)] = [row[rank] for row in words]
        columns[t("probability at rank {rank}").format(rank=rank + 1)] = lens.probs[:, rank].astype(np.float64)
    columns[t("rank of the chosen token")] = lens.chosen_ranks
    return pd.DataFrame(columns)


def _describe_map(trace: Trace, step: int, lens: LensRecord, words: list[list[str]], t: Translate) -> str:
    said = t("Step {step}: the last layer's highest token, “{token}” ({share}), is the highest from layer {lead} on.")
    if lens.lead == 0:
        said = t("Step {step}: the last layer's highest token, “{token}” ({share}), is the highest in every layer.")
    if lens.lead == lens.n_layers - 1:
        said = t("Step {step}: the last layer's highest token, “{token}” ({share}), takes the lead in that layer only.")
    share = percent(float(lens.probs[-1, 0]))
    return said.format(step=step, token=words[-1][0], share=share, lead=lens.lead)


def _describe_climb(trace: Trace, step: int, lens: LensRecord, t: Translate) -> str:
    said = t("“{token}” was chosen: rank {first} in layer 0, rank {last} in layer {layer}, which is the last.")
    ranks = lens.chosen_ranks
    first, last = f"{int(ranks[0]):,}", f"{int(ranks[-1]):,}"
    return said.format(token=_name(trace, step), first=first, last=last, layer=lens.n_layers - 1)
