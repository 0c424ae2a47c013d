"""The title row of a page: its name, the run's facts as badges, and the language."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import streamlit as st

from inference.sampling_steps import DRAWING
from inference.trace import Trace
from ui.i18n import LANGUAGES, _, language
from ui.literal import literal
from ui.model_key import FLOAT32


def title_row(trace: Trace, title: str) -> None:
    """The page's title, the facts of the run on show, and the language switch."""
    badge_row(title, facts(trace))


def badge_row(title: str, badges: Iterable[tuple[str, str]] = ()) -> None:
    """The page's title, texts as badges in their colours, and the language switch."""
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.title(title, anchor=False)
        with st.container(horizontal=True, vertical_alignment="center", width="content"):
            for text, color in badges:
                st.badge(literal(text), color=color)
            language_switch()


def part(key: str, names: Mapping[str, str]) -> str:
    """Which part of the page is open, the first at first; `names` are texts to translate, by part."""
    chosen = st.segmented_control(
        _("Part of the page"), list(names), format_func=lambda name: _(names[name]), key=key, default=next(iter(names)),
        required=True, label_visibility="collapsed", persist_state="session",
    )  # fmt: skip
    return str(chosen)


def facts(trace: Trace) -> list[tuple[str, str]]:
    """What made the run: model, element type unless float32, decoding, seed; each with the colour of its badge."""
    sampling, model = trace.sampling, [(trace.model.name, "violet")]
    if trace.model.dtype != FLOAT32:
        model.append((trace.model.dtype, "orange"))
    if sampling.is_greedy:
        return [*model, (_("greedy"), "blue")]
    settings = [f"{name} {getattr(sampling, name):g}" for name, _step in sampling.steps() if name in DRAWING]
    return [
        *model,
        (" · ".join(settings) or _("random"), "blue"),
        (_("seed {seed}", seed=sampling.seed), "gray"),
    ]


def language_switch() -> None:
    """A small menu; the choice stays in the session and in the URL."""
    names = list(LANGUAGES)

    def remember() -> None:
        if "language" in st.session_state:  # on the way to another page the menu is gone before its last word is heard
            st.query_params["lang"] = st.session_state["language"]

    # under a name that is no widget's, because those are given back on the way to another page, as is the URL's
    st.session_state["last language"] = st.selectbox(
        _("Language"), names, index=names.index(language()), format_func=LANGUAGES.__getitem__, key="language",
        on_change=remember, label_visibility="collapsed", width=120,
    )  # fmt: skip
