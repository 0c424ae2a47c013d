"""A request's figures of speed, and how its inter-token latencies are spread."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from charts.base import Chart, Palette, Translate, base_figure, duration, empty_chart
from charts.metrics import Metric
from inference.metrics import Speed

MOST_BINS = 30


def speed_metrics(speed: Speed, t: Translate) -> tuple[Metric, ...]:
    """TTFT, TPOT, ITL, and the three kinds of tokens a second."""
    return _latencies(speed, t) + _rates(speed, t)


def typed_metrics(speed: Speed, t: Translate) -> tuple[Metric, ...]:
    """TTFT, TPOT, decode and request tokens a second: all that a few typed times say."""
    return _latencies(speed, t)[:2] + _rates(speed, t)[1:]


def _latencies(speed: Speed, t: Translate) -> tuple[Metric, ...]:
    needs_two = t("needs two tokens")
    p50, p95 = (speed.itl_percentile_s(p) for p in (50, 95))
    itl = "–" if p50 is None else duration(p50)
    ttft_note = t("not of a branch") if speed.ttft_s is None else t("from the request to token 1")
    tpot_note = needs_two if speed.tpot_s is None else f"(t_N − t_1) ÷ {speed.n - 1}"
    itl_note = needs_two if p95 is None else t("median; 95 % below {p95}").format(p95=duration(p95))
    return (
        Metric("TTFT", _or_dash(speed.ttft_s, duration), ttft_note, t("Time to first token: when token 1 was known.")),
        Metric(
            "TPOT", _or_dash(speed.tpot_s, duration), tpot_note, t("Time per output token after the first: the mean.")
        ),
        Metric("ITL", itl, itl_note, t("Inter-token latency: the time from each token to the next.")),
    )


def _rates(speed: Speed, t: Translate) -> tuple[Metric, ...]:
    needs_two = t("needs two tokens")
    prefill = t("not of a branch") if speed.prefill_tok_s is None else t("{n} prompt tokens in {s}")
    if speed.prefill_s is not None:
        prefill = prefill.format(n=speed.n_prompt, s=duration(speed.prefill_s))
    decode = needs_two if speed.decode_tok_s is None else "1 ÷ TPOT"
    whole = t("{n} tokens ÷ {s}").format(n=speed.n, s=duration(float(speed.at_s[-1])))
    if speed.request_tok_s is None:
        whole = t("not of a branch")
    return (
        Metric(
            t("Prefill tok/s"),
            _or_dash(speed.prefill_tok_s, _rate),
            prefill,
            t("Prompt tokens a second of the prefill passes."),
        ),
        Metric(t("Decode tok/s"), _or_dash(speed.decode_tok_s, _rate), decode, t("Tokens a second after the first.")),
        Metric(
            t("Request tok/s"),
            _or_dash(speed.request_tok_s, _rate),
            whole,
            t("Tokens a second of the whole request, the wait for the first one included."),
        ),
    )


def why_they_differ(speed: Speed, t: Translate) -> str:
    """One sentence: why decode and the whole request differ; empty where one of them is not known."""
    decode, request, ttft = speed.decode_tok_s, speed.request_tok_s, speed.ttft_s
    if decode is None or request is None or ttft is None:
        return ""
    said = t(
        "After the first token {decode} tok/s; over the whole request {request}, because {share:.0%} of its time "
        "passes before the first token."
    )
    share = ttft / float(speed.at_s[-1])
    return said.format(decode=_rate(decode), request=_rate(request), share=share)


def itl_histogram(speed: Speed, *, palette: Palette, t: Translate) -> Chart:
    """How many inter-token latencies fall into each stretch of time; lines at the median and at p95. As recorded."""
    title = t("Inter-token latency")
    if speed.n < 2:
        return empty_chart(title, t("Needs two tokens."), palette)
    ms = speed.itl_s * 1e3
    low, high = (float(ms.min()), float(ms.max())) if ms.max() > ms.min() else (ms[0] - 0.5, ms[0] + 0.5)
    counts, edges = np.histogram(ms, bins=min(MOST_BINS, max(5, len(ms) // 2)), range=(low, high))
    figure = base_figure(palette, showlegend=False, bargap=0.06)
    figure.add_bar(
        x=((edges[:-1] + edges[1:]) / 2).astype(np.float32),
        y=counts,
        width=np.diff(edges).astype(np.float32) * 0.94,
        marker={"color": palette.categorical[0]},
        customdata=np.stack([edges[:-1], edges[1:]], axis=1),
        hovertemplate="%{customdata[0]:.2f} – %{customdata[1]:.2f} ms<br>%{y}<extra></extra>",
    )
    p50, p95 = (float(np.percentile(ms, p)) for p in (50, 95))
    for place, (name, x, dash) in enumerate((("p50", p50, "solid"), ("p95", p95, "dash"))):
        line = {"color": palette.text, "width": 1.5, "dash": dash}
        figure.add_shape(type="line", x0=x, x1=x, y0=0, y1=1, yref="y domain", line=line)
        figure.add_annotation(
            x=x, y=1, yref="y domain", yanchor="bottom", xanchor="right" if place == 0 else "left", text=name,
            showarrow=False, font={"color": palette.muted, "size": 12},
        )  # fmt: skip
    figure.update_xaxes(title_text="ms", nticks=7, showgrid=False)
    figure.update_yaxes(title_text=t("tokens"), nticks=6, tickformat="d", rangemode="tozero")
    table = pd.DataFrame({t("from (ms)"): edges[:-1].round(3), t("to (ms)"): edges[1:].round(3), t("tokens"): counts})
    said = t("As recorded: half of the {n} tokens after the first came within {p50}, 95 % within {p95}.")
    description = said.format(n=len(ms), p50=duration(p50 / 1e3), p95=duration(p95 / 1e3))
    return Chart(figure, table, description, title)


def _rate(value: float) -> str:
    return f"{value:,.1f}"


def _or_dash(value: float | None, written: Callable[[float], str]) -> str:
    return "–" if value is None else written(value)
