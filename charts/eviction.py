"""What policies that drop positions do: the size of the cache over time, and the probability of one continuation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from charts.base import Chart, Palette, Translate, size, size_unit
from charts.series import Series, line_figure
from inference.errors import listed

if TYPE_CHECKING:
    from inference.eviction import Evictions, PolicyRun


def policy_name(run: PolicyRun, t: Translate) -> str:
    """A policy's name for people."""
    names = {
        "none": t("No limit"),
        "stop": t("Stop"),
        "window": t("Sliding window"),
        "sinks": t("First {n} and newest").format(n=run.rule.sinks),
        "clear": t("Clear all"),
    }
    return names[run.rule.policy]


def cache_over_time(found: Evictions, *, palette: Palette, t: Translate) -> Chart:
    """Bytes held after each step's pass and the drop that followed it, a line a policy."""
    runs = (found.unlimited, *found.runs)
    unit, factor = size_unit(max(int(run.nbytes.max()) for run in runs))
    series = [Series(policy_name(run, t), run.nbytes / factor) for run in runs]
    figure = line_figure(series, unit, palette=palette, t=t)
    columns = {policy_name(run, t): pd.Series(run.positions) for run in runs}
    table = pd.DataFrame(columns, dtype="Int64").rename_axis(t("step")).reset_index()
    limit = found.runs[0].rule.limit
    each = int(found.unlimited.nbytes[0]) // int(found.unlimited.positions[0])
    said = t("The limit is {limit} positions, {size}; without it the cache ends at {end}. The table has positions.")
    return Chart(
        figure,
        table,
        said.format(limit=limit, size=size(limit * each), end=size(int(found.unlimited.nbytes[-1]))),
        t("Cache size over time"),
    )


def continuation(found: Evictions, *, palette: Palette, t: Translate) -> Chart:
    """Log-probability of the unlimited run's tokens under each policy, summed over the steps; lower is less likely."""
    runs = (found.unlimited, *found.runs)
    sums = [np.cumsum(run.logprobs) for run in runs]
    series = [Series(policy_name(run, t), total) for run, total in zip(runs, sums, strict=True)]
    figure = line_figure(series, t("nats"), palette=palette, t=t)
    figure.update_yaxes(rangemode="normal")
    table = pd.DataFrame({one.name: one.values.round(3) for one in series}).rename_axis(t("step")).reset_index()
    costs = [
        t("{policy}: {cost:+.1f}").format(policy=one.name, cost=float(one.values[-1] - sums[0][-1]))
        for one in series[1:]
        if np.isfinite(one.values[-1])
    ]
    said = t("Log-probability of the same {n} tokens, summed: {total:.1f} nats without a limit. Against it: {costs}.")
    described = said.format(n=len(sums[0]), total=float(sums[0][-1]), costs=listed(costs, t))
    return Chart(figure, table, described, t("The same continuation, under each policy"))
