"""What every chart shares: the colours, the frame of a figure, and the words for figures, sizes and times.

A chart is never a picture alone: it comes with the table of what it draws and one sentence that says what is seen,
so that it can be read without eyes, without colour and outside the app.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from inference import errors
from inference.errors import N_, TraceError
from inference.trace import Trace

Translate = errors.Translate
HEIGHT = 380
FONT = "Inter, system-ui, 'PingFang SC', 'Microsoft YaHei', 'Noto Sans CJK SC', 'Noto Sans SC', sans-serif"
MONO = (
    "'JetBrains Mono', ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', "
    "'Noto Sans Mono CJK SC', 'PingFang SC', 'Microsoft YaHei', 'Noto Sans SC', monospace"
)


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours of one mode: those of `.streamlit/config.toml`, and three that it has no name for.

    Attributes:
        muted: axis text and notes; at least 4.5 : 1 on `background`.
        quiet: bars and lines that stand behind others; at least 3 : 1 on `background`.
        grid: grid lines, which only have to be seen when looked for.
    """

    mode: str
    background: str
    secondary_background: str
    text: str
    border: str
    primary: str
    muted: str
    quiet: str
    grid: str
    categorical: tuple[str, ...]
    sequential: tuple[str, ...]
    diverging: tuple[str, ...]

    @classmethod
    def light(cls) -> Palette:
        """The colours on a light page."""
        return _LIGHT

    @classmethod
    def dark(cls) -> Palette:
        """The colours on a dark page."""
        return _DARK


_LIGHT = Palette(
    mode="light",
    background="#fafaf9",
    secondary_background="#f1f0ee",
    text="#1c1b22",
    border="#e3e1dc",
    primary="#4f46e5",
    muted="#5d5b69",
    quiet="#868b9d",
    grid="#e7e5e1",
    categorical=(
        "#4f46e5", "#0d9488", "#c96a06", "#db2777", "#0284c7", "#548a0c", "#7c3aed", "#dc2626", "#475569", "#a16207",
    ),
    sequential=(
        "#f5f3ff", "#e4e0fd", "#cdc7fb", "#b1a8f7", "#9488f1", "#7a6bea", "#6353df", "#4f3fc9", "#3d2fa5", "#2a2078",
    ),
    diverging=(
        "#9f1239", "#e11d48", "#fb7185", "#fecdd3", "#fff1f2", "#ecfeff", "#a5f3fc", "#22d3ee", "#0891b2", "#155e75",
    ),
)  # fmt: skip

_DARK = Palette(
    mode="dark",
    background="#0f1117",
    secondary_background="#1a1d27",
    text="#e7e7ee",
    border="#2b2f3d",
    primary="#6a6ef3",
    muted="#a4a7b7",
    quiet="#666d80",
    grid="#252936",
    categorical=(
        "#818cf8", "#2dd4bf", "#fbbf24", "#f472b6", "#38bdf8", "#a3e635", "#a78bfa", "#f87171", "#94a3b8", "#facc15",
    ),
    sequential=(
        "#12131f", "#1c1c3a", "#292657", "#393378", "#4b4299", "#6054ba", "#7869d6", "#9484ec", "#b5a8f8", "#ddd6fe",
    ),
    diverging=(
        "#fda4af", "#fb7185", "#e11d48", "#881337", "#2a1520", "#0b2530", "#155e75", "#0891b2", "#22d3ee", "#a5f3fc",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Chart:
    """A figure, the table of what it draws, one sentence that says what is seen, and a title; all translated."""

    figure: go.Figure
    table: pd.DataFrame
    description: str
    title: str


def base_figure(palette: Palette, **layout: Any) -> go.Figure:
    """An empty figure in the palette's colours, transparent, with quiet axes."""
    axis = {
        "gridcolor": palette.grid,
        "zeroline": False,
        "showline": False,
        "ticks": "",
        "tickfont": {"color": palette.muted, "size": 12},
        "title": {"font": {"color": palette.muted, "size": 12}},
        "automargin": True,
    }
    base = {  # in one piece: Plotly takes a layout twenty times as fast as a change to one
        "template": go.layout.Template(),
        "height": HEIGHT,
        "margin": {"l": 8, "r": 8, "t": 36, "b": 8},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 12, "color": palette.text},
        "hoverlabel": {
            "bgcolor": palette.secondary_background,
            "bordercolor": palette.border,
            "font": {"family": FONT, "size": 13, "color": palette.text},
            "align": "left",
        },
        "legend": {
            "orientation": "h",
            "xref": "container",
            "yref": "container",
            "x": 0,
            "y": 1,
            "yanchor": "top",
            "font": {"color": palette.muted, "size": 12},
        },
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": palette.muted, "activecolor": palette.primary},
        "xaxis": axis,
        "yaxis": axis,
    }
    return go.Figure(layout=base | layout)


def empty_chart(title: str, sentence: str, palette: Palette) -> Chart:
    """A chart of something that was not recorded: the sentence that says so in the place of the figure."""
    figure = base_figure(palette)
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    return Chart(figure, pd.DataFrame(), sentence, title)


def refused(title: str, error: TraceError, palette: Palette, t: Translate) -> Chart:
    """The empty chart of what a run does not hold, in the error's own words."""
    return empty_chart(title, error.text(t), palette)


def translucent(colour: str, alpha: float) -> str:
    """A `#rrggbb` colour as `rgba(…)`."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha})"


def check_step(trace: Trace, step: int) -> None:
    """Refuse a step that the run does not have, with both numbers."""
    if not 0 <= step < len(trace.steps):
        raise TraceError(N_("There is no step {step}; the run has {n}."), step=step, n=len(trace.steps))


def percent(share: float) -> str:
    """A probability for people: three digits above a thousandth, and never a 0 that is none."""
    if share and share < 1e-4:
        return "<0.01%"
    return f"{share:.1%}" if share >= 0.1 or not share else f"{share:.2%}"


def size(n_bytes: float) -> str:
    """Bytes for people in binary units: `"1.50 KiB"`."""
    unit, factor = size_unit(n_bytes)
    return f"{n_bytes:.0f} B" if factor == 1 else f"{n_bytes / factor:.2f} {unit}"


def size_unit(n_bytes: float) -> tuple[str, int]:
    """The binary unit in which a number of bytes reads best, and how many bytes it is."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(n_bytes) >= factor:
            return unit, factor
    return "B", 1


def duration(seconds: float) -> str:
    """Seconds for people: `"18.4 ms"`, `"1.25 s"`."""
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
