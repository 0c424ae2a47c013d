"""A quantised cache: its error by layer and head, the channels that stand out, and its effect on the logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from charts.base import Chart, Palette, Translate, base_figure
from charts.series import Series, line_figure
from inference.errors import sentences

if TYPE_CHECKING:
    from inference.cache_quantise import FormatRun, Quantised

MOST_ROWS = 256  # more blank the page, so that layers' heads are pooled


def effect(found: Quantised, *, palette: Palette, t: Translate) -> Chart:
    """KL divergence of each step's next-token distribution from the exact one, a line a format."""
    shown = [Series(run.name, np.where(run.divergence > 0, run.divergence, np.nan)) for run in found.formats]
    figure = line_figure(shown, t("nats"), palette=palette, t=t, log=True)
    table = pd.DataFrame({t("step"): np.arange(len(found.exact_ids)), t("exact"): found.exact_ids})
    for run in found.formats:
        table[t("{name}: KL divergence").format(name=run.name)] = run.divergence
        table[t("{name}: largest difference").format(name=run.name)] = run.difference
        table[t("{name}: token").format(name=run.name)] = run.ids
    said = [_said(run, found.exact_ids, t) for run in found.formats]
    return Chart(figure, table, sentences(said, t), t("Effect on the next token"))


def _said(run: FormatRun, exact_ids: NDArray[np.int64], t: Translate) -> str:
    changed = int((run.ids != exact_ids).sum())
    said = t("{name} moves the logits by up to {largest:.2g} and changes the token at {n} of {all} steps.")
    return said.format(name=run.name, largest=run.difference.max(), n=changed, all=len(exact_ids))


def summary(found: Quantised, t: Translate) -> pd.DataFrame:
    """A row for the exact cache and one a format: bytes, share, mean divergence, steps with another token."""
    rows = [(t("as computed"), found.exact_nbytes, 1.0, 0.0, 0)]
    rows += [
        (
            run.name,
            run.nbytes,
            run.nbytes / found.exact_nbytes,
            float(run.divergence.mean()),
            int((run.ids != found.exact_ids).sum()),
        )
        for run in found.formats
    ]
    names = (t("format"), t("bytes"), t("share"), t("mean KL divergence (nats)"), t("steps with another token"))
    table = pd.DataFrame(rows, columns=list(names))
    table[names[2]] = [f"{share:.1%}" for share in table[names[2]]]
    table[names[3]] = [f"{value:.2g}" for value in table[names[3]]]
    return table


def head_errors(found: Quantised, at: int, *, palette: Palette, t: Translate) -> Chart:
    """Error of every layer and head in the format number `at`: keys to the left, values to the right."""
    name = found.formats[at].name
    keys = _rows([layer.key_errors[at] for layer in found.layers])
    values = _rows([layer.value_errors[at] for layer in found.layers])
    both = np.hstack([keys, values]) * 100
    labels = [t("K {head}").format(head=i) for i in range(keys.shape[1])]
    labels += [t("V {head}").format(head=i) for i in range(values.shape[1])]
    layers = np.array([layer.layer for layer in found.layers])
    hover = t("layer {layer}, {head}").format(layer="%{y:d}", head="%{text}") + "<br>%{z:.2f} %"
    figure = _heatmap(both, hover, " %", palette)
    figure.data[0].update(y=layers, text=np.tile(np.array(labels, dtype=object), (len(both), 1)))
    ticks = np.arange(len(labels))
    figure.update_xaxes(tickvals=ticks, ticktext=labels, title_text=t("keys and values, by KV head"))
    figure.update_yaxes(title_text=t("layer"), autorange="reversed", tickformat="d", nticks=10)
    figure.add_shape(
        type="line", x0=keys.shape[1] - 0.5, x1=keys.shape[1] - 0.5, y0=0, y1=1, yref="y domain",
        line={"color": palette.muted, "width": 1},
    )  # fmt: skip
    table = pd.DataFrame(both.round(3), columns=labels)
    table.insert(0, t("layer"), layers)
    said = t("{name} is off by {keys:.2%} of the keys' size and {values:.2%} of the values' (root mean square).")
    described = said.format(name=name, keys=_rms(keys), values=_rms(values))
    return Chart(figure, table, described, t("Error by layer and head · {name}").format(name=name))


def channels(found: Quantised, kind: str, *, palette: Palette, t: Translate) -> Chart:
    """Largest magnitude of every channel of the keys (`kind` "keys") or values, as a multiple of its head's median."""
    peaks = [(layer.key_peaks if kind == "keys" else layer.value_peaks) for layer in found.layers]
    names = [(layer.layer, head) for layer, rows in zip(found.layers, peaks, strict=True) for head in range(len(rows))]
    ratios = _rows([row / max(float(np.median(row)), 1e-12) for rows in peaks for row in rows])
    cell = -(-len(ratios) // MOST_ROWS)
    shown = np.fmax.reduceat(ratios, np.arange(0, len(ratios), cell), axis=0)
    rows = [f"{layer}·{head}" for layer, head in names][::cell]
    hover = t("layer·head {row}, channel {channel}").format(row="%{text}", channel="%{x:d}") + "<br>%{z:.1f} ×"
    figure = _heatmap(shown, hover, " ×", palette)
    figure.data[0].update(zmin=1, zmax=max(4.0, float(np.nanmax(shown))))
    figure.data[0].text = np.tile(np.array(rows, dtype=object)[:, None], (1, shown.shape[1]))
    every = max(1, len(rows) // 10)
    ticks = np.arange(0, len(rows), every)
    figure.update_yaxes(tickvals=ticks, ticktext=rows[::every], autorange="reversed", title_text=t("layer·head"))
    figure.update_xaxes(title_text=t("channel"), tickformat="d", nticks=10)
    title = t("Channels of the keys") if kind == "keys" else t("Channels of the values")
    return Chart(figure, _outliers(ratios, names, t), _largest(ratios, names, t), title)


def _outliers(ratios: NDArray[np.float64], names: Sequence[tuple[int, int]], t: Translate) -> pd.DataFrame:
    """The twenty channels that stand out most."""
    order = np.argsort(-np.nan_to_num(ratios), axis=None)[:20]
    rows, columns = np.unravel_index(order, ratios.shape)
    return pd.DataFrame(
        {
            t("layer"): [names[row][0] for row in rows],
            t("head"): [names[row][1] for row in rows],
            t("channel"): columns,
            t("times the head's median"): ratios[rows, columns].round(2),
        }
    )


def _largest(ratios: NDArray[np.float64], names: Sequence[tuple[int, int]], t: Translate) -> str:
    row, channel = (int(at) for at in np.unravel_index(int(np.nanargmax(ratios)), ratios.shape))
    layer, head = names[row]
    said = t("Channel {channel} of head {head} in layer {layer} reaches {ratio:.1f} × the median channel of its head.")
    many = t("{n} of {all} channels reach more than 4 ×.")
    n, every = int((ratios > 4).sum()), int(np.isfinite(ratios).sum())
    first = said.format(channel=channel, head=head, layer=layer, ratio=ratios[row, channel])
    return sentences([first, many.format(n=n, all=every)], t)


def _heatmap(values: NDArray[np.float64], hover: str, unit: str, palette: Palette) -> go.Figure:
    figure = base_figure(palette)
    last = len(palette.sequential) - 1
    figure.add_heatmap(
        z=values.astype(np.float32),
        colorscale=[(i / last, colour) for i, colour in enumerate(palette.sequential)],
        hovertemplate=f"{hover}<extra></extra>",
        colorbar={
            "thickness": 8,
            "outlinewidth": 0,
            "nticks": 5,
            "ticksuffix": unit,
            "tickfont": {"color": palette.muted, "size": 11},
        },
    )
    figure.update_xaxes(showgrid=False)
    figure.update_yaxes(showgrid=False)
    figure.update_layout(margin={"t": 8})
    return figure


def _rows(rows: Sequence[NDArray[np.floating]]) -> NDArray[np.float64]:
    """Rows of perhaps different lengths as one array, NaN where a row has ended."""
    widest = max(len(row) for row in rows)
    return np.array([np.pad(row.astype(np.float64), (0, widest - len(row)), constant_values=np.nan) for row in rows])


def _rms(errors: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.nanmean(np.square(errors))))
