"""Stop strings across token borders, held back while they may still come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.errors import RequestError
from inference.request import GenerationRequest
from inference.stopping import TextStream


def run(pieces: list[bytes], stops: tuple[str, ...], include: bool = False):
    """What is shown after each piece, and how it ended."""
    stream, shown = TextStream(stops, include), []
    for piece in pieces:
        text, finish = stream.push(piece)
        shown.append(text)
        if finish:
            return shown, finish
    return [*shown, stream.flush()], None


def test_a_stop_string_may_begin_in_one_token_and_end_inside_another() -> None:
    shown, finish = run([b"Hi s", b"t", b"opera"], ("stop",))
    assert shown == ["Hi ", "", ""]
    assert (finish.reason, finish.text, finish.at) == ("stop_string", "stop", 3)


def test_a_kept_stop_string_ends_the_text_and_what_follows_it_in_the_token_is_cut() -> None:
    shown, _ = run([b"Hi s", b"t", b"opera"], ("stop",), include=True)
    assert "".join(shown) == "Hi stop"


def test_what_only_looked_like_a_stop_string_is_shown_in_the_end() -> None:
    assert run([b"a st", b"ar"], ("stop",)) == (["a ", "star", ""], None)
    assert run([b"a st"], ("stop",)) == (["a ", "st"], None)


def test_the_earliest_of_several_stop_strings_wins() -> None:
    _, finish = run([b"one two three"], ("three", "two"))
    assert (finish.text, finish.at) == ("two", 4)


def test_the_place_of_a_stop_string_is_counted_in_characters() -> None:
    _, finish = run(["小猫。".encode()[:4], "小猫。".encode()[4:], b"\n\n"], ("\n\n",))
    assert finish.at == 3


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(RequestError, match="stop string is empty"):
        GenerationRequest(prompt="a", stop_strings=("",))


@given(st.text("abc ", max_size=40), st.lists(st.text("abc", min_size=1, max_size=4), max_size=3), st.data())
def test_the_text_shown_is_the_text_before_the_first_stop_string(text: str, stops: list[str], data) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b].encode() for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    shown, _ = run(pieces, tuple(stops))
    complete_at = {stop: text.find(stop) + len(stop) for stop in stops if stop in text}
    if not complete_at:
        assert "".join(shown) == text
        return
    # tokens arrive whole: the run sees everything up to the end of the piece that completes a stop string
    seen = text[: next(e for e in [*cuts, len(text)] if e >= min(complete_at.values()))]
    assert "".join(shown) == seen[: min(seen.find(stop) for stop in stops if stop in seen)]
