"""Other settings over a recorded run: at which steps they would have chosen another token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from charts.base import Chart, Palette, Translate, base_figure, percent
from charts.labels import escape
from inference.counterfactual import Choice, parting
from inference.errors import sentences
from inference.trace import Trace


def whole_run(trace: Trace, found: Sequence[Choice], *, palette: Palette, t: Translate) -> Chart:
    """What the settings would choose at each step, with what probability, and where the texts part.

    Args:
        found: `inference.counterfactual.choices` of the trace.
    """
    at = parting(found)
    return Chart(_figure(trace, found, at, palette, t), _table(trace, found, t), _said(trace, found, at, t),
                 t("These settings over the whole run"))  # fmt: skip


def _figure(trace: Trace, found: Sequence[Choice], at: int | None, palette: Palette, t: Translate) -> go.Figure:
    figure = base_figure(palette)
    groups = {
        t("same token"): ([c for c in found if c.decision and not c.differs], "circle-open", palette.quiet),
        t("another token"): ([c for c in found if c.differs], "diamond", palette.categorical[3]),
        t("cannot be told"): ([c for c in found if c.decision is None], "x", palette.muted),
    }
    for name, (group, symbol, colour) in groups.items():
        if group:
            figure.add_scatter(
                name=name,
                x=[c.step for c in group],
                y=[c.decision.prob if c.decision else 0.0 for c in group],
                mode="markers",
                marker={"symbol": symbol, "size": 10, "color": colour, "line": {"width": 2}},
                hovertext=[_hover(trace, c, t) for c in group],
                hoverinfo="text",
            )
    if at is not None:
        figure.add_vline(
            x=at, line={"color": palette.categorical[3], "width": 1.5, "dash": "dot"},
            annotation={"text": escape(t("the texts part")), "font": {"color": palette.muted, "size": 12},
                        "xanchor": "left" if at < len(found) / 2 else "right"},
        )  # fmt: skip
    figure.update_xaxes(
        title_text=t("step"), range=[-0.6, len(found) - 0.4], nticks=10, tickformat="d", fixedrange=True
    )
    figure.update_yaxes(
        title_text=t("probability of the choice"), range=[-0.04, 1.08], tickformat=".0%", fixedrange=True
    )
    return figure


def _hover(trace: Trace, choice: Choice, t: Translate) -> str:
    lines = [t("step {step}").format(step=choice.step), f"<b>{escape(_word(trace, choice.recorded_id))}</b>"]
    if choice.decision is None:
        lines.append(t("cannot be told"))
    else:
        if choice.differs:
            lines[-1] += f" → <b>{escape(_word(trace, choice.decision.token_id))}</b>"
        lines.append(t("u {u:.3f}, probability {prob}").format(u=choice.u, prob=percent(choice.decision.prob)))
    return "<br>".join(lines)


def _table(trace: Trace, found: Sequence[Choice], t: Translate) -> pd.DataFrame:
    decisions = [c.decision for c in found]
    return pd.DataFrame(
        {
            t("step"): [c.step for c in found],
            t("recorded"): [_word(trace, c.recorded_id) for c in found],
            t("with these settings"): [_word(trace, d.token_id) if d else None for d in decisions],
            t("another token"): [c.differs for c in found],
            "u": [c.u for c in found],
            t("probability"): [d.prob if d else np.nan for d in decisions],
            t("candidates"): [d.n_kept if d else np.nan for d in decisions],
            t("put in by hand"): [c.forced for c in found],
        }
    )


def _said(trace: Trace, found: Sequence[Choice], at: int | None, t: Translate) -> str:
    n_unknown = sum(choice.decision is None for choice in found)
    said = []
    if at is not None:
        said.append(_parting_said(trace, found, at, t))
    elif n_unknown < len(found):
        said.append(
            t("With the same numbers u, these settings choose what the run chose at every step that can be told.")
        )
    if n_unknown:
        said.append(t("{n} steps cannot be told from the logits that were recorded.").format(n=n_unknown))
    return sentences(said, t)


def _parting_said(trace: Trace, found: Sequence[Choice], at: int, t: Translate) -> str:
    decision = found[at].decision
    assert decision is not None
    return t(
        "With the same numbers u, the texts part at step {step}: “{new}” instead of “{old}”. Of {n} steps, {m} "
        "would choose another token; those after the first answer for the text as it was recorded."
    ).format(
        step=at,
        new=_word(trace, decision.token_id),
        old=_word(trace, found[at].recorded_id),
        n=len(found),
        m=sum(choice.differs for choice in found),
    )


def _word(trace: Trace, token_id: int) -> str:
    return trace.vocabulary.token(token_id).display
