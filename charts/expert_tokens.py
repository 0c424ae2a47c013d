"""A router's choice: the distribution over the tokens that stand for models, and where the draw fell."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from charts.base import MONO, Chart, Palette, Translate, base_figure, percent
from charts.distribution import Rows, draw_rows
from charts.labels import escape
from charts.stages import removed_by
from inference.errors import sentences
from inference.routing import Expert, Route, Span

ROW_HEIGHT, FRAME = 44, 70  # pixels
CHARACTERS = 40  # so many have room along the whole line
THICK, NEEDLE = 0.6, 0.38  # of the line and how high the needle stands above its middle


def expert_tokens(route: Route, *, palette: Palette, t: Translate) -> Chart:
    """One row an expert's token and one for all others together: raw, and after the settings."""
    rows = _rows(route, t)
    figure = draw_rows(rows, palette, t)
    figure.update_layout(height=_height(len(rows.ids)))
    return Chart(figure, _table(route, rows, t), _describe(route, rows, t), t("Expert tokens"))


def draw_chart(route: Route, *, palette: Palette, t: Translate) -> Chart:
    """[0, 1) cut in the order of probability, and the uniform number that fell on one of the parts."""
    spans, u = route.spans(), route.draw_u
    figure = base_figure(palette, barmode="overlay")
    for span in spans:
        _add_span(figure, route, span, palette, t)
    if u is not None:
        figure.add_scatter(
            x=[u], y=[NEEDLE], mode="markers+text", text=[f"<b>u = {u:.4f}</b>"], textposition="top center",
            textfont={"family": MONO, "color": palette.text}, cliponaxis=False, hoverinfo="skip", showlegend=False,
            marker={"symbol": "triangle-down", "size": 14, "color": palette.text},
        )  # fmt: skip
        figure.add_shape(type="line", x0=u, x1=u, y0=-THICK / 2, y1=NEEDLE, line={"color": palette.text, "width": 1})
    figure.update_layout(height=_height(len(route.experts) + 1), margin={"t": 56, "b": 8, "l": 12, "r": 12})
    figure.update_xaxes(range=[0, 1], tickvals=[0, 0.25, 0.5, 0.75, 1], showgrid=False, fixedrange=True)
    figure.update_yaxes(visible=False, range=[-0.5, 0.5], fixedrange=True)
    table = pd.DataFrame(
        {
            t("token"): [_name(route, span.expert, t) for span in spans],
            t("begins"): [span.start for span in spans],
            t("ends"): [span.end for span in spans],
        }
    )
    return Chart(figure, table, _describe_draw(route, t), t("The draw"))


def _height(n_rows: int) -> int:
    return FRAME + ROW_HEIGHT * n_rows


def _rows(route: Route, t: Translate) -> Rows:
    raw, after = route.shares(0), route.shares(-1) if len(route.stages) > 1 else None
    chosen = np.append(route.ids == route.token.id, route.chosen is None)
    others = _removed_others(route) if after is not None and after[-1] == 0 else ""
    return Rows(
        ids=np.append(route.ids, -1),
        labels=(*(expert.token.display for expert in route.experts), _name(route, None, t)),
        raw=raw,
        after=after,
        removed=(*removed_by(route.stages, route.ids), others),
        chosen=chosen,
    )


def _removed_others(route: Route) -> str:
    """The setting that removed the last token that stands for no model."""
    left = [int(np.delete(stage.kept, route.ids).sum()) for stage in route.stages]
    return next((stage.name for stage, (a, b) in zip(route.stages[1:], pairwise(left), strict=True) if a and not b), "")


def _name(route: Route, expert: Expert | None, t: Translate) -> str:
    if expert is not None:
        return expert.token.display
    return t("all other {n:,}").format(n=len(route.stages[0].probs) - len(route.experts))


def _table(route: Route, rows: Rows, t: Translate) -> pd.DataFrame:
    columns: dict[str, object] = {
        t("token"): list(rows.labels),
        t("model"): [*(expert.model for expert in route.experts), ""],
        t("raw probability"): rows.raw,
    }
    if rows.after is not None:
        columns[t("after settings")] = rows.after
        columns[t("removed by")] = list(rows.removed)
    return pd.DataFrame({**columns, t("chosen"): rows.chosen})


def _describe(route: Route, rows: Rows, t: Translate) -> str:
    shares = rows.raw if rows.after is None else rows.after
    at = int(np.flatnonzero(rows.chosen)[0])
    values = {"token": route.token.display, "prob": percent(float(shares[at])), "raw": percent(float(rows.raw[at]))}
    if route.chosen is None:
        said = t("“{token}” was drawn, which stands for no model: so nobody answers.")
    elif route.draw_u is None:
        said = t("Greedy decoding took {token}, the likeliest, whose raw probability is {raw}.")
    else:
        said = t("{token} was drawn with probability {prob}; its raw probability is {raw}.")
    rest = t("The vocabulary's other {n:,} tokens have {raw} together.")
    if rows.after is not None:
        rest = t("The vocabulary's other {n:,} tokens have {raw} together, {after} after the settings.")
    n, raw, after = len(route.stages[0].probs) - len(route.experts), float(rows.raw[-1]), float(shares[-1])
    return sentences([said.format(**values), rest.format(n=n, raw=percent(raw), after=percent(after))], t)


def _add_span(figure: go.Figure, route: Route, span: Span, palette: Palette, t: Translate) -> None:
    """A span, with its expert's name in it where it is wide enough; the legend has every name once."""
    plain, width = _name(route, span.expert, t), span.end - span.start
    name, fits = escape(plain), span.expert is not None and width * CHARACTERS >= len(plain)
    figure.add_bar(
        name=name,
        legendgroup=name,
        showlegend=all(trace.name != name for trace in figure.data),
        x=[width],
        y=[0],
        base=[span.start],
        orientation="h",
        width=THICK,
        marker=_marker(route, span.expert, palette),
        text=[name if fits else ""],
        textposition="inside",
        insidetextanchor="middle",
        constraintext="none",
        textangle=0,
        textfont={"family": MONO, "color": palette.background},
        hovertext=[f"<b>{name}</b><br>{span.start:.4f} – {span.end:.4f}"],
        hoverinfo="text",
    )


def _marker(route: Route, expert: Expert | None, palette: Palette) -> dict[str, object]:
    """A colour an expert; stripes for all others."""
    if expert is not None:
        edge = {"color": palette.background, "width": 2}
        return {"color": palette.categorical[route.experts.index(expert)], "line": edge}
    stripes = {"shape": "/", "fgcolor": palette.quiet, "bgcolor": "rgba(0,0,0,0)", "size": 6, "solidity": 0.45}
    return {"color": "rgba(0,0,0,0)", "line": {"color": palette.quiet, "width": 1}, "pattern": stripes}


def _describe_draw(route: Route, t: Translate) -> str:
    if route.draw_u is None:
        return t("Greedy decoding needs no draw: the likeliest token is taken.")
    said = t("The tokens stand in the order of their probability; the seed's number u = {u:.4f} falls on {token}.")
    return said.format(u=route.draw_u, token=route.token.display)
