"""Experts: which of them each token was sent to, how full each one is, and how kinds of text differ."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from charts.base import MONO, Chart, Palette, Translate, base_figure, percent
from charts.labels import escape, shorten
from charts.metrics import Metric
from charts.trend import trend
from inference.errors import N_, TraceError, listed, sentences
from inference.experts import Group, LayerLoad, Routing, distance, imbalance, load_of
from inference.trace import Floats, Trace

ROWS = 40  # so many tokens are drawn around the one in focus
NUMBERED = 32  # so many experts have a number each below the axis
ROW_HEIGHT, FRAME = 18, 90  # pixels


def window(n: int, position: int) -> tuple[int, int]:
    """The positions drawn, from the first to before the second: all of `n`, or `ROWS` around one."""
    start = max(0, min(position - ROWS // 2, n - ROWS))
    return start, min(n, start + ROWS)


def routing_map(trace: Trace, found: Routing, position: int, *, palette: Palette, t: Translate) -> Chart:
    """One row a token, one column an expert: the gates as colour, the experts chosen dotted.

    Raises:
        TraceError: no such position was fed.
    """
    _check(found, position)
    start, stop = window(len(found.gates), position)
    words = [trace.tokens[at].display for at in range(start, stop)]
    figure = _grid(
        found.gates[start:stop], _ticks(words), palette, hover=_cell_texts(found, words, start, t), axis=t("expert")
    )
    rows = np.repeat(np.arange(stop - start), found.experts.shape[1])
    _dots(figure, found.experts[start:stop].ravel(), rows, t("chosen"), palette)
    if start < trace.n_prompt < stop:
        edge = trace.n_prompt - start - 0.5
        figure.add_hline(y=edge, line={"color": palette.categorical[2], "width": 2, "dash": "dash"})
    _frame(figure, position - start, found.gates.shape[1], palette)
    figure.update_layout(height=FRAME + ROW_HEIGHT * max(stop - start, 12))
    title = t("Tokens and experts · layer {layer}").format(layer=found.layer)
    return Chart(figure, _routing_table(trace, found, start, stop, t), _describe_row(trace, found, position, t), title)


def load_chart(found: Routing, *, palette: Palette, t: Translate) -> Chart:
    """A bar an expert: its share of a layer's choices, with the even share as a line."""
    load = found.load
    shares, experts = load / load.sum(), np.arange(len(load))
    figure = base_figure(palette, bargap=0.25, showlegend=False)
    figure.add_bar(
        x=experts,
        y=shares,
        marker={"color": palette.categorical[1]},
        customdata=load,
        hovertemplate=t("expert {expert}").format(expert="%{x:d}") + "<br>%{y:.1%} (%{customdata:d})<extra></extra>",
    )
    unused = np.flatnonzero(load == 0)
    crosses = {"symbol": "x-thin", "size": 9, "line": {"color": palette.text, "width": 2}}
    figure.add_scatter(x=unused, y=np.zeros(len(unused)), mode="markers", marker=crosses, hoverinfo="skip")
    even = {"text": t("even share"), "font": {"color": palette.muted, "size": 11}}
    figure.add_hline(y=1 / len(load), line={"color": palette.text, "width": 1, "dash": "dash"}, annotation=even)
    figure.update_layout(height=280, margin={"t": 8})
    figure.update_xaxes(title_text=t("expert"), showgrid=False, **_expert_axis(len(load)))
    figure.update_yaxes(tickformat=".0%", rangemode="tozero", nticks=6)
    table = pd.DataFrame({t("expert"): experts, t("chosen"): load, t("share"): shares})
    return Chart(figure, table, _describe_load(load, found, t), t("Load · layer {layer}").format(layer=found.layer))


def groups_map(found: Routing, groups: Sequence[Group], *, palette: Palette, t: Translate) -> Chart:
    """One row a group of tokens, one column an expert: the share of the group's choices that the expert got."""
    loads = [load_of(found.experts[g.positions], found.logits.shape[1]) for g in groups]
    shares = np.array([load / load.sum() for load in loads], dtype=np.float32)
    names = [t("{name} ({n})").format(name=group.name, n=len(group.positions)) for group in groups]
    hover = np.array(
        [
            [f"{escape(name)}<br>" + t("expert {expert}").format(expert=e) + f": {percent(float(s))}" for e, s in row]
            for name, row in zip(names, map(enumerate, shares), strict=True)
        ],
        dtype=object,
    )
    ticks = [t("{name} ({n})").format(name=shorten(group.name), n=len(group.positions)) for group in groups]
    figure = _grid(shares, [escape(tick) for tick in ticks], palette, hover=hover, axis=t("expert"))
    figure.update_layout(height=FRAME + 34 * max(len(groups), 4))
    table = pd.DataFrame(shares, columns=[str(e) for e in range(shares.shape[1])])
    table.insert(0, t("group"), names)
    said = _describe_groups([group.name for group in groups], loads, t)
    return Chart(figure, table, said, t("Kinds of text · layer {layer}").format(layer=found.layer))


def path_chart(trace: Trace, layers: Sequence[Routing], position: int, *, palette: Palette, t: Translate) -> Chart:
    """One token's way through the layers: its gates, the experts chosen dotted, its strongest choices joined.

    Args:
        layers: of this position alone; see `inference.experts.routing_at`.
    """
    gates = np.array([found.gates[0] for found in layers])
    names = [t("layer {layer}").format(layer=found.layer) for found in layers]
    hover = np.array(
        [
            [
                f"{name}<br>" + t("expert {expert}").format(expert=e) + f": {percent(float(g))}"
                for e, g in enumerate(row)
            ]
            for name, row in zip(names, gates, strict=True)
        ],
        dtype=object,
    )
    figure = _grid(gates, names, palette, hover=hover, axis=t("expert"))
    best = np.array([found.experts[0, found.weights[0].argmax()] for found in layers])
    line = {"color": palette.categorical[2], "width": 2}
    figure.add_scatter(x=best, y=np.arange(len(best)), mode="lines", line=line, hoverinfo="skip", showlegend=False)
    rows = np.repeat(np.arange(len(layers)), [found.experts.shape[1] for found in layers])
    chosen = np.concatenate([found.experts[0] for found in layers])
    _dots(figure, chosen, rows, t("chosen"), palette)
    figure.update_layout(height=FRAME + (52 if len(layers) < 6 else 26) * max(len(layers), 4))
    token = trace.tokens[position].display
    said = t("“{token}” at position {position} goes to {path}.").format(
        token=token, position=position, path=" → ".join(_choice(found, 0) for found in layers)
    )
    table = pd.DataFrame(
        {
            t("layer"): [found.layer for found in layers],
            t("experts"): [_choice(found, 0) for found in layers],
        }
    )
    return Chart(figure, table, said, t("The way of “{token}” through the layers").format(token=escape(token)))


def expert_metrics(layers: Sequence[LayerLoad], at: int, t: Translate) -> tuple[Metric, ...]:
    """The figures of one layer among all, whose trend lines run over the layers."""
    found = layers[at]
    uneven = np.array([imbalance(one.load) for one in layers])
    unused = np.array([int((one.load == 0).sum()) for one in layers])
    first = np.array([one.strongest for one in layers])
    return (
        Metric(
            t("Experts a token"),
            t("{k} of {n}").format(k=found.n_chosen, n=len(found.load)),
            t("{n} tokens were fed").format(n=f"{found.n_tokens:,}"),
            t("The router sends each token to so many of the layer's experts."),
        ),
        Metric(
            t("Imbalance"),
            f"{uneven[at]:.2f} ×",
            t("1 × would be even"),
            t("The busiest expert's load over the even share; the line runs over the layers."),
            trend(uneven, at),
        ),
        Metric(
            t("Never used"),
            str(unused[at]),
            t("{n} in all layers").format(n=int(unused.sum())),
            t("Experts that no token of this run was sent to; the line runs over the layers."),
            trend(unused, at),
        ),
        Metric(
            t("Strongest expert's part"),
            percent(float(first[at])),
            t("mean over the tokens"),
            t("The largest of a token's weights over their sum; the line runs over the layers."),
            trend(first, at),
        ),
    )


def gate_words(found: Routing, t: Translate) -> str:
    """What the colours are, and what the chosen weights do."""
    words = {
        "softmax": t("Colour is the gate's probability: the softmax of the router's logits over all experts."),
        "sigmoid": t("Colour is the gate's score: the sigmoid of each expert's router logit; a row need not sum to 1."),
        "unknown": t(
            "Colour is the softmax of the router's logits; this model's weights are not in proportion to it, "
            "so it chooses by something more."
        ),
    }
    return words[found.gate]


def _check(found: Routing, position: int) -> None:
    if not 0 <= position < len(found.gates):
        raise TraceError(N_("There is no position {position}; {n} were fed."), position=position, n=len(found.gates))


def _grid(values: Floats, names: Sequence[str], palette: Palette, hover: NDArray[np.object_], axis: str) -> go.Figure:
    """Rows from top to bottom, experts from left to right."""
    figure = base_figure(palette)
    n_rows, n_experts = values.shape
    figure.add_heatmap(
        z=values.astype(np.float32),
        zmin=0,
        colorscale=[(i / (len(palette.sequential) - 1), c) for i, c in enumerate(palette.sequential)],
        xgap=1,
        ygap=1,
        text=hover,
        hovertemplate="%{text}<extra></extra>",
        colorbar={
            "orientation": "h", "thickness": 8, "outlinewidth": 0, "y": 1, "yanchor": "bottom", "ypad": 2, "xpad": 0,
            "ticklabelposition": "outside top", "tickformat": ".0%", "nticks": 4, "tickangle": 0,
            "tickfont": {"color": palette.muted, "size": 11},
        },
    )  # fmt: skip
    figure.update_xaxes(title_text=axis, showgrid=False, range=[-0.5, n_experts - 0.5], **_expert_axis(n_experts))
    figure.update_yaxes(
        showgrid=False,
        range=[n_rows - 0.5, -0.5],
        tickmode="array",
        tickvals=np.arange(n_rows),
        ticktext=list(names),
        tickfont={"family": MONO, "size": 11, "color": palette.text},
        ticklabelstandoff=4,
    )
    figure.update_layout(margin={"t": 0}, showlegend=False)
    return figure


def _expert_axis(n_experts: int) -> dict[str, object]:
    if n_experts <= NUMBERED:
        return {"tickmode": "array", "tickvals": np.arange(n_experts), "ticktext": [str(e) for e in range(n_experts)]}
    return {"tickformat": "d", "nticks": 16}


def _dots(figure: go.Figure, x: NDArray[np.int64], y: NDArray[np.int64], name: str, palette: Palette) -> None:
    """A dot with an edge in the page's colour, so that it is seen on any colour of the scale."""
    edge = {"color": palette.background, "width": 1.5}
    marker = {"symbol": "circle", "size": 9, "color": palette.categorical[2], "line": edge}
    figure.add_scatter(x=x, y=y, mode="markers", marker=marker, name=name, hoverinfo="skip")


def _frame(figure: go.Figure, row: int, n_experts: int, palette: Palette) -> None:
    line = {"color": palette.text, "width": 1.5}
    figure.add_shape(type="rect", x0=-0.5, x1=n_experts - 0.5, y0=row - 0.5, y1=row + 0.5, line=line)


def _ticks(words: Sequence[str]) -> list[str]:
    return [escape(shorten(word)) for word in words]


def _cell_texts(found: Routing, words: Sequence[str], start: int, t: Translate) -> NDArray[np.object_]:
    template, texts = t("expert {expert}: {share}"), []
    for at, word in enumerate(words, start):
        head = f"{at} {escape(shorten(word))}<br>"
        texts.append([head + template.format(expert=e, share=percent(float(g))) for e, g in enumerate(found.gates[at])])
    return np.array(texts, dtype=object)


def _choice(found: Routing, position: int | np.integer[Any]) -> str:
    """The experts of a position with their weights, the heaviest first: `"5 (0.81) + 2 (0.19)"`."""
    experts, weights = found.experts[position], found.weights[position]
    return " + ".join(f"{experts[i]} ({weights[i]:.2f})" for i in np.argsort(-weights, kind="stable"))


def _routing_table(trace: Trace, found: Routing, start: int, stop: int, t: Translate) -> pd.DataFrame:
    positions = np.arange(start, stop)
    columns: dict[str, object] = {
        t("position"): positions,
        t("token"): [trace.tokens[at].display for at in positions],
        t("phase"): [t("prefill") if at < trace.n_prompt else t("decode") for at in positions],
        t("experts"): [_choice(found, at) for at in positions],
    }
    gates = {str(expert): found.gates[start:stop, expert] for expert in range(found.gates.shape[1])}
    return pd.DataFrame({**columns, **gates})


def _describe_row(trace: Trace, found: Routing, position: int, t: Translate) -> str:
    said = [
        t("“{token}” at position {position} goes to the dotted experts: {experts}, each with its weight.").format(
            token=trace.tokens[position].display, position=position, experts=_choice(found, position)
        )
    ]
    start, stop = window(len(found.gates), position)
    if start < trace.n_prompt < stop:
        said.append(t("Rows below the dashed line were fed one at a time while decoding."))
    return sentences([*said, gate_words(found, t)], t)


def _describe_load(load: NDArray[np.int64], found: Routing, t: Translate) -> str:
    busiest = int(load.argmax())
    said = t("Expert {expert} is the busiest with {share} of the choices, {times} times its even share.").format(
        expert=busiest, share=percent(float(load[busiest] / load.sum())), times=f"{imbalance(load):.2f}"
    )
    unused = np.flatnonzero(load == 0)
    if not len(unused):
        return sentences([said, t("Every expert was used.")], t)
    names = listed(unused[:12].tolist(), t) + (" …" if len(unused) > 12 else "")
    return sentences([said, t("Never used: {n} ({experts}).").format(n=len(unused), experts=names)], t)


def _describe_groups(names: Sequence[str], loads: Sequence[NDArray[np.int64]], t: Translate) -> str:
    if len(names) < 2:
        return t("There is only one group, so there is nothing to compare.")
    apart = {pair: distance(loads[pair[0]], loads[pair[1]]) for pair in combinations(range(len(names)), 2)}
    far, near = max(apart, key=apart.__getitem__), min(apart, key=apart.__getitem__)
    return t(
        "“{a}” and “{b}” differ most: {far} of their choices would have to move to make them alike; "
        "“{c}” and “{d}” least: {near}."
    ).format(
        a=shorten(names[far[0]]), b=shorten(names[far[1]]), far=percent(apart[far]),
        c=shorten(names[near[0]]), d=shorten(names[near[1]]), near=percent(apart[near]),
    )  # fmt: skip
