"""Byte-honest display of tokens, and text that grows without ever showing half a character.

A token is bytes. This module turns bytes into something a person can read, and never guesses: what is not a whole
character is shown as hexadecimal.
"""

from __future__ import annotations

import codecs
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

SPACE, NEWLINE, TAB, RETURN = "·", "↵", "⇥", "␍"
MOST_SEARCHED = 512  # tokens: every one of them is tried as a beginning
_MARKS = {" ": SPACE, "\n": NEWLINE, "\t": TAB, "\r": RETURN}


def visible(data: bytes) -> str:
    """The bytes of a token as text with visible spaces; bytes that are no whole character as ⟨E5 9B⟩.

    Control and format characters, which would show nothing or disturb the line, are written as ⟨U+200D⟩; so is an
    accent or a variation selector at the beginning, which has no letter to stand on.
    """
    shown: list[str] = []
    for text, broken in _pieces(data):
        if broken:
            shown.append("⟨" + " ".join(f"{byte:02X}" for byte in broken) + "⟩")
        for character in text:
            alone = not shown and unicodedata.category(character).startswith("M")  # an accent with nothing under it
            shown.append(_code(character) if alone else _mark(character))
    return "".join(shown)


@dataclass(frozen=True, slots=True)
class Token:
    """A token as bytes; `special` ones (`<|im_end|>`, …) are not part of the visible text."""

    id: int
    data: bytes
    special: bool = False

    @property
    def display(self) -> str:
        """Readable text with visible spaces; see `visible`."""
        return visible(self.data)


class Vocabulary:
    """The bytes of every token id (or, in a small run file, of the ids that occur in it).

    Args:
        data: uint8, all tokens' bytes joined.
        ends: [V] int64, where each token ends in `data`.
        special: ids of special tokens.
        ids: [V] ascending token ids, or `None` for 0 … V-1.
    """

    def __init__(
        self,
        data: NDArray[np.uint8],
        ends: NDArray[np.int64],
        special: frozenset[int],
        ids: NDArray[Any] | None = None,
    ) -> None:
        self.data, self.ends, self.special, self.ids = data, ends, special, ids

    @classmethod
    def from_bytes(
        cls, pieces: Sequence[bytes], special: frozenset[int], ids: NDArray[Any] | None = None
    ) -> Vocabulary:
        """A vocabulary of one `bytes` a token."""
        data = np.frombuffer(b"".join(pieces), dtype=np.uint8)
        return cls(data, np.cumsum([len(p) for p in pieces], dtype=np.int64), special, ids)

    def __len__(self) -> int:
        return len(self.ends)

    def token(self, token_id: int) -> Token:
        """The token of an id; an id that is not in the vocabulary shows as its number in angle brackets."""
        at = token_id if self.ids is None else int(np.searchsorted(self.ids, token_id))
        known = at < len(self) and (self.ids is None or self.ids[at] == token_id)
        if not known:
            return Token(token_id, f"<{token_id}>".encode(), True)
        start = int(self.ends[at - 1]) if at else 0
        return Token(token_id, self.data[start : int(self.ends[at])].tobytes(), token_id in self.special)

    def only(self, ids: Sequence[int]) -> Vocabulary:
        """A smaller vocabulary of these ids."""
        wanted = np.unique(np.asarray(ids, dtype=np.int64))
        pieces = [self.token(int(i)).data for i in wanted]
        return Vocabulary.from_bytes(pieces, self.special & set(wanted.tolist()), wanted)


def byte_level_alphabet() -> dict[str, int]:
    """The 256 characters in which byte-level vocabularies spell bytes (Radford et al. 2019, GPT-2's encoder).

    Printable Latin-1 characters stand for themselves; the other bytes follow from U+0100 on, in order.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}


class Detokeniser:
    """Joins token bytes into text as they arrive.

    `push` returns what can be shown for certain; a character whose bytes are not all there yet is held back.
    `flush` returns the rest, with U+FFFD for bytes that never became a character. All pieces joined equal
    `bytes.decode("utf-8", "replace")` of all bytes joined.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, data: bytes) -> str:
        """The text that `data` completes."""
        return self._decoder.decode(data)

    def flush(self) -> str:
        """What was held back."""
        return self._decoder.decode(b"", final=True)


def join(pieces: Iterable[bytes]) -> str:
    """The text of token bytes, joined before decoding."""
    return b"".join(pieces).decode("utf-8", "replace")


def written_by(pieces: Sequence[bytes], texts: Sequence[str]) -> list[bool]:
    """For each token of a prompt, whether any of its bytes lies in one of the reader's texts, found in order.

    A text that the tokens do not spell, because the vocabulary lacks a part of it, is where they spell most of it;
    in a prompt of more than 512 tokens it is not looked for.
    """
    whole, mine, at = b"".join(pieces), set[int](), 0
    starts = [0, *np.cumsum([len(piece) for piece in pieces]).tolist()]
    for text in texts:
        data = text.strip().encode("utf-8", "ignore")
        found = whole.find(data, at) if data else -1
        found = whole.find(data) if data and found < 0 else found
        if found >= 0:
            mine.update(range(found, found + len(data)))
            at = found + len(data)
        elif data and len(pieces) <= MOST_SEARCHED:
            mine.update(range(*(starts[place] for place in _nearest(pieces, data))))
    return [bool(mine.intersection(range(*ends))) for ends in pairwise(starts)]


def _nearest(pieces: Sequence[bytes], data: bytes) -> tuple[int, int]:
    """The tokens, from the first to before the second, that spell the most of a text; (0, 0) if none spells any."""
    spelt = {(start, end): n for start in range(len(pieces)) for end, n in [_spell(pieces, start, data)] if n}
    return max(spelt, key=spelt.__getitem__, default=(0, 0))


def _spell(pieces: Sequence[bytes], start: int, data: bytes) -> tuple[int, int]:
    """Where the tokens from `start` on end that spell a text, and how many of its bytes they do spell.

    A token that is not what comes next stands for all that comes before the token after it.
    """
    at, place, spelt = 0, start, 0
    while at < len(data) and place < len(pieces):
        if data.startswith(pieces[place], at):
            at, spelt = at + len(pieces[place]), spelt + len(pieces[place])
        else:
            after = data.find(pieces[place + 1], at + 1) if place + 1 < len(pieces) else -1
            at = len(data) if after < 0 else after
        place += 1
    return place, spelt


def _pieces(data: bytes) -> Iterable[tuple[str, bytes]]:
    """Runs of (text, broken bytes that stand before it)."""
    at = 0
    broken = b""
    while at < len(data):
        try:
            yield data[at:].decode("utf-8"), broken
            return
        except UnicodeDecodeError as error:
            good = data[at : at + error.start].decode("utf-8")
            if good:
                yield good, broken
                broken = b""
            broken += data[at + error.start : at + error.end]
            at += error.end
    if broken:
        yield "", broken


def _mark(character: str) -> str:
    if character in _MARKS:
        return _MARKS[character]
    return character if character.isprintable() else _code(character)


def _code(character: str) -> str:
    return f"⟨U+{ord(character):04X}⟩"
