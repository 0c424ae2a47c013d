"""Errors a person is meant to read: what was wrong, the limit, and what to do about it.

An error knows its sentences as templates with values, so that a page can translate the template and fill it in
again; `str(error)` is the English text. It does not know where it will be shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self


def N_(text: str) -> str:
    """Mark a literal for the translation catalogues and return it unchanged."""
    return text


STEP = N_("Step {step_index}:")


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence for people as a template and its values; `str(note)` is the English text."""

    template: str
    values: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.template.format(**self.values)


class InferenceError(Exception):
    """Base of every error that is shown to the user as written.

    Args:
        what: template of one sentence that says what was wrong and names the limit.
        remedy: template of one sentence that says what to do; may be empty.
        values: what fills the templates (`str.format` fields).
    """

    def __init__(self, what: str, remedy: str = "", **values: object) -> None:
        self.what = what
        self.remedy = remedy
        self.values = values
        self.step: int | None = None
        super().__init__(what)

    def __str__(self) -> str:
        parts = [STEP] if self.step is not None else []
        parts += [part for part in (self.what, self.remedy) if part]
        return " ".join(part.format(step_index=self.step, **self.values) for part in parts)

    def at_step(self, step: int) -> Self:
        """The same error, naming the step of the run in which it arose."""
        self.step = step
        return self


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
