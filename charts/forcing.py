"""A scored text: the loss of each position, what a position expected, and the table of inputs and shifted targets."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from charts.base import MONO, Chart, Palette, Translate, base_figure, percent
from charts.labels import escape, in_context, pending, shorten
from inference.forcing import Forcing

NAMED, BARS = 40, 160  # so many positions have names, and so many bars; more are a line
HEIGHT = 300


def losses_chart(forcing: Forcing, at: int, *, palette: Palette, t: Translate) -> Chart:
    """The loss of every position beside the loss that it expected (its entropy); position `at` is marked."""
    figure = base_figure(palette, bargap=0.2)
    _draw_losses(figure, forcing, at, palette, t)
    _draw_expected(figure, forcing, palette, t)
    _draw_mean(figure, forcing.mean_loss, palette, t)
    figure.update_xaxes(showgrid=False, tickfont={"family": MONO, "color": palette.text, "size": 11}, fixedrange=True)
    figure.update_yaxes(title_text=t("nats"), rangemode="tozero", fixedrange=True)
    figure.update_layout(height=HEIGHT)
    return Chart(figure, targets_table(forcing, t), _describe(forcing, t), t("Loss of the true next token"))


def _draw_losses(figure: go.Figure, forcing: Forcing, at: int, palette: Palette, t: Translate) -> None:
    places, names = np.arange(len(forcing.losses)), [token.display for token in forcing.tokens[1:]]
    blue, marked = palette.categorical[0], palette.categorical[2]
    style = {"x": places, "y": forcing.losses, "name": t("loss"), "hovertext": _hovers(forcing, names, t)}
    if len(places) > BARS:
        figure.add_scatter(mode="lines", line={"color": blue, "width": 1}, hoverinfo="text", **style)
        figure.add_vline(x=at, line={"color": marked, "width": 2})
        return
    figure.add_bar(marker={"color": np.where(places == at, marked, blue)}, hoverinfo="text", **style)
    if at < len(places):
        figure.add_annotation(x=at, y=forcing.losses[at], text="▾", showarrow=False, yanchor="bottom")
    if len(places) > NAMED:
        return
    words = [escape(shorten(name, 10)) for name in names]
    ticks = [f"<b>▸ {word}</b>" if place == at else word for place, word in enumerate(words)]
    figure.update_xaxes(tickvals=places, ticktext=ticks, tickangle=-60)


def _draw_expected(figure: go.Figure, forcing: Forcing, palette: Palette, t: Translate) -> None:
    n = len(forcing.losses)
    figure.add_scatter(
        x=np.arange(n),
        y=forcing.entropy[:n],
        mode="markers" if n <= NAMED else "lines",
        marker={"symbol": "line-ew", "size": 9, "line": {"width": 2, "color": palette.text}},
        line={"color": palette.quiet, "width": 1, "dash": "dot"},
        name=t("expected loss (entropy)"),
        hoverinfo="skip",
    )


def _draw_mean(figure: go.Figure, mean: float, palette: Palette, t: Translate) -> None:
    figure.add_hline(y=mean, line={"color": palette.muted, "width": 1, "dash": "dash"})
    figure.add_annotation(
        y=mean,
        text=t("mean {value}").format(value=f"{mean:.2f}"),
        showarrow=False,
        font={"color": palette.muted, "size": 11},
        xref="paper",
        x=1,
        xanchor="right",
        yanchor="bottom",
    )


def _hovers(forcing: Forcing, names: list[str], t: Translate) -> list[str]:
    text = t("position {at}<br><b>{token}</b><br>probability {share}<br>rank {rank}<br>loss {loss} nats")
    columns = zip(names, forcing.logprobs, forcing.ranks, strict=True)
    return [
        text.format(at=at, token=escape(name), share=percent(float(np.exp(lp))), rank=f"{rank:,}", loss=f"{-lp:.2f}")
        for at, (name, lp, rank) in enumerate(columns)
    ]


def _describe(forcing: Forcing, t: Translate) -> str:
    first = int((forcing.ranks == 1).sum())
    n = len(forcing.ranks)
    said = t(
        "Mean loss {loss} nats over {n} positions, perplexity {perplexity}; the true token was likeliest in {first}."
    )
    return said.format(
        loss=f"{forcing.mean_loss:.3f}", n=f"{n:,}", perplexity=f"{forcing.perplexity:,.2f}", first=f"{first:,}"
    )


def guesses_chart(forcing: Forcing, at: int, *, palette: Palette, t: Translate) -> Chart:
    """What position `at` expected next: its likeliest tokens, and the true one marked; the last one has no true one."""
    target = int(forcing.ids[at + 1]) if at + 1 < len(forcing.ids) else None
    ids, probs = _guesses(forcing, at, target)
    before = pending(forcing.tokens[: at + 1])
    names = [in_context(forcing.vocabulary.token(int(i)), before) for i in ids]
    true = ids == target if target is not None else np.zeros(len(ids), dtype=bool)
    figure = base_figure(palette)
    rows = np.arange(len(ids))
    figure.add_bar(
        x=probs,
        y=rows,
        orientation="h",
        marker={"color": np.where(true, palette.categorical[2], palette.categorical[0])},
        text=[f"\u2002{percent(float(p))}" for p in probs],
        textposition="outside",
        cliponaxis=False,
        textfont={"color": palette.muted},
        hovertext=[f"<b>{escape(name)}</b><br>{t('id {id}').format(id=i)}" for name, i in zip(names, ids, strict=True)],
        hoverinfo="text",
        showlegend=False,
    )
    labels = [escape(shorten(name)) for name in names]
    figure.update_yaxes(
        tickvals=rows,
        ticktext=[f"<b>▸ {label}</b>" if hit else label for label, hit in zip(labels, true, strict=True)],
        tickfont={"family": MONO, "color": palette.text},
        range=[len(ids) - 0.4, -0.6],
        ticklabelstandoff=6,
        showgrid=False,
        fixedrange=True,
    )
    figure.update_xaxes(tickformat=".0%", range=[0, float(probs.max()) * 1.25], nticks=5, fixedrange=True)
    figure.update_layout(height=HEIGHT, margin={"t": 4})
    table = pd.DataFrame({t("token"): names, t("id"): ids, t("probability"): probs, t("the true one"): true})
    title = t("What position {at} expected next").format(at=at)
    return Chart(figure, table, _describe_guess(forcing, at, names, t), title)


def _guesses(forcing: Forcing, at: int, target: int | None) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    ids, probs = forcing.top_ids[at], forcing.top_probs[at].astype(np.float64)
    if target is None or target in ids:
        return ids, probs
    return np.append(ids, target), np.append(probs, np.exp(forcing.logprobs[at]))


def _describe_guess(forcing: Forcing, at: int, names: list[str], t: Translate) -> str:
    token = forcing.tokens[at].display
    if at + 1 == len(forcing.ids):
        said = t(
            "Position {at} has read up to “{token}”, the end of the text: what follows is not known to anyone yet."
        )
        return said.format(at=at, token=token)
    said = t(
        "Position {at} has read up to “{token}”; the true next token, “{target}”, has rank {rank} and loss {loss} nats."
    )
    return said.format(
        at=at,
        token=token,
        target=forcing.tokens[at + 1].display,
        rank=f"{int(forcing.ranks[at]):,}",
        loss=f"{forcing.losses[at]:.2f}",
    )


def targets_table(forcing: Forcing, t: Translate) -> pd.DataFrame:
    """One row a position: what is fed, the target, which is the next position's input, and how well it was guessed."""
    names = [token.display for token in forcing.tokens]
    n = len(forcing.losses)
    best = [forcing.vocabulary.token(int(i)).display for i in forcing.top_ids[:n, 0]]
    return pd.DataFrame(
        {
            t("position"): np.arange(n),
            t("input"): names[:n],
            t("target"): names[1:],
            t("probability"): np.exp(forcing.logprobs),
            t("loss"): forcing.losses,
            t("rank"): forcing.ranks,
            t("likeliest"): best,
            t("its probability"): forcing.top_probs[:n, 0].astype(np.float64),
        }
    )
