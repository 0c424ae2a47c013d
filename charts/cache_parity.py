"""A run with a cache and without: time a step, positions projected, and the distance of the logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from charts.base import Chart, Palette, Translate, duration
from charts.series import Series, line_figure
from inference.cache_counts import dot_products, projected
from inference.errors import sentences

if TYPE_CHECKING:
    from inference.no_cache import Parity


def step_times(parity: Parity, *, palette: Palette, t: Translate) -> Chart:
    """Milliseconds of each step's forward pass, both ways."""
    both = ((t("with the cache"), parity.cached_s), (t("without"), parity.uncached_s))
    figure = line_figure([Series(name, s * 1e3) for name, s in both], "ms", palette=palette, t=t)
    table = pd.DataFrame(
        {
            t("step"): np.arange(len(parity.cached_s)),
            t("with the cache (ms)"): (parity.cached_s * 1e3).round(2),
            t("without (ms)"): (parity.uncached_s * 1e3).round(2),
        }
    )
    with_s, without_s = (float(np.median(s[1:] if len(s) > 1 else s)) for _, s in both)
    said = t("A decode step takes {with_cache} with the cache and {without} without (medians), {ratio:.1f} × as long.")
    values = {"with_cache": duration(with_s), "without": duration(without_s), "ratio": without_s / with_s}
    return Chart(figure, table, said.format(**values), t("Time a step"))


def work_counts(parity: Parity, *, palette: Palette, t: Translate) -> Chart:
    """Positions projected to keys and values, summed over the steps; the table has the dot products too."""
    n_prompt, n_new = parity.n_prompt, len(parity.cached_s)
    cached, uncached = (np.cumsum(projected(n_prompt, n_new, cached=way)) for way in (True, False))
    series = [Series(t("with the cache"), cached.astype(float)), Series(t("without"), uncached.astype(float))]
    figure = line_figure(series, t("positions projected, in all"), palette=palette, t=t, decimals=0)
    table = pd.DataFrame(
        {
            t("step"): np.arange(n_new),
            t("projected with the cache"): cached,
            t("projected without"): uncached,
            t("dot products of new queries, both ways"): np.cumsum(dot_products(n_prompt, n_new, cached=True)),
            t("dot products without, repeated ones too"): np.cumsum(dot_products(n_prompt, n_new, cached=False)),
        }
    )
    said = t(
        "In {n} steps every layer projected {cached:,} positions to keys and values with the cache, "
        "{uncached:,} without."
    ).format(n=n_new, cached=int(cached[-1]), uncached=int(uncached[-1]))
    return Chart(figure, table, said, t("Keys and values projected"))


def logit_distance(parity: Parity, *, palette: Palette, t: Translate) -> Chart:
    """Largest absolute difference of two logits at each step, on a logarithmic axis, with what rounding explains."""
    shown = np.where(parity.difference > 0, parity.difference, np.nan)
    limit = np.full(len(shown), parity.tolerance)
    series = [Series(t("largest difference"), shown), Series(t("explained by rounding"), limit)]
    figure = line_figure(series, t("logits"), palette=palette, t=t, log=True)
    figure.data[1].update(mode="lines")
    table = pd.DataFrame(
        {
            t("step"): np.arange(len(shown)),
            t("largest difference"): parity.difference,
            t("token with the cache"): parity.cached_ids,
            t("token without"): parity.uncached_ids,
            t("same token"): parity.cached_ids == parity.uncached_ids,
        }
    )
    return Chart(figure, table, _said(parity, t), t("Distance of the logits"))


def _said(parity: Parity, t: Translate) -> str:
    largest = float(parity.difference.max())
    if largest <= parity.tolerance:
        said = t("The logits differ by at most {largest:.1e}, which rounding explains (up to {limit:.0e}).")
    else:
        said = t("The logits differ by {largest:.1e}, more than rounding explains (up to {limit:.0e}).")
    apart = np.flatnonzero(parity.cached_ids != parity.uncached_ids)
    tokens = t("Both ways choose the same token at every step.")
    if len(apart):
        tokens = t("They choose different tokens at {n} of {all} steps, first at step {step}.").format(
            n=len(apart), all=len(parity.difference), step=apart[0]
        )
    exact = int((parity.difference == 0).sum())
    equal = [t("Equal to the bit at {n} of {all} steps.").format(n=exact, all=len(parity.difference))] if exact else []
    return sentences([said.format(largest=largest, limit=parity.tolerance), *equal, tokens], t)
