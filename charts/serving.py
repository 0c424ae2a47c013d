"""Simulated schedules: what becomes of each request under each policy, and how long it waits for its tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from charts.base import Chart, Palette, Translate, base_figure, duration, percent
from charts.metrics import Metric
from charts.sweep_times import place_text
from inference.errors import N_, sentences
from inference.measured import Place
from inference.serving import Kind, Schedule, Served

POLICIES = {
    "one": N_("One at a time"),
    "static": N_("Static batches"),
    "continuous": N_("Continuous batch"),
    "chunked": N_("Continuous, prefill in chunks"),
}
HOW = {
    "one": N_("Each request alone; the next begins when it has ended."),
    "static": N_("A whole batch runs until its longest answer has ended; rows that ended keep their place."),
    "continuous": N_(
        "A request joins when a slot is free and leaves with its last token; its prefill stops the others."
    ),
    "chunked": N_("As continuous, but a prefill is fed in pieces, and the others take a step after each."),
}
NAMES: dict[Kind, str] = {
    "waiting": N_("waiting"),
    "prefill": N_("prefill"),
    "decode": N_("decode"),
    "stalled": N_("stands still for others"),
    "padding": N_("wasted place"),
}
PITCH = 20  # px a row
PATTERNS = ("", "/", ".", "x")  # of the policies' bars


def serving_metrics(schedules: Sequence[Schedule], t: Translate) -> tuple[Metric, ...]:
    """Throughput of each policy, with when it was done and what its requests waited."""
    return tuple(_metric(schedule, t) for schedule in schedules)


def _metric(schedule: Schedule, t: Translate) -> Metric:
    ttft = float(np.mean([one.ttft_s for one in schedule.served]))
    said = t("done after {end} · mean TTFT {ttft}").format(end=duration(schedule.makespan_s), ttft=duration(ttft))
    if schedule.n_padded:
        said += " · " + t("{share} padding").format(share=percent(schedule.padded_share))
    return Metric(t(POLICIES[schedule.policy]), f"{schedule.throughput:,.1f} tok/s", said, t(HOW[schedule.policy]))


def schedule_chart(schedules: Sequence[Schedule], place: Place, *, palette: Palette, t: Translate) -> Chart:
    """Requests against time, a block of rows a policy: bars by what became of each, marks at first tokens."""
    n = len(schedules[0].served)
    figure = base_figure(palette, barmode="overlay", bargap=0)
    pitch, end = n + 1.5, max(one.spans[-1].end_s for schedule in schedules for one in schedule.served)
    placed = [
        (block * pitch + row, row, one)
        for block, schedule in enumerate(schedules)
        for row, one in enumerate(schedule.served)
    ]
    for kind in NAMES:
        _bars(figure, placed, kind, palette, t)
    _first_tokens(figure, placed, palette, t)
    for block, schedule in enumerate(schedules):
        figure.add_annotation(
            x=0, y=block * pitch - 0.55, xref="x domain", xanchor="left", yanchor="bottom", showarrow=False,
            text=f"<b>{t(POLICIES[schedule.policy])}</b>", font={"color": palette.text, "size": 13},
        )  # fmt: skip
    labels = [f"{row + 1} · {one.request.n_prompt} → {one.request.n_new}" for _, row, one in placed]
    rows = len(schedules) * pitch
    figure.update_yaxes(
        tickvals=[y for y, _, _ in placed],
        ticktext=labels,
        range=[rows - 1, -1.8],
        showgrid=False,
        fixedrange=True,
        ticklabelstandoff=6,
    )
    figure.update_xaxes(title_text=t("seconds"), range=[0, end * 1.01], nticks=10)
    figure.update_layout(height=int(96 + PITCH * (rows + 1)))
    return Chart(figure, serving_table(schedules, t), _said(schedules, place, t), t("Who is served when"))


def _looks(palette: Palette) -> dict[Kind, tuple[str, float, str]]:
    """Colour, thickness and pattern of each kind of bar."""
    colours = palette.categorical
    return {
        "waiting": (palette.quiet, 0.16, ""),
        "prefill": (colours[2], 0.8, ""),
        "decode": (colours[0], 0.8, ""),
        "stalled": (colours[3], 0.3, ""),
        "padding": (palette.muted, 0.8, "/"),
    }


def _bars(
    figure: go.Figure, placed: Sequence[tuple[float, int, Served]], kind: Kind, palette: Palette, t: Translate
) -> None:
    colour, width, pattern = _looks(palette)[kind]
    found = [(y, row, span) for y, row, one in placed for span in one.spans if span.kind == kind]
    if not found:
        return
    starts = np.array([span.start_s for _, _, span in found])
    took = np.array([span.end_s - span.start_s for _, _, span in found])
    marker = {"color": colour, "line": {"width": 0}}
    if pattern:
        marker |= {"pattern": {"shape": pattern, "fgcolor": colour, "bgcolor": "rgba(0,0,0,0)", "size": 5}}
    figure.add_bar(
        orientation="h",
        name=t(NAMES[kind]),
        y=np.array([y for y, _, _ in found]),
        x=took,
        base=starts,
        width=width,
        marker=marker,
        customdata=[[row + 1, f"{start:.3f}", f"{start + s:.3f}", duration(s)]
                    for (_, row, _), start, s in zip(found, starts, took, strict=True)],
        hovertemplate=t("request {n}: {kind}, {start} – {end} s ({took})").format(
            n="%{customdata[0]}", kind=t(NAMES[kind]), start="%{customdata[1]}", end="%{customdata[2]}",
            took="%{customdata[3]}",
        ) + "<extra></extra>",
    )  # fmt: skip


def _first_tokens(
    figure: go.Figure, placed: Sequence[tuple[float, int, Served]], palette: Palette, t: Translate
) -> None:
    marker = {
        "symbol": "diamond",
        "size": 9,
        "color": palette.background,
        "line": {"color": palette.text, "width": 1.5},
    }
    figure.add_scatter(
        name=t("first token"),
        mode="markers",
        x=[one.token_s[0] for _, _, one in placed],
        y=[y for y, _, _ in placed],
        marker=marker,
        customdata=[[row + 1, duration(one.ttft_s)] for _, row, one in placed],
        hovertemplate=t("request {n}: first token, TTFT {ttft}").format(n="%{customdata[0]}", ttft="%{customdata[1]}")
        + "<extra></extra>",
    )


def latency_chart(schedules: Sequence[Schedule], *, palette: Palette, t: Translate) -> Chart:
    """TTFT of every request, above, and its TPOT, below, under each policy; a bar a policy."""
    figure = base_figure(palette, bargap=0.25)
    x = np.arange(1, len(schedules[0].served) + 1)
    for at, schedule in enumerate(schedules):
        name = t(POLICIES[schedule.policy])
        look = {"color": palette.categorical[at * 2], "pattern": {"shape": PATTERNS[at], "size": 5, "solidity": 0.3}}
        ttft = np.array([one.ttft_s for one in schedule.served])
        tpot = np.array([np.nan if one.tpot_s is None else one.tpot_s * 1e3 for one in schedule.served])
        for values, unit, axis in ((ttft, "s", "y"), (tpot, "ms", "y2")):
            figure.add_bar(
                name=name, x=x, y=values, yaxis=axis, marker=look, offsetgroup=at, legendgroup=at,
                showlegend=axis == "y", hovertemplate=f"{name}: %{{y:,.2f}} {unit}<extra></extra>",
            )  # fmt: skip
    figure.update_layout(yaxis2=figure.layout.yaxis.to_plotly_json() | {"domain": [0, 0.42]})
    figure.update_yaxes(title_text="TTFT, s", domain=[0.54, 1], nticks=5, rangemode="tozero", selector=0)
    figure.update_yaxes(title_text="TPOT, ms", nticks=5, rangemode="tozero", selector=1)
    figure.update_xaxes(title_text=t("request"), anchor="y2", tickvals=x, ticktext=[str(i) for i in x], showgrid=False)
    return Chart(figure, _totals(schedules, t), _shortest(schedules, t), t("What each request waits"))


def serving_table(schedules: Sequence[Schedule], t: Translate) -> pd.DataFrame:
    """One row a policy and request."""
    rows = []
    for schedule in schedules:
        for number, one in enumerate(schedule.served, start=1):
            tpot = t("needs two tokens") if one.tpot_s is None else f"{one.tpot_s * 1e3:.1f}"
            rows.append(
                {
                    t("policy"): t(POLICIES[schedule.policy]),
                    t("request"): number,
                    t("arrival (s)"): round(one.request.arrival_s, 3),
                    t("prompt tokens"): one.request.n_prompt,
                    t("new tokens"): one.request.n_new,
                    t("waits (s)"): round(one.queue_s, 3),
                    t("TTFT (s)"): round(one.ttft_s, 3),
                    t("TPOT (ms)"): tpot,
                    t("done (s)"): round(one.finish_s, 3),
                }
            )
    return pd.DataFrame(rows)


def _totals(schedules: Sequence[Schedule], t: Translate) -> pd.DataFrame:
    """One row a policy: means over its requests, and what they make together."""
    rows = []
    for schedule in schedules:
        tpots = [one.tpot_s for one in schedule.served if one.tpot_s is not None]
        rows.append(
            {
                t("policy"): t(POLICIES[schedule.policy]),
                t("mean wait (s)"): round(float(np.mean([one.queue_s for one in schedule.served])), 3),
                t("mean TTFT (s)"): round(float(np.mean([one.ttft_s for one in schedule.served])), 3),
                t("mean TPOT (ms)"): f"{np.mean(tpots) * 1e3:.1f}" if tpots else t("needs two tokens"),
                t("tokens"): schedule.n_tokens,
                t("all done after (s)"): round(schedule.makespan_s, 3),
                t("tok/s, all together"): round(schedule.throughput, 2),
                t("positions fed"): schedule.n_fed,
                t("of them padding"): schedule.n_padded,
            }
        )
    return pd.DataFrame(rows)


def _said(schedules: Sequence[Schedule], place: Place, t: Translate) -> str:
    begins = t("A simulation from passes measured on {place}; the labels say prompt → new tokens.")
    ends = [
        t("{policy}: done after {end}, {speed} tok/s.").format(
            policy=t(POLICIES[one.policy]), end=duration(one.makespan_s), speed=f"{one.throughput:,.1f}"
        )
        for one in schedules
    ]
    return sentences([begins.format(place=place_text(place, t)), *ends], t)


def _shortest(schedules: Sequence[Schedule], t: Translate) -> str:
    """Which policies have the shortest mean TTFT and TPOT."""
    ttft = min(schedules, key=lambda schedule: float(np.mean([one.ttft_s for one in schedule.served])))
    said = t("Simulated: requests see their first token soonest with “{policy}”, after {ttft} on average.").format(
        policy=t(POLICIES[ttft.policy]), ttft=duration(float(np.mean([one.ttft_s for one in ttft.served])))
    )
    means = {
        schedule.policy: float(np.mean([one.tpot_s for one in schedule.served if one.tpot_s is not None]))
        for schedule in schedules
        if any(one.tpot_s is not None for one in schedule.served)
    }
    if not means:
        return sentences([said, t("A TPOT needs two tokens.")], t)
    best, worst = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    after = t("From then on “{best}” is the fastest, {least} a token, and “{worst}” the slowest, {most}.").format(
        best=t(POLICIES[best]), least=duration(means[best]), worst=t(POLICIES[worst]), most=duration(means[worst])
    )
    return sentences([said, after], t)
