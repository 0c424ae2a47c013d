"""The figures of one step for people: each with its unit, what it was made of, and its trend over the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from charts.base import Translate, check_step, duration, percent, size
from charts.trend import Trend, trend
from inference.trace import StepRecord, Trace

SHOWN_BYTES = 4


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure: `value` large, `note` below it, `help` in a sentence; `trend` is `None` for a token."""

    label: str
    value: str
    note: str
    help: str
    trend: Trend | None = None


def metrics(trace: Trace, step: int, t: Translate) -> tuple[Metric, ...]:
    """Token, probability, entropy, step time, KV cache and speed at a step.

    Raises:
        TraceError: the run has no such step.
    """
    check_step(trace, step)
    return tuple(make(trace, step, t) for make in _STEP_METRICS)


def running_metrics(trace: Trace, step: int, t: Translate) -> tuple[Metric, ...]:
    """Log-probability of everything generated up to a step (the chain rule), and its perplexity.

    log P = Σ log p of the tokens; perplexity = exp(-log P / n), the geometric mean of 1 / p.
    """
    check_step(trace, step)
    total = np.cumsum([s.decision.raw_logprob for s in trace.steps])
    perplexity = np.exp(-total / np.arange(1, len(total) + 1))
    n = step + 1
    return (
        Metric(
            t("Log-probability so far"),
            t("{value} nats").format(value=f"{total[step]:.2f}"),
            t("sum over {n} tokens; this one {value}").format(
                n=n, value=f"{trace.steps[step].decision.raw_logprob:+.2f}"
            ),
            t("The chain rule: the log-probability of the text is the sum of its tokens' raw log-probabilities."),
            trend(total, step),
        ),
        Metric(
            t("Perplexity so far"),
            f"{perplexity[step]:.2f}",
            t("exp({value} ÷ {n})").format(value=f"{-total[step]:.2f}", n=n),
            t("The model was as unsure as if it had chosen among this many equally likely tokens each time."),
            trend(perplexity, step),
        ),
    )


def step_seconds(step: StepRecord) -> float:
    """Seconds of a step without its recording: the forward pass and the choice."""
    return step.timing.forward_s + step.timing.sampling_s


def _token(trace: Trace, step: int, t: Translate) -> Metric:
    token = trace.vocabulary.token(trace.steps[step].token_id)
    spelled = token.data[:SHOWN_BYTES].hex(" ").upper() + ("…" if len(token.data) > SHOWN_BYTES else "")
    note = t("id {id} · bytes {bytes}").format(id=token.id, bytes=spelled)
    return Metric(t("Token"), token.display, note, t("The token chosen in this step, its id and its bytes."))


def _probability(trace: Trace, step: int, t: Translate) -> Metric:
    decision = trace.steps[step].decision
    note = t("after settings {share} · rank {rank}").format(share=percent(decision.prob), rank=f"{decision.rank:,}")
    raw = [s.decision.raw_prob for s in trace.steps]
    about = t("Raw probability of the chosen token; below it after the settings, and its rank before them.")
    return Metric(t("Probability"), percent(decision.raw_prob), note, about, trend(raw, step))


def _entropy(trace: Trace, step: int, t: Translate) -> Metric:
    decision = trace.steps[step].decision
    nats = t("{value} nats")
    note = t("after settings {value}").format(value=f"{decision.entropy:.2f}")
    raw = [s.decision.raw_entropy for s in trace.steps]
    about = t("How spread out the raw distribution is: 0 when one token is certain.")
    return Metric(t("Entropy"), nats.format(value=f"{decision.raw_entropy:.2f}"), note, about, trend(raw, step))


def _step_time(trace: Trace, step: int, t: Translate) -> Metric:
    timing = trace.steps[step].timing
    note = t("of which choosing {choice}").format(choice=duration(timing.sampling_s))
    seconds = np.log([step_seconds(s) for s in trace.steps])
    about = t(
        "Forward pass and choice, without the recording. The trend line is logarithmic: the prefill takes longest."
    )
    return Metric(t("Step time"), duration(step_seconds(trace.steps[step])), note, about, trend(seconds, step))


def _kv_cache(trace: Trace, step: int, t: Translate) -> Metric:
    held = trace.kv.nbytes.sum(axis=1)
    grown = int(held[step] - (held[step - 1] if step else 0))
    positions = int(trace.steps[step].kv.positions.max(initial=0))
    note = t("{growth} · {n} positions").format(growth=f"{'+' if grown >= 0 else '−'}{size(abs(grown))}", n=positions)
    about = t("Bytes of the cache's own tensors after this step; the token just chosen is not in it yet.")
    return Metric(t("KV cache"), size(int(held[step])), note, about, trend(held, step))


def _speed(trace: Trace, step: int, t: Translate) -> Metric:
    seconds = np.array([step_seconds(s) for s in trace.steps])
    speeds = np.concatenate([[np.nan], 1 / seconds[1:]])
    about = t("Tokens a second since the first token, without the recording; in the prefill, prompt tokens a second.")
    if step == 0:
        value = trace.n_prompt / seconds[0]
        note = t("prefill of {n} tokens").format(n=trace.n_prompt)
    else:
        value = step / seconds[1 : step + 1].sum()
        note = t("this step {value}").format(value=f"{speeds[step]:.1f}")
    return Metric(t("Tokens per second"), f"{value:,.1f}", note, about, trend(speeds, step))


_STEP_METRICS: tuple[Callable[[Trace, int, Translate], Metric], ...] = (
    _token, _probability, _entropy, _step_time, _kv_cache, _speed,
)  # fmt: skip
