"""The strip's columns: surprise, characters made of pieces, and the stop point."""

import math

import pytest

from charts.strip import Glyph, glyphs, stop_words, strip, surprise_levels
from inference.stopping import Finish
from inference.tokens import Token
from tests.charts.runs import run


def pieces(*data: bytes) -> list[Token]:
    return [Token(i, piece) for i, piece in enumerate(data)]


def test_surprise_rises_where_the_probability_falls_below_a_half_a_fifth_a_twentieth_and_a_hundredth() -> None:
    probabilities = [0.99, 0.501, 0.49, 0.21, 0.19, 0.051, 0.049, 0.011, 0.009, 1e-30]
    assert surprise_levels([math.log(p) for p in probabilities]).tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


def test_the_strip_has_a_level_for_each_generated_token_and_none_for_the_prompt() -> None:
    trace = run()
    shown = strip(trace)
    assert (len(shown.tokens), shown.n_prompt, len(shown.levels)) == (7, 4, 3)
    raw = [step.decision.raw_prob for step in trace.steps]
    assert shown.levels.tolist() == [sum(p < limit for limit in (0.5, 0.2, 0.05, 0.01)) for p in raw]


def test_three_pieces_of_an_emoji_stand_under_it() -> None:
    tokens = pieces(b" hi", b"\xf0\x9f", b"\x98", b"\x80", b"!")
    assert glyphs(tokens) == (Glyph(1, 4, "😀"),)


def test_text_that_shares_a_token_with_a_piece_belongs_to_the_run() -> None:
    assert glyphs(pieces(b"a \xe5", b"\x9b\xb0!", b"b")) == (Glyph(0, 2, "a·困!"),)


def test_pieces_that_never_become_a_character_stay_pieces() -> None:
    assert glyphs(pieces(b"\xf0\x9f", b" cat", b"\x98", b"dog")) == ()


def test_pieces_that_are_not_finished_yet_stay_pieces() -> None:
    assert glyphs(pieces(b"x", b"\xf0\x9f", b"\x98")) == ()


def test_whole_tokens_are_not_joined() -> None:
    assert glyphs(pieces(b"a", "é".encode(), "😀".encode(), b"b")) == ()


def test_a_special_token_ends_a_run_of_pieces() -> None:
    tokens = [Token(0, b"\xf0\x9f"), Token(1, b"<|end|>", special=True), Token(2, b"\x98"), Token(3, b"\x80")]
    assert glyphs(tokens) == ()


def test_the_tokens_that_hold_the_stop_string_are_marked() -> None:
    finish = Finish("stop_string", text="t on", at=9)
    trace = run(chosen=(3, 1, 4, 6, 7), finish=finish)  # " the cat sat on mat"
    shown = strip(trace)
    assert shown.cut == (6, 8)  # " sat" and " on"
    word, sentence = stop_words(trace, str)
    assert word == "stop string"
    assert sentence == "The text reached the stop string “t·on” at character 9; it is cut there."


def test_a_stop_string_inside_one_token_marks_that_token() -> None:
    shown = strip(run(chosen=(3, 16, 1), finish=Finish("stop_string", text="long", at=8)))
    assert shown.cut == (5, 6)


@pytest.mark.parametrize(
    ("finish", "word", "sentence"),
    [
        (Finish("eos", token_id=0), "end token", "The model ended the text with its end token <|end|> (id 0)."),
        (Finish("length"), "length", "The run reached the 3 new tokens that were asked for."),
        (Finish("context"), "context full", "The model's context of 64 positions is full."),
        (Finish("cancelled"), "cancelled", "The run was cancelled after 3 tokens."),
        (Finish("error", text="<b>no</b>"), "error", "The run ended with an error: <b>no</b>"),
    ],
)
def test_every_reason_to_stop_names_itself(finish: Finish, word: str, sentence: str) -> None:
    trace = run(finish=finish)
    assert stop_words(trace, str) == (word, sentence)
    assert strip(trace).cut is None
