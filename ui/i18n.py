"""The one translation function. Catalogues lie under `assets/locale`; English is the language of the code."""

from __future__ import annotations

import gettext
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st

from inference import errors
from inference.errors import InferenceError, Note

LOCALE = Path(__file__).resolve().parent.parent / "assets" / "locale"
LANGUAGES = {"en": "English", "zh-Hans": "简体中文", "zh-Hant": "繁體中文"}
TRADITIONAL = ("hant", "tw", "hk", "mo")


def translate(text: str, /, **values: Any) -> str:
    """`text` in the reader's language, its fields filled in with `values`; a tuple is a list of words."""
    return errors.fill(text, values, _gettext()) if values else _gettext()(text)


_ = translate


def language() -> str:
    """The reader's language: chosen in the page or by `?lang=`, on this page or one before, else the browser's own."""
    state = st.session_state
    chosen = state.get("language") or st.query_params.get("lang") or state.get("last language")
    return chosen if chosen in LANGUAGES else nearest(st.context.locale or "")


def spoken() -> dict[str, str]:
    """What the address must say of the language for a reload: nothing where it is the browser's own."""
    return {} if language() == nearest(st.context.locale or "") else {"lang": language()}


def nearest(tag: str) -> str:
    """The language on offer that is nearest to a browser's tag, such as `zh-TW`."""
    parts = tag.lower().replace("_", "-").split("-")
    if parts[0] != "zh":
        return "en"
    return "zh-Hant" if any(part in TRADITIONAL for part in parts[1:]) else "zh-Hans"


def error_text(error: InferenceError) -> str:
    """An error's sentences in the reader's language."""
    return error.text(_gettext())


def sentences(parts: Iterable[str]) -> str:
    """Sentences as one text, as the reader's language joins them."""
    return errors.sentences(parts, _gettext())


def note_text(note: Note) -> str:
    """A note in the reader's language."""
    return note.text(_gettext())


def _gettext() -> errors.Translate:
    """The reader's catalogue; what gettext itself knows under the empty text is the catalogue's header."""
    known = catalogue(language())
    return lambda text: known.gettext(text) if text else ""


@cache
def catalogue(name: str) -> gettext.NullTranslations:
    """The catalogue of a language; English needs none."""
    if name == "en":
        return gettext.NullTranslations()
    return gettext.translation("inferoscope", LOCALE, languages=[name.replace("-", "_")], fallback=True)
