"""Byte-honest display, and text that grows by whole characters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.tokens import Detokeniser, Vocabulary, byte_level_alphabet, join, visible


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b" cat", "·cat"),
        (b"a\n\tb\r", "a↵⇥b␍"),
        ("猫".encode(), "猫"),
        ("猫".encode()[:2], "⟨E7 8C⟩"),
        ("猫".encode()[2:], "⟨AB⟩"),
        (b"a" + "猫".encode()[:1] + b"b", "a⟨E7⟩b"),
        ("\u200d".encode(), "⟨U+200D⟩"),
        (b"\x00", "⟨U+0000⟩"),
        ("\ufe0f".encode(), "⟨U+FE0F⟩"),
        ("❤\ufe0f".encode(), "❤\ufe0f"),
        ("\u0301a".encode(), "⟨U+0301⟩a"),
        (b"<b>$x$</b>", "<b>$x$</b>"),
        (b"", ""),
        (b"\xff\xfe", "⟨FF FE⟩"),
    ],
)
def test_bytes_are_shown_readable_or_as_hexadecimal(data: bytes, shown: str) -> None:
    assert visible(data) == shown


@given(st.lists(st.binary(max_size=5), max_size=30))
def test_pieces_joined_equal_the_whole_decoded(pieces: list[bytes]) -> None:
    stream = Detokeniser()
    text = "".join(stream.push(piece) for piece in pieces) + stream.flush()
    assert text == b"".join(pieces).decode("utf-8", "replace") == join(pieces)


@given(st.text(max_size=30))
def test_half_a_character_is_never_shown(text: str) -> None:
    stream = Detokeniser()
    shown = [stream.push(bytes([byte])) for byte in text.encode("utf-8", "ignore")]
    assert not any("�" in piece for piece in shown if "�" not in text)


def test_the_byte_level_alphabet_is_the_one_of_gpt2() -> None:
    alphabet = byte_level_alphabet()
    assert sorted(alphabet.values()) == list(range(256))
    assert (alphabet["Ġ"], alphabet["Ċ"], alphabet["a"], alphabet["ł"]) == (0x20, 0x0A, 0x61, 0xA0)


def test_a_vocabulary_gives_the_bytes_of_any_id_and_shows_unknown_ones_as_numbers() -> None:
    whole = Vocabulary.from_bytes([b"a", "猫".encode(), b"", b"<eos>"], frozenset({3}))
    assert [whole.token(i).data for i in range(4)] == [b"a", "猫".encode(), b"", b"<eos>"]
    assert (whole.token(3).special, whole.token(1).special) == (True, False)
    assert whole.token(9).display == "<9>"
    part = whole.only([3, 1, 1])
    assert (part.token(1).data, part.token(3).special, part.token(0).data) == ("猫".encode(), True, b"<0>")
    assert np.array_equal(part.ids, [1, 3])
