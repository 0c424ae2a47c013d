"""Rows of tokens: a name, the tokens with a note under each, and what is said of the row. Text is set as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from ui.components.mount import mount

_TOKEN_ROWS = mount("token_rows", "elements")

Kind = Literal["plain", "added", "chosen", "hidden", "arrow", "words"]


@dataclass(frozen=True, slots=True)
class Chip:
    """A token's text, a note below it, and how it looks; `share` (0 to 1) is a bar under it, `None` is none."""

    text: str
    note: str = ""
    kind: Kind = "plain"
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A row's name, its tokens, and a remark at its end."""

    name: str
    chips: Sequence[Chip]
    remark: str = ""


def token_rows(rows: Sequence[Row], *, label: str, key: str) -> None:
    """Draw the rows as a table; `label` names it for readers who do not see it."""
    _TOKEN_ROWS(key=key, data={"rows": [asdict(row) for row in rows], "label": label})
