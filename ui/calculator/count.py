"""A plan, counted: the model's layout, the sequences, the bytes, and what had to be refused."""

from __future__ import annotations

from dataclasses import dataclass, replace

from inference.errors import InferenceError
from inference.kv_lengths import parse_lengths
from inference.kv_memory import KVLayout
from inference.trace import Trace
from ui.calculator.plan import LAYOUT, OWN, Plan, checked
from ui.calculator.sources import Source, changed, find


@dataclass(frozen=True, slots=True)
class Count:
    """A plan that could be counted, and what came of it; every figure is of one device.

    Attributes:
        tokens: one length, or a list with one length a sequence; `batch` sequences of the one.
        nbytes: of the KV cache.
        wrong: what was refused and replaced by the last good value, by field.
    """

    plan: Plan
    source: Source
    tokens: int | tuple[int, ...]
    batch: int
    nbytes: int
    wrong: dict[str, InferenceError]

    @property
    def sequences(self) -> int:
        """How many sequences there are."""
        return self.batch if isinstance(self.tokens, int) else len(self.tokens)

    @property
    def total(self) -> int:
        """Tokens of all sequences."""
        return self.tokens * self.batch if isinstance(self.tokens, int) else sum(self.tokens)

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return self.tokens if isinstance(self.tokens, int) else max(self.tokens)

    @property
    def mean(self) -> int:
        """Tokens of a sequence on average, rounded."""
        return round(self.total / self.sequences)


def counted(plan: Plan, good: Plan, trace: Trace) -> Count:
    """The plan with what cannot be used replaced by the last good plan's, counted."""
    plan, wrong = checked(plan, good)
    try:
        source = find(plan, trace)
    except InferenceError as error:
        wrong["config" if plan.model == OWN else "model"] = error
        plan = replace(plan, model=good.model, config=good.config)
        source = find(plan, trace)
    source, plan = changed(source, plan), _named(plan, source)
    tokens: int | tuple[int, ...] = plan.tokens
    try:
        tokens = parse_lengths(plan.lengths) if plan.lengths else tokens
    except InferenceError as error:
        wrong["lengths"] = error
        plan = replace(plan, lengths=good.lengths)
        tokens = parse_lengths(good.lengths) if good.lengths else tokens
    plan = _usable(plan, source.layout, wrong)
    batch = plan.batch if isinstance(tokens, int) else 1
    nbytes = source.layout.shard(plan.tp).bytes(
        tokens, batch, plan.elements, encoder_tokens=plan.encoder_tokens, page_size=plan.page
    )
    return Count(plan, source, tokens, batch, nbytes, wrong)


def _named(plan: Plan, source: Source) -> Plan:
    """The plan without figures that are the model's own, or that its layout does not leave free."""
    own = source.plain
    if own is None:
        return replace(plan, **dict.fromkeys(LAYOUT))
    figures = {"layers": len(source.layout.layers), "kv_heads": own.kv_heads, "head_dim": own.key_dim}
    return replace(plan, **{name: None for name, value in figures.items() if getattr(plan, name) == value})


def _usable(plan: Plan, layout: KVLayout, wrong: dict[str, InferenceError]) -> Plan:
    """The plan with devices and element types that the layout takes."""
    try:
        layout.shard(plan.tp)
    except InferenceError as error:
        wrong["tp"] = error
        plan = replace(plan, tp=1)
    for name, usual in (("element", "float16"), ("value_element", "")):
        try:
            layout.bytes(1, element=plan.elements if name == "value_element" else plan.element, encoder_tokens=1)
        except InferenceError as error:
            wrong[name] = error
            plan = replace(plan, **{name: usual})
    return plan
