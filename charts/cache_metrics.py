"""The figures of one step's cache: what was computed, what was reused, what is held, what was added."""

from __future__ import annotations

import numpy as np

from charts.base import Translate, check_step, size
from charts.metrics import Metric
from charts.trend import trend
from inference.trace import Trace


def cache_metrics(trace: Trace, step: int, t: Translate) -> tuple[Metric, ...]:
    """Positions computed and reused in a step, bytes held after it and bytes added by it.

    Raises:
        TraceError: the run has no such step.
    """
    check_step(trace, step)
    computed = np.array([len(one.fed_ids) for one in trace.steps])
    reused = np.concatenate([[0], trace.kv.positions[:-1].max(axis=1, initial=0)])
    held = trace.kv.nbytes.sum(axis=1)
    added = np.diff(held, prepend=0)
    layers = int((trace.kv.positions[step] > 0).sum())
    total = np.cumsum(computed)
    return (
        Metric(
            t("Computed in this step"),
            f"{computed[step]:,}",
            t("positions, in {layers} layers each").format(layers=layers),
            t("Positions whose keys and values this step's pass computed: the whole prompt in prefill, one in decode."),
            trend(np.log(computed), step),
        ),
        Metric(
            t("Reused from the cache"),
            f"{reused[step]:,}",
            t("without a cache: all {n} again").format(n=f"{total[step]:,}"),
            t("Positions whose keys and values were read and not computed again."),
            trend(reused, step),
        ),
        Metric(
            t("Held after it"),
            size(int(held[step])),
            t("{n} bytes").format(n=f"{held[step]:,}"),
            t("Bytes of the cache's own tensors after this step; the token just chosen is not in it yet."),
            trend(held, step),
        ),
        Metric(
            t("Grown by"),
            ("−" if added[step] < 0 else "") + size(abs(int(added[step]))),
            t("the prefill's block") if step == 0 else t("this decode step's increment"),
            t("The prefill writes one large block; each decode step adds one position in every layer."),
            trend(np.log(np.maximum(added, 1)), step),
        ),
    )
