"""What a station of the lesson is, and what it is drawn with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from charts.base import Palette
from inference.lesson import Values
from inference.trace import Trace
from ui.i18n import _

KEEP: Any = {"persist_state": "session"}


@dataclass(frozen=True, slots=True)
class Scene:
    """What the stations are drawn with.

    Attributes:
        run: of the kitten; `chat` of a model with a chat template, `routed` of one with experts.
        values: the station's figures, by the names that its texts use.
        printed: whether the whole lesson is drawn for paper: without controls, each try with its first result.
    """

    run: Trace
    chat: Trace
    routed: Trace
    palette: Palette
    values: Values
    printed: bool = False

    def say(self, text: str) -> str:
        """A text of the station in the reader's language, with its figures."""
        return _(text, **self.values)


@dataclass(frozen=True, slots=True)
class Station:
    """One stop of the lesson; its texts are templates to translate, and every number in them is a field.

    Attributes:
        view: draws the running example at this point; `attempt` what can be tried, with its result.
        page: title of the page that shows all of it; `open` makes ready what it shows, and gives its script and query.
    """

    name: str
    title: str
    sentences: tuple[str, ...]
    view: Callable[[Scene], None]
    trying: str
    attempt: Callable[[Scene], None]
    question: str
    answer: str
    page: str
    open: Callable[[Scene], tuple[str, dict[str, str]]]

    @property
    def texts(self) -> tuple[str, ...]:
        """All templates, in reading order."""
        return (self.title, *self.sentences, self.trying, self.question, self.answer)
