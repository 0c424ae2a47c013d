"""One batch for real: prompts padded on the left and run together, each row beside its run alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd
import streamlit as st

from charts.batched import batch_grid, batch_times, verdict
from inference.errors import InferenceError
from inference.request import GenerationRequest
from inference.sampling_params import SamplingParams
from inference.step_costs import StepCosts
from inference.trace import Trace
from ui import session
from ui.cards import chart_card
from ui.components.token_rows import Chip, Row, token_rows
from ui.i18n import _, error_text
from ui.literal import literal
from ui.timing.measuring import TOKENS_A_STEP, measure_button, measured
from ui.worker import Work

if TYPE_CHECKING:
    from inference.batched import BatchedRow, BatchedRun
    from inference.models import LoadedModel

PROMPTS = (
    ("What is gravity?", 20),
    ("Name three colours of the rainbow.", 12),
    ("Hi", 16),
    ("Write one sentence about a kitten that ran all day and is tired now.", 24),
)
MOST_NEW, MOST_CHARS = 64, 2000


def batched(trace: Trace, costs: StepCosts | None) -> None:
    """The prompts, the button, and what came of it; `costs` are those of the simulation, if there are any."""
    with st.container(border=True, key="batched-card"):
        st.subheader(_("One batch for real"), anchor=False)
        st.text(
            _(
                "The model runs these prompts together, padded on the left to one length, and each alone, by turns. "
                "Padding is masked, so every row should choose what it chooses alone."
            )
        )
        try:
            requests = _requests(trace)
        except InferenceError as error:
            st.error(literal(error_text(error)))
        else:
            fed = 2 * TOKENS_A_STEP * sum(request.max_new_tokens for request in requests)
            measure_button("batched", _("Run the batch"), trace, _work(requests), fed)
    found: BatchedRun | None = measured("batched", trace, _("Running the batch, and each row alone"))
    if found is not None:
        _show(found, costs)


def _requests(trace: Trace) -> list[GenerationRequest]:
    """What is asked for, row by row; a row without a prompt is left out."""
    column = st.column_config
    columns: dict[str, Any] = {
        "prompt": column.TextColumn(_("Prompt"), max_chars=MOST_CHARS, width="large"),
        "new": column.NumberColumn(_("new tokens"), min_value=1, max_value=MOST_NEW, step=1, default=16),
    }
    edited = st.data_editor(
        pd.DataFrame(list(PROMPTS), columns=list(columns)), num_rows="dynamic", hide_index=True,
        column_config=columns, key="batched-prompts",
    )  # fmt: skip
    drawn = not trace.sampling.is_greedy and st.toggle(
        _("Draw with the run's settings, each row with its own seed"), key="batched-drawn"
    )
    sampling = trace.sampling if drawn else SamplingParams(greedy=True)
    rows = edited.dropna().itertuples(index=False)
    return [
        GenerationRequest(
            prompt=prompt, chat=trace.request.chat, max_new_tokens=int(new),
            sampling=replace(sampling, seed=(sampling.seed or 0) + number),
        )
        for number, (prompt, new) in enumerate(rows)
    ]  # fmt: skip


def _work(requests: list[GenerationRequest]) -> Work:
    limits = session.limits()
    requests = [limits.bound(request) for request in requests]

    def work(model: LoadedModel, progress: Callable[[float], None], cancelled: Callable[[], bool]) -> BatchedRun | None:
        from inference.batched import batched_run

        for request in requests:
            limits.check_prompt(len(model.tokenizer.encode(request)))
        return batched_run(model, requests, progress, cancelled)

    return work


def _show(found: BatchedRun, costs: StepCosts | None) -> None:
    palette = session.palette()
    with st.container(border=True, key="batched-rows-card"):
        st.subheader(_("In the batch and alone"), anchor=False)
        st.text(verdict(found, _))
        rows = [row for number, one in enumerate(found.rows, start=1) for row in _pair(number, one)]
        token_rows(rows, label=_("In the batch and alone"), key="batched-rows")
    left, right = st.columns([3, 2])
    with left:
        chart_card(batch_grid(found, palette=palette, t=_), "batch-grid", t=_)
    with right:
        chart_card(batch_times(found, costs, palette=palette, t=_), "batch-times", t=_)


def _pair(number: int, one: BatchedRow) -> tuple[Row, Row]:
    """The row's tokens both ways, the first that differs marked."""
    parted = None if one.parting is None else one.parting.step

    def chips(tokens: Any) -> list[Chip]:
        return [Chip(token.display, kind="chosen" if at == parted else "plain") for at, token in enumerate(tokens)]

    remark = _("the same") if parted is None else _("parts at step {n}", n=parted)
    return (
        Row(_("{n} · batch", n=number), chips(one.tokens), remark),
        Row(_("{n} · alone", n=number), chips(one.alone)),
    )
