"""Two element types of one model: their speed and bytes, and how far apart their next-token distributions are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from charts.base import Chart, Palette, Translate, base_figure, duration, percent, size
from charts.labels import escape, shorten

if TYPE_CHECKING:
    from inference.element_types import TwoTypes

PATTERNS = ("", "/")
LEAST = 1e-12  # of a divergence, to stand on a logarithmic axis


def speeds(found: TwoTypes, *, palette: Palette, t: Translate) -> Chart:
    """Decode tokens a second of both types: medians, with bars from the slowest step to the fastest."""
    figure = base_figure(palette, bargap=0.6)
    for at, side in enumerate(found.sides):
        rates = 1 / side.step_s
        middle = side.decode_tok_s
        figure.add_bar(
            x=[middle],
            y=[side.element],
            orientation="h",
            marker={
                "color": palette.categorical[at],
                "pattern": {"shape": PATTERNS[at], "fillmode": "overlay", "fgcolor": palette.background, "size": 10},
            },
            error_x={
                "array": [float(rates.max() - middle)],
                "arrayminus": [float(middle - rates.min())],
                "symmetric": False,
                "color": palette.text,
                "thickness": 1.5,
                "width": 5,
            },
            hovertemplate=f"{side.element}<br>%{{x:,.1f}} tok/s<extra></extra>",
            showlegend=False,
        )
    ticks = [f"<b>{side.element}</b><br>{side.decode_tok_s:,.1f} tok/s" for side in found.sides]
    names = [side.element for side in found.sides]
    figure.update_yaxes(tickvals=names, ticktext=ticks, autorange="reversed", showgrid=False, fixedrange=True)
    figure.update_yaxes(tickfont={"size": 13, "color": palette.text}, ticklabelstandoff=6)
    figure.update_xaxes(title_text="tok/s", rangemode="tozero", nticks=7, fixedrange=True)
    figure.update_layout(margin={"t": 8})
    return Chart(figure, speed_table(found, t), _said_of_speed(found, t), t("Decode speed of both types"))


def _said_of_speed(found: TwoTypes, t: Translate) -> str:
    first, second = found.sides
    said = t(
        "Measured on {machine}, {model}: {first} decodes {slow:,.1f} tok/s and {second} {quick:,.1f}, {ratio:.2f} × as "
        "fast; the prompt takes {before} and {after}."
    )
    return said.format(
        machine=found.machine,
        model=found.model,
        first=first.element,
        second=second.element,
        slow=first.decode_tok_s,
        quick=second.decode_tok_s,
        ratio=second.decode_tok_s / first.decode_tok_s,
        before=duration(float(np.median(first.prefill_s))),
        after=duration(float(np.median(second.prefill_s))),
    )


def speed_table(found: TwoTypes, t: Translate) -> pd.DataFrame:
    """A column a type: decode and prefill times with their spread, bytes of weights and of the cache."""
    n = found.n_prompt
    prefill = t("prefill of {n} tokens").format(n=n)
    rows = {
        t("decode, median"): [f"{side.decode_tok_s:,.1f} tok/s" for side in found.sides],
        t("a step, median"): [duration(float(np.median(side.step_s))) for side in found.sides],
        t("a step, fastest and slowest"): [_range(side.step_s) for side in found.sides],
        prefill: [duration(float(np.median(side.prefill_s))) for side in found.sides],
        t("prefill, fastest and slowest"): [_range(side.prefill_s) for side in found.sides],
        t("weights"): [size(side.weights_bytes) for side in found.sides],
        t("KV cache after {n} positions").format(n=found.n_cached): [size(side.cache_bytes) for side in found.sides],
    }
    table = pd.DataFrame({t("figure"): list(rows)})
    for at, side in enumerate(found.sides):
        table[side.element] = [values[at] for values in rows.values()]
    return table


def _range(seconds: np.ndarray) -> str:
    return f"{duration(float(seconds.min()))} – {duration(float(seconds.max()))}"


def divergences(found: TwoTypes, *, palette: Palette, t: Translate) -> Chart:
    """KL divergence at every position of the run's tokens; where the likeliest next token is another one is marked."""
    effect, places = found.effect, np.arange(len(found.tokens))
    shown = np.where(effect.divergence > LEAST, effect.divergence, np.nan)
    figure = base_figure(palette, hovermode="closest")
    hover = _hovers(found, t)
    figure.add_scatter(
        x=places,
        y=shown,
        name=t("KL divergence"),
        mode="lines",
        line={"color": palette.categorical[0], "width": 1.5},
        hovertext=hover,
        hoverinfo="text",
    )
    changed = effect.changed
    figure.add_scatter(
        x=places[changed],
        y=shown[changed],
        name=t("another likeliest token"),
        mode="markers",
        marker={"symbol": "diamond", "size": 11, "color": palette.categorical[2], "line": {"width": 1}},
        hovertext=[text for text, other in zip(hover, changed, strict=True) if other],
        hoverinfo="text",
    )
    if found.n_prompt < len(places):
        _mark_prompt(figure, found.n_prompt, palette, t)
    figure.update_xaxes(title_text=t("position"), tickformat="d", nticks=9, showgrid=False)
    figure.update_yaxes(title_text=t("nats"), type="log", dtick=1, tickformat=".0e")
    return Chart(figure, _effect_table(found, t), _said_of_effect(found, t), t("Effect on the next token"))


def _mark_prompt(figure: go.Figure, n_prompt: int, palette: Palette, t: Translate) -> None:
    """A line where the generated tokens begin."""
    figure.add_vline(x=n_prompt - 0.5, line={"color": palette.quiet, "width": 1, "dash": "dot"})
    figure.add_annotation(
        x=n_prompt - 0.5,
        y=1,
        yref="paper",
        text=t("generated →"),
        showarrow=False,
        xanchor="left",
        yanchor="bottom",
        font={"color": palette.muted, "size": 11},
    )


def _hovers(found: TwoTypes, t: Translate) -> list[str]:
    text = t("position {at}: {token}<br>{value} nats<br>next: {first} → {second}")
    columns = zip(found.tokens, found.effect.divergence, found.likeliest, strict=True)
    return [
        text.format(
            at=at,
            token=escape(shorten(token.display)),
            value=f"{value:.2g}",
            first=escape(shorten(one.display)),
            second=escape(shorten(other.display)),
        )
        for at, (token, value, (one, other)) in enumerate(columns)
    ]


def _effect_table(found: TwoTypes, t: Translate) -> pd.DataFrame:
    effect, (first, second) = found.effect, found.sides
    return pd.DataFrame(
        {
            t("position"): np.arange(len(found.tokens)),
            t("token"): [token.display for token in found.tokens],
            t("KL divergence (nats)"): [float(f"{value:.3g}") for value in effect.divergence],
            t("largest logit difference"): effect.largest.round(4),
            t("mean logit difference"): effect.mean.round(4),
            t("likeliest in {element}").format(element=first.element): [one.display for one, _ in found.likeliest],
            t("likeliest in {element}").format(element=second.element): [other.display for _, other in found.likeliest],
            t("another one"): effect.changed,
        }
    )


def _said_of_effect(found: TwoTypes, t: Translate) -> str:
    effect = found.effect
    n, changed = len(effect.changed), int(effect.changed.sum())
    said = t(
        "Fed the same {n:,} tokens, logits differ by {largest:.2g} at most and {mean:.2g} on average, the next-token "
        "distributions by {most:.2g} nats at most and {usual:.2g} on average (KL divergence); the likeliest token is "
        "the same at {same} of {n:,} positions ({share})."
    )
    return said.format(
        n=n,
        largest=effect.largest.max(),
        mean=effect.mean.mean(),
        most=effect.divergence.max(),
        usual=effect.divergence.mean(),
        same=f"{n - changed:,}",
        share=percent((n - changed) / n),
    )


def parting_text(found: TwoTypes, t: Translate) -> str:
    """Where the greedy texts of both types part, if they do."""
    first, second = found.sides
    if found.parting is None:
        said = t("Greedily, both types write the same {n} tokens after the prompt.")
        return said.format(n=min(len(first.written), len(second.written)))
    one, other = (side.written[found.parting].display for side in found.sides)
    said = t("Greedily, they part at step {step}: {first} writes “{one}”, {second} “{other}”.")
    return said.format(step=found.parting, first=first.element, second=second.element, one=one, other=other)
