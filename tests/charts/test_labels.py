"""Token text in labels: literal, and true for pieces of characters."""

import pytest

from charts.labels import escape, in_context, pending, shorten
from inference.tokens import Token


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("<b>x</b>", "&lt;b&gt;x&lt;/b&gt;"),
        ("&lt;", "&amp;lt;"),
        ("<br>", "&lt;br&gt;"),
        ("$y$ *z*", "&#36;y&#36; *z*"),
    ],
)
def test_markup_is_escaped_so_that_it_is_shown_literally(text: str, safe: str) -> None:
    assert escape(text) == safe


def test_a_long_label_is_cut_with_an_ellipsis_and_a_short_one_is_not() -> None:
    assert shorten("x" * 18) == "x" * 18
    assert shorten("x" * 19) == "x" * 17 + "…"


def test_the_beginning_of_a_character_is_pending_until_its_last_byte() -> None:
    pieces = [Token(9, b"\xf0\x9f"), Token(10, b"\x98"), Token(11, b"\x80")]
    assert pending(pieces[:1]) == b"\xf0\x9f"
    assert pending(pieces[:2]) == b"\xf0\x9f\x98"
    assert pending(pieces) == b""
    assert pending([Token(1, b" cat")]) == b""


def test_a_special_token_between_the_pieces_does_not_end_the_character() -> None:
    assert pending([Token(9, b"\xf0\x9f"), Token(0, b"<|end|>", special=True)]) == b"\xf0\x9f"


def test_a_piece_that_completes_a_character_is_shown_with_it() -> None:
    assert in_context(Token(11, b"\x80"), b"\xf0\x9f\x98") == "⟨80⟩ → 😀"
    assert in_context(Token(10, b"\x98"), b"\xf0\x9f") == "⟨98⟩"
    assert in_context(Token(1, b" cat"), b"\xf0\x9f\x98") == "·cat"
    assert in_context(Token(1, b" cat"), b"") == "·cat"
