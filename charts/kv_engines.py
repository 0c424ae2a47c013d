"""The logical size of a KV cache beside what engines really hold for the same sequences."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from charts.base import Chart, Palette, Translate, base_figure, size, size_unit
from inference.errors import sentences
from inference.kv_engines import EngineBytes

PAD = "\N{NO-BREAK SPACE}" * 2  # between a bar and what is written beside it


def kv_engines(logical: int, engines: Mapping[str, EngineBytes], *, palette: Palette, t: Translate) -> Chart:
    """A bar an engine with its bytes, and a line at the logical size; an engine without such a cache has no bar.

    Args:
        logical: bytes that the architecture needs.
        engines: by name, as `KVLayout.engine_bytes` gives them.
    """
    figure = _figure(logical, engines, palette, t)
    return Chart(figure, _table(logical, engines, t), _describe(logical, engines, t), t("What engines hold"))


def _figure(logical: int, engines: Mapping[str, EngineBytes], palette: Palette, t: Translate) -> go.Figure:
    names = [t("logical"), *engines]
    held = [logical, *(figure.bytes for figure in engines.values())]
    highest = max(n for n in held if n is not None)
    unit, factor = size_unit(highest)
    places = list(range(len(names)))
    figure = base_figure(palette, showlegend=False, bargap=0.35)
    figure.add_bar(
        orientation="h",
        y=places,
        x=np.array([(n or 0) / factor for n in held], dtype=np.float32),
        marker={"color": [palette.primary, *[palette.quiet] * len(engines)]},
        text=[f"{PAD}{_amount(n, t)}" for n in held],
        textposition="outside",
        textfont={"color": palette.text, "size": 12},
        cliponaxis=False,
        hovertext=[t("what the architecture needs"), *(_note(figure, t) for figure in engines.values())],
        hovertemplate="%{hovertext}<extra></extra>",
    )
    line = {"color": palette.primary, "width": 1.5, "dash": "dash"}
    figure.add_shape(type="line", x0=logical / factor, x1=logical / factor, y0=0, y1=1, yref="y domain", line=line)
    figure.update_yaxes(
        tickvals=places, ticktext=[f"{_wrapped(name)}{PAD}" for name in names], autorange="reversed", showgrid=False
    )
    figure.update_xaxes(title_text=unit, range=[0, highest / factor * 1.3 or 1], nticks=5)
    figure.update_layout(margin={"t": 12})
    return figure


def _wrapped(name: str) -> str:
    """A long name on two lines."""
    first, _, rest = name.partition(" ")
    return f"{first}<br>{rest}" if len(name) > 14 and rest else name


def _amount(n_bytes: int | None, t: Translate) -> str:
    return t("no such cache") if n_bytes is None else size(n_bytes)


def _note(figure: EngineBytes, t: Translate) -> str:
    return figure.note.text(t)


def _table(logical: int, engines: Mapping[str, EngineBytes], t: Translate) -> pd.DataFrame:
    rows: list[tuple[str, int | None, str]] = [(t("logical"), logical, t("what the architecture needs"))]
    rows += [(name, figure.bytes, _note(figure, t)) for name, figure in engines.items()]
    return pd.DataFrame(
        {
            t("engine"): [row[0] for row in rows],
            t("bytes"): pd.array([row[1] for row in rows], dtype="Int64"),
            t("against logical"): ["" if row[1] is None else f"{row[1] / logical:.2f} ×" for row in rows],
            t("how it is counted"): [row[2] for row in rows],
        }
    )


def _describe(logical: int, engines: Mapping[str, EngineBytes], t: Translate) -> str:
    held = {name: figure.bytes for name, figure in engines.items() if figure.bytes is not None}
    text = t("The architecture needs {size}.").format(size=size(logical))
    if not held:
        return sentences([text, t("None of these engines has such a cache.")], t)
    if set(held.values()) == {logical}:
        return sentences([text, t("The engines that have such a cache hold exactly that.")], t)
    if len(set(held.values())) == 1:
        amount = next(iter(held.values()))
        return sentences([text, t("The engines that have such a cache hold {size}.").format(size=size(amount))], t)
    most = max(held, key=lambda name: held[name])
    least = min(held, key=lambda name: held[name])
    apart = t("{least} holds the least, {smallest}, and {most} the most, {largest}.").format(
        least=least, smallest=size(held[least]), most=most, largest=size(held[most])
    )
    return sentences([text, apart], t)
