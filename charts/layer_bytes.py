"""What each layer of the KV cache holds, measured, with the formula's value marked on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from charts.base import Chart, Palette, Translate, base_figure, size_unit
from inference.cache_check import LayerCheck
from inference.errors import Note


def layer_bytes(
    checks: Sequence[LayerCheck], *, palette: Palette, t: Translate, note: Callable[[Note], str] = str
) -> Chart:
    """A bar a layer for the measured bytes, and a tick where the formula 2 · T · H_kv · D · S has it.

    Args:
        note: translates a layer's reason for differing.
    """
    layers = np.array([check.layer for check in checks])
    measured, computed = (
        np.array([getattr(check, name) for check in checks], dtype=np.float64) for name in ("nbytes", "formula_bytes")
    )
    unit, factor = size_unit(float(max(measured.max(initial=0), computed.max(initial=0))))
    figure = base_figure(palette, bargap=0.25)
    hover = t("layer {layer}").format(layer="%{x:d}") + f"<br>%{{y:.2f}} {unit}<extra></extra>"
    figure.add_bar(
        name=t("measured"), x=layers, y=measured / factor, marker={"color": palette.categorical[1]}, hovertemplate=hover
    )
    marker = {"symbol": "line-ew", "size": 12, "line": {"color": palette.text, "width": 2}}
    figure.add_scatter(
        name=t("formula"), x=layers, y=computed / factor, mode="markers", marker=marker, hovertemplate=hover
    )
    span = [-0.5, len(checks) - 0.5]
    figure.update_xaxes(title_text=t("layer"), range=span, tickformat="d", nticks=10, showgrid=False)
    figure.update_yaxes(title_text=unit, rangemode="tozero", nticks=6)
    return Chart(figure, _table(checks, t, note), _describe(checks, t), t("Measured and computed, by layer"))


def _table(checks: Sequence[LayerCheck], t: Translate, note: Callable[[Note], str]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            t("layer"): [c.layer for c in checks],
            t("positions held"): [c.positions for c in checks],
            t("measured bytes"): [c.nbytes for c in checks],
            t("formula"): [c.formula_bytes for c in checks],
            t("difference"): [c.nbytes - c.formula_bytes for c in checks],
            t("reason"): [note(c.why) if c.why else t("equal to the byte") for c in checks],
        }
    )


def _describe(checks: Sequence[LayerCheck], t: Translate) -> str:
    equal = sum(check.reason == "equal" for check in checks)
    if equal == len(checks):
        return t("All {n} layers hold exactly what the formula says.").format(n=len(checks))
    return t(
        "{equal} of {n} layers hold exactly what the formula says; the table has the reason for the others."
    ).format(equal=equal, n=len(checks))
