"""Spot the error: figures as they were published, what each should be, and what went wrong."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import streamlit as st

from charts.base import size
from inference.errors import N_
from inference.kv_memory import KVLayout
from inference.kv_variants import query_heads, with_kv_heads
from ui import session
from ui.calculator.sources import catalogue
from ui.i18n import _, sentences
from ui.literal import literal

UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
ANSWERS = {
    "none": N_("It is right"),
    "eightfold": N_("8 × too much"),
    "twofold": N_("2 × too much"),
    "units": N_("GB for GiB"),
}


@dataclass(frozen=True, slots=True)
class Published:
    """A figure that somebody published for a 16-bit cache of one sequence.

    Attributes:
        value, unit: as written.
        error: `"none"`, or what went wrong: `"heads"`, `"double_heads"`, `"float32"` or `"units"`.
    """

    model: str
    tokens: int
    value: str
    unit: str
    source: str
    error: str

    @property
    def nbytes(self) -> Fraction:
        """What is claimed, in bytes of the unit as written."""
        return Fraction(self.value) * UNITS[self.unit]

    @property
    def layout(self) -> KVLayout:
        """The model's layout."""
        return KVLayout.from_catalogue(catalogue()[self.model])

    @property
    def right(self) -> int:
        """What it should be, in bytes."""
        return self.layout.bytes(self.tokens)

    @property
    def mistaken(self) -> int:
        """The bytes that come out when the same mistake is made; those of the right figure where there is none."""
        layout = self.layout
        if self.error == "heads":
            return with_kv_heads(layout, query_heads(layout)).bytes(self.tokens)
        if self.error == "double_heads":
            return with_kv_heads(layout, 2 * layout.layers[0].kv_heads).bytes(self.tokens)
        return layout.bytes(self.tokens, element="float32" if self.error == "float32" else "float16")

    @property
    def answer(self) -> str:
        """The answer that is right, a name of `ANSWERS`."""
        return {"heads": "eightfold", "double_heads": "twofold", "float32": "twofold"}.get(self.error, self.error)


@cache
def figures() -> tuple[Published, ...]:
    """The figures of `assets/published.json`."""
    rows = json.loads((session.ASSETS / "published.json").read_text(encoding="utf-8"))
    return tuple(Published(**row) for row in rows)


@st.fragment
def published() -> None:
    """One figure at a time: judge it, then see what the calculator says."""
    at = st.session_state.setdefault("published", 0) % len(figures())
    figure = figures()[at]
    with st.container(border=True, height="stretch"):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            st.subheader(_("Spot the error"), anchor=False)
            st.button(_("Next figure"), icon=":material/arrow_forward:", on_click=_next)
        st.text(_claim(figure))
        source = _(
            "Published figure {n} of {count}; source: {source}", n=at + 1, count=len(figures()), source=figure.source
        )
        st.caption(literal(source))
        answer = st.segmented_control(
            _("What do you say?"),
            list(ANSWERS),
            format_func=lambda name: _(ANSWERS[name]),
            key=f"published answer {at}",
        )
        if answer is not None:
            (st.success if answer == figure.answer else st.warning)(_(ANSWERS[figure.answer]))
            st.text(verdict(figure))


def _next() -> None:
    st.session_state["published"] += 1


def _claim(figure: Published) -> str:
    values = {"model": figure.model, "tokens": f"{figure.tokens:,}", "value": f"{figure.value} {figure.unit}"}
    if figure.tokens == 1:
        return _("{model}, 16 bits: {value} a token.", **values)
    return _("{model}, 16 bits, {tokens} tokens: {value}.", **values)


def verdict(figure: Published) -> str:
    """What the calculator says, and the reason of the difference."""
    right, mistaken = figure.right, figure.mistaken
    binary = figure.unit if "i" in figure.unit else f"{figure.unit[0]}iB"
    found = _(
        "The calculator says {n} bytes: {binary} {binary_unit}, or {decimal} {decimal_unit}.",
        n=f"{right:,}",
        binary=f"{right / UNITS[binary]:,.4g}",
        binary_unit=binary,
        decimal=f"{right / UNITS[binary.replace('i', '')]:,.4g}",
        decimal_unit=binary.replace("i", ""),
    )
    values = {"heads": figure.layout.layers[0].kv_heads, "size": size(mistaken), "all": query_heads(figure.layout)}
    reasons = {
        "heads": N_("All {all} query heads were counted ({size}); the model caches {heads} KV heads."),
        "double_heads": N_("Twice the KV heads were counted ({size}); the model has {heads}."),
        "float32": N_("That is the figure for 32 bits ({size}), not for 16."),
        "units": N_("The number is one of binary units, with the sign of decimal ones."),
        "none": N_("The figure is right, rounded."),
    }
    return sentences((found, _(reasons[figure.error], **values)))
