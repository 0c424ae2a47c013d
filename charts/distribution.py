"""The next-token distribution of a step: raw against after the settings, and which setting removed what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import NDArray

from charts.base import MONO, Chart, Palette, Translate, base_figure, check_step, empty_chart, percent
from charts.labels import escape, in_context, pending, shorten
from charts.stages import removed_by, settings_only, stages
from inference.errors import sentences
from inference.sampling import SamplingDecision
from inference.trace import Logits, Trace

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Rows:
    """What is drawn, one row a token, in the order of raw probability.

    Attributes:
        ids: [R] token ids, -1 for several tokens together; and `labels` their readable text.
        raw: [R] raw probabilities.
        after: [R] probabilities after the settings, or `None` where they cannot be known.
        removed: [R] the setting that removed each token, or an empty text.
        chosen: [R] bool, true for the token that was chosen.
    """

    ids: NDArray[np.int64]
    labels: tuple[str, ...]
    raw: Floats
    after: Floats | None
    removed: tuple[str, ...]
    chosen: NDArray[np.bool_]

    @property
    def longest(self) -> Floats:
        """[R] the end of each row's longest bar."""
        return self.raw if self.after is None else np.maximum(self.raw, self.after)

    @property
    def is_removed(self) -> NDArray[np.bool_]:
        """[R] whether a setting removed the token."""
        return np.array([bool(name) for name in self.removed])


def distribution(trace: Trace, step: int, *, palette: Palette, t: Translate, n: int = 14) -> Chart:
    """The likeliest tokens of a step and the chosen one, with raw probabilities and those after the settings.

    Args:
        n: how many tokens; the chosen one is always among them.

    Raises:
        TraceError: the run has no such step.
    """
    check_step(trace, step)
    title = t("Next-token distribution")
    logits = trace.steps[step].logits
    if logits is None:
        return empty_chart(title, t("This run holds no logits, so there is no distribution to draw."), palette)
    rows = select_rows(trace, step, logits, n)
    return Chart(draw_rows(rows, palette, t), _table(rows, t), _describe(trace, step, rows, t), title)


def select_rows(trace: Trace, step: int, logits: Logits, n: int) -> Rows:
    """The `n` tokens with the longest bars, raw or after the settings, and the chosen one."""
    found = stages(trace, step)
    shaping = settings_only(found) if found else []
    after = shaping[-1].probs if len(shaping) > 1 else None
    decision = trace.steps[step].decision
    ids = _longest(logits, decision, after, n)
    before = pending(trace.tokens[: trace.n_prompt + step])
    return Rows(
        ids=ids,
        labels=tuple(in_context(trace.vocabulary.token(int(i)), before) for i in ids),
        raw=_raw(logits, decision, ids),
        after=None if after is None else after[ids],
        removed=tuple(removed_by(shaping, ids)),
        chosen=ids == decision.token_id,
    )


def _longest(logits: Logits, decision: SamplingDecision, after: Floats | None, n: int) -> NDArray[np.int64]:
    """[R] the ids to draw, in the order of raw probability."""
    known = logits.top(n)[0]
    if after is not None:
        left = np.flatnonzero(after)
        known = np.union1d(known, left[np.argsort(-after[left], kind="stable")[:n]])
    raw = _raw(logits, decision, known)
    ends = raw if after is None else np.maximum(raw, after[known])
    best = known[np.lexsort((known, -ends))][:n]
    if decision.token_id not in best:
        best = np.append(best[: n - 1], decision.token_id)
    return best[np.lexsort((best, -_raw(logits, decision, best)))].astype(np.int64)


def _raw(logits: Logits, decision: SamplingDecision, ids: NDArray[np.int64]) -> Floats:
    """[R] raw probabilities of ids that the record holds; that of the chosen one is always known."""
    if logits.ids is None:
        return logits.probs_of(logits.values[ids])
    known = dict(zip(logits.ids.tolist(), logits.probs_of(logits.values).tolist(), strict=True))
    known[decision.token_id] = decision.raw_prob
    return np.array([known[i] for i in ids.tolist()], dtype=np.float32)


def draw_rows(rows: Rows, palette: Palette, t: Translate) -> go.Figure:
    """One row a token: raw as a wide quiet bar, after the settings as a thin one on it, the chosen one in bold."""
    figure = base_figure(palette, barmode="overlay", bargap=0)
    removed = rows.is_removed
    texts = _hover(rows, t)
    bar = _bars(figure, np.arange(len(rows.ids)), texts)
    stripes = {"shape": "/", "fgcolor": palette.quiet, "bgcolor": "rgba(0,0,0,0)", "size": 6, "solidity": 0.45}
    bar(t("raw"), rows.raw, ~removed, 0.78, {"color": palette.quiet, "opacity": 0.55})
    if removed.any():
        outline = {"color": palette.quiet, "width": 1}
        bar(t("removed"), rows.raw, removed, 0.78, {"color": "rgba(0,0,0,0)", "line": outline, "pattern": stripes})
    if rows.after is not None:
        bar(t("after settings"), rows.after, ~removed, 0.4, {"color": palette.categorical[1]})
    figure.add_scatter(
        x=rows.longest,
        y=np.arange(len(rows.ids)),
        mode="text",
        text=_ends(rows),
        textposition="middle right",
        textfont={"color": palette.muted, "size": 11},
        cliponaxis=False,
        hoverinfo="skip",
        showlegend=False,
    )
    ticks = [f"<b>▸ {label}</b>" if chosen else label for label, chosen in zip(_ticks(rows), rows.chosen, strict=True)]
    figure.update_yaxes(
        tickmode="array",
        tickvals=np.arange(len(rows.ids)),
        ticktext=ticks,
        tickfont={"family": MONO, "color": palette.text},
        range=[len(rows.ids) - 0.4, -0.6],
        ticklabelstandoff=6,
        showgrid=False,
        fixedrange=True,
    )
    figure.update_xaxes(
        tickformat=".0%", range=[0, float(rows.longest.max()) * 1.22], nticks=6, tickangle=0, fixedrange=True
    )
    return figure


def _bars(
    figure: go.Figure, at: NDArray[np.int64], texts: list[str]
) -> Callable[[str, Floats, NDArray[np.bool_], float, dict[str, object]], None]:
    """How a set of bars is added: name, lengths [R], which of them, thickness and marker."""

    def add(name: str, lengths: Floats, which: NDArray[np.bool_], width: float, marker: dict[str, object]) -> None:
        figure.add_bar(
            name=name,
            x=lengths[which],
            y=at[which],
            width=width,
            orientation="h",
            marker=marker,
            hovertext=[texts[i] for i in np.flatnonzero(which)],
            hoverinfo="text",
        )

    return add


def _ticks(rows: Rows) -> list[str]:
    return [escape(shorten(label)) for label in rows.labels]


def _ends(rows: Rows) -> list[str]:
    """What stands at the end of each row: the share that is left, or the setting that removed the token."""
    shares = rows.raw if rows.after is None else rows.after
    return ["\u2002" + (name or percent(float(share))) for name, share in zip(rows.removed, shares, strict=True)]


def _hover(rows: Rows, t: Translate) -> list[str]:
    texts = []
    for at, token_id in enumerate(rows.ids):
        lines = [f"<b>{escape(rows.labels[at])}</b>"]
        if token_id >= 0:
            lines.append(t("id {id}").format(id=token_id))
        lines.append(t("raw {share}").format(share=percent(float(rows.raw[at]))))
        if rows.removed[at]:
            lines.append(t("removed by {setting}").format(setting=rows.removed[at]))
        elif rows.after is not None:
            lines.append(t("after settings {share}").format(share=percent(float(rows.after[at]))))
        if rows.chosen[at]:
            lines.append(t("chosen"))
        texts.append("<br>".join(lines))
    return texts


def _table(rows: Rows, t: Translate) -> pd.DataFrame:
    columns: dict[str, object] = {t("token"): list(rows.labels), t("id"): rows.ids, t("raw probability"): rows.raw}
    if rows.after is not None:
        columns[t("after settings")] = rows.after
        columns[t("removed by")] = list(rows.removed)
    return pd.DataFrame({**columns, t("chosen"): rows.chosen})


def _describe(trace: Trace, step: int, rows: Rows, t: Translate) -> str:
    decision, logits = trace.steps[step].decision, trace.steps[step].logits
    if decision.forced:
        text = t("Step {step}: “{token}” (rank {rank}) was put in by hand; its raw probability was {raw}.")
    elif trace.sampling.is_greedy:
        text = t("Step {step}: greedy decoding took “{token}” (rank {rank}), whose raw probability was {raw}.")
    else:
        text = t(
            "Step {step}: “{token}” (rank {rank}) was drawn with probability {prob}, raw {raw}; "
            "candidates left by the settings: {kept}."
        )
    said = text.format(
        step=step,
        token=trace.vocabulary.token(decision.token_id).display,
        rank=decision.rank,
        raw=percent(decision.raw_prob),
        prob=percent(decision.prob),
        kept=f"{decision.n_kept:,}",
    )
    if rows.after is None and logits is not None and not logits.whole and trace.sampling.steps():
        note = t("Probabilities after the settings need more logits than the {n} highest, which this run holds.")
        said = sentences([said, note.format(n=f"{len(logits.values):,}")], t)
    return said
