"""A Plotly figure as a still picture, for paper."""

from __future__ import annotations

from charts.base import Chart, Translate
from ui.components.mount import mount

_PAPER_FIGURE = mount("paper_figure", "plotly_script")


def paper_figure(chart: Chart, *, width: int, t: Translate, key: str) -> None:
    """Draw the chart's figure once, laid out `width` pixels wide; it then fills the width that it is given."""
    data = {
        "figure": chart.figure.to_json(),
        "width": width,
        "height": int(chart.figure.layout.height),
        "alt": f"{chart.title}. {chart.description}",
        "failed": t("The figure could not be drawn."),
    }
    _PAPER_FIGURE(key=key, data=data)
