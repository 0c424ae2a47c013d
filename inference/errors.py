"""Errors a person is meant to read: what was wrong, the limit, and what to do about it.

An error knows its sentences as templates with values, so that a page can have them in its reader's language;
`str(error)` is the English text. It does not know where it will be shown. A value that is a list is a tuple of its
words, and what else was said is a tuple of notes; both are joined as the language wants it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

Translate = Callable[[str], str]


def N_(text: str) -> str:
    """Mark a literal for the translation catalogues and return it unchanged."""
    return text


STEP = N_("Step {step_index}:")
LIST = N_(", ")  # between the words of a list
SENTENCES = N_("{first} {then}")  # in Chinese the full stop brings its own space


def fill(template: str, values: Mapping[str, object], t: Translate = str) -> str:
    """A template, translated, with its values; a tuple is a list of words."""
    return t(template).format(**{name: listed(v, t) if isinstance(v, tuple) else v for name, v in values.items()})


def listed(words: Iterable[object], t: Translate = str) -> str:
    """Words as a list within a sentence."""
    return t(LIST).join(map(str, words))


def sentences(parts: Iterable[str], t: Translate = str) -> str:
    """Sentences as one text."""
    text = ""
    for part in filter(None, parts):
        text = t(SENTENCES).format(first=text, then=part) if text else part
    return text


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence for people as a template and its values; `str(note)` is the English text."""

    template: str
    values: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.text()

    def text(self, t: Translate = str) -> str:
        """The sentence, translated."""
        return fill(self.template, self.values, t)


class InferenceError(Exception):
    """Base of every error that is shown to the user as written.

    Args:
        what: template of one sentence that says what was wrong and names the limit.
        remedy: template of one sentence that says what to do; may be empty.
        values: what fills the templates (`str.format` fields): figures, words that may be translated, tuples of them,
            or tuples of notes.
    """

    def __init__(self, what: str, remedy: str = "", **values: object) -> None:
        self.what = what
        self.remedy = remedy
        self.values = values
        self.step: int | None = None
        super().__init__(what)

    def __str__(self) -> str:
        return self.text()

    def text(self, t: Translate = str) -> str:
        """The sentences, translated."""
        values = {"step_index": self.step, **{name: _word(value, t) for name, value in self.values.items()}}
        parts = [STEP if self.step is not None else "", self.what, self.remedy]
        return sentences((fill(part, values, t).strip() for part in parts if part), t)

    def at_step(self, step: int) -> Self:
        """The same error, naming the step of the run in which it arose."""
        self.step = step
        return self


def _word(value: object, t: Translate) -> object:
    """A value of an error, translated where it is text or notes."""
    if isinstance(value, Note):
        return value.text(t)
    if isinstance(value, tuple) and any(isinstance(one, Note) for one in value):
        return sentences((str(_word(one, t)) for one in value), t)
    return t(value) if isinstance(value, str) and value else value


class ModelError(InferenceError):
    """A model cannot be loaded or cannot be run by this engine."""


class RequestError(InferenceError):
    """A request asks for something that the model or the server does not allow."""


class SamplingError(InferenceError):
    """A sampling setting is out of its range, or the settings leave no token to choose."""


class NumericalError(InferenceError):
    """The model produced numbers that cannot be sampled from (NaN or infinity)."""


class MemoryLimitError(InferenceError):
    """There is not enough memory for what was asked."""


class TraceFileError(InferenceError):
    """A run file is damaged, foreign, too new or too large."""


class TraceError(InferenceError):
    """A recorded run does not hold what was asked of it."""


class CalculatorError(InferenceError):
    """The memory calculator was given a figure or a config that it cannot use."""
