"""A second request that begins as the run on show: its prefill from nothing, and from the stored cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import streamlit as st

from charts.base import size
from charts.blocks import reuse_times
from inference.errors import InferenceError
from inference.request import GenerationRequest
from inference.trace import Trace
from ui import session
from ui.cards import chart_card
from ui.i18n import _, error_text, sentences
from ui.kv.work import outcome, run_button
from ui.worker import Work

if TYPE_CHECKING:
    from inference.models import LoadedModel
    from inference.reuse import Reuse

NEW_TOKENS = 12


def reuse(trace: Trace, block_size: int) -> None:
    """Asks for how the text goes on, and shows what the stored prefix saves."""
    with st.container(border=True):
        st.subheader(_("A stored prefix, for real"), anchor=False)
        st.text(
            _(
                "The second request is this run's whole text and what you add. Its prefill is timed from nothing and "
                "from a copy of the run's cache, by turns; then both go on greedily."
            )
        )
        if not trace.steps:
            st.text(_("This run was stopped before its first token, so there is nothing to repeat."))
            return
        with st.container(horizontal=True, vertical_alignment="bottom"):
            added = st.text_input(_("What you add"), _("And why is that?"), key="reuse-text", max_chars=2000)
            try:
                request = session.limits().bound(following(trace, added))
            except InferenceError as error:
                st.text(error_text(error))
                return
            work = _reuse(trace, request, block_size)
            run_button("reuse", _("Prefill both ways"), trace, work, 2 * NEW_TOKENS + trace.n_prompt // 4)
    found: Reuse | None = outcome("reuse", trace, _("Prefilling from nothing and from the stored prefix, by turns"))
    if found is not None:
        _show(found)


def following(trace: Trace, added: str) -> GenerationRequest:
    """The request that goes on from a run: the next turn of its conversation, or its text and what is added.

    Raises:
        RequestError: the added text is no text.
    """
    asked = trace.request
    request = replace(asked, max_new_tokens=NEW_TOKENS, prompt_ids=None)
    if not asked.chat:
        told = asked.prompt if isinstance(asked.prompt, str) else ""
        return replace(request, prompt=told + trace.text + " " + added)
    turns = (("user", asked.prompt),) if isinstance(asked.prompt, str) else asked.prompt
    return replace(request, prompt=(*turns, ("assistant", trace.text), ("user", added)))


def _reuse(trace: Trace, request: GenerationRequest, block_size: int) -> Work:
    check_prompt = session.limits().check_prompt

    def work(model: LoadedModel, progress: Callable[[float], None], cancelled: Callable[[], bool]) -> Reuse | None:
        from inference.reuse import reuse_prefix

        return reuse_prefix(
            model, trace, request, block_size, check_prompt=check_prompt, progress=progress, cancelled=cancelled
        )

    return work


def _show(found: Reuse) -> None:
    left, right = st.columns(2)
    with left:
        chart_card(reuse_times(found, palette=session.palette(), t=_), "reuse-times", t=_)
    with right, st.container(border=True, height="stretch"):
        st.subheader(_("What was reused"), anchor=False)
        st.text(_words(found))
        for name, tokens in (
            (_("from nothing"), found.fresh_tokens),
            (_("from the stored prefix"), found.reused_tokens),
        ):
            st.text(name)
            st.code(" ".join(token.display for token in tokens), language=None, wrap_lines=True)


def _words(found: Reuse) -> str:
    same = [t.id for t in found.fresh_tokens] == [t.id for t in found.reused_tokens]
    said = [
        _(
            "Of {n} prompt tokens the first {common} are the run's; {reused} were copied in whole blocks, {size}.",
            n=found.n_prompt,
            common=found.n_common,
            reused=found.n_reused,
            size=size(found.copied_bytes),
        ),
        _("Both ways go on with the same tokens.") if same else _("The two ways go on with different tokens."),
    ]
    figures = {"largest": found.difference, "limit": found.tolerance}
    if not found.difference:
        said.append(_("The logits are equal to the bit."))
    elif found.difference <= found.tolerance:
        said.append(
            _("The logits differ by at most {largest:.1e}, which rounding explains (up to {limit:.0e}).", **figures)
        )
    else:
        said.append(
            _("The logits differ by {largest:.1e}, more than rounding explains (up to {limit:.0e}).", **figures)
        )
    return sentences(said)
