"""The calculator: the plan is read and counted, the sliders drawn, and what the server found told in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from inference.kv_memory import KVLayout
from inference.kv_variants import query_heads, replicated
from inference.trace import Trace
from ui.calculator.charts import charts
from ui.calculator.controls import COMPONENT, Memory, asked, controls, memory, remember, take_upload
from ui.calculator.count import Count, counted
from ui.calculator.plan import IN_BROWSER, LAYOUT, MAX_LINK
from ui.calculator.sources import why_not_plain
from ui.components.kv_calculator import Shown, kv_calculator
from ui.i18n import _, error_text, note_text


@st.fragment
def calculator(trace: Trace) -> None:
    """Everything that changes with a slider; moving one runs this part of the page alone."""
    kept = memory()
    take_upload()
    plan = asked(kept)
    count = counted(plan, kept.good, trace)
    kept.good = count.plan
    remember(replace(plan, **{name: getattr(count.plan, name) for name in LAYOUT}))
    controls(plan, count.wrong, cross=_crosses(count.source.layout), trace=trace)
    _sliders(count, kept)
    _words(count, kept)
    charts(count)


def _crosses(layout: KVLayout) -> bool:
    return any(layer.kind == "cross" for layer in layout.layers)


def _sliders(count: Count, kept: Memory) -> None:
    plan, layout, own = count.plan, count.source.layout, count.source.plain
    values = {"tokens": plan.tokens, "batch": plan.batch, "element": plan.element}
    if own is not None:
        values |= {"layers": len(layout.layers), "kv_heads": own.kv_heads, "head_dim": own.key_dim}
    shown = Shown(
        values=values,
        lengths=None if isinstance(count.tokens, int) else count.tokens,
        layers=layout.layers,
        plain=own is not None,
        query_heads=query_heads(layout) if own is not None else 0,
        value_element=plan.value_element,
        encoder_tokens=plan.encoder_tokens,
        page_size=plan.page_size,
        tp=plan.tp,
        errors={name: error_text(error) for name, error in count.wrong.items() if name in IN_BROWSER},
    )
    kv_calculator(shown, kept.serial, t=_, key=COMPONENT)


def _words(count: Count, kept: Memory) -> None:
    """The server's own figure with its formula, and what it had to assume."""
    if count.source.plain is None or count.plan.page or not isinstance(count.tokens, int):
        st.code(formula(count), language=None, wrap_lines=True)
    if kept.bytes is not None and not count.wrong and kept.bytes != str(count.nbytes):
        st.warning(_("The page shows {shown} bytes; the server counts {n}.", shown=kept.bytes, n=count.nbytes))
    with st.container(gap="xxsmall"):
        for sentence in sentences(count):
            st.text(sentence)


def formula(count: Count) -> str:
    """The server's expression with its numbers, of one device."""
    plan, shard = count.plan, count.source.layout.shard(count.plan.tp)
    return shard.formula(
        count.tokens, count.batch, plan.elements, encoder_tokens=plan.encoder_tokens, page_size=plan.page
    )


def sentences(count: Count) -> list[str]:
    """What a reader must know about the figure: lists, devices, other rules than the plain one, assumptions."""
    layout, plan, found = count.source.layout, count.plan, []
    if max(len(plan.config), len(plan.lengths)) > MAX_LINK:
        found.append(_("The config or the list is too long for the address of this page: a link leaves it out."))
    if not isinstance(count.tokens, int):
        found.append(_list_words(count.tokens))
    if plan.tp > 1:
        copies = replicated(layout, plan.tp)
        found.append(_("On each of {n} devices.", n=plan.tp))
        if layout.attention == "MLA":
            found.append(_("A latent cannot be divided: each device keeps it whole."))
        elif copies > 1:
            found.append(_("There are fewer KV heads than devices: each head is kept {n} times.", n=copies))
    reasons = why_not_plain(layout)
    if reasons:
        found.append(_("The plain formula 2 · L · B · T · H_kv · D_head · S does not hold here."))
    found += [note_text(note) for note in (*reasons, *layout.assumptions)]
    if layout.max_context is not None and count.longest > layout.max_context:
        found.append(_("The model's own limit is {n} tokens.", n=f"{layout.max_context:,}"))
    return found


def _list_words(lengths: Sequence[int]) -> str:
    return _(
        "{n} sequences, {total} tokens in all, from {shortest} to {longest}: "
        "the sum counts, not {n} × the longest, which is {ratio} times as much.",
        n=len(lengths),
        total=f"{sum(lengths):,}",
        shortest=f"{min(lengths):,}",
        longest=f"{max(lengths):,}",
        ratio=f"{len(lengths) * max(lengths) / sum(lengths):.2f}",
    )
