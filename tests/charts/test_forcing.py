"""The charts of a scored text against figures done by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from charts.base import Chart, Palette
from charts.forcing import BARS, guesses_chart, losses_chart, targets_table
from inference.forcing import Forcing
from tests.charts.runs import vocabulary


def scored(ids=(2, 1, 12, 14), probs=(0.5, 0.25, 0.01), ranks=(1, 2, 400)) -> Forcing:
    """ "The cat<b>x</b><br>", whose positions expected " cat", " the" and so on."""
    n = len(ids)
    return Forcing(
        "hand-made",
        vocabulary(),
        np.array(ids),
        np.log(np.array(probs)),
        np.array(ranks),
        np.linspace(1, 2, n),
        np.tile([1, 3, 13], (n, 1)),
        np.tile(np.float32([0.5, 0.3, 0.1]), (n, 1)),
    )


def draw(chart, forcing: Forcing, at: int = 1) -> Chart:
    return chart(forcing, at, palette=Palette.light(), t=str)


def test_losses_are_the_negative_logs_with_their_mean_and_the_perplexity() -> None:
    chart = draw(losses_chart, scored())
    bars, expected = chart.figure.data
    np.testing.assert_allclose(bars.y, [math.log(2), math.log(4), math.log(100)])
    np.testing.assert_allclose(expected.y, [1, 4 / 3, 5 / 3])
    mean = math.log(800) / 3
    assert chart.figure.layout.shapes[0].y0 == pytest.approx(mean)
    figures = f"Mean loss {mean:.3f} nats over 3 positions, perplexity {800 ** (1 / 3):.2f}"
    assert chart.description == f"{figures}; the true token was likeliest in 1."


def test_bars_are_named_by_their_targets_and_the_readers_position_is_marked_by_more_than_colour() -> None:
    chart = draw(losses_chart, scored())
    assert chart.figure.layout.xaxis.ticktext == ("·cat", "<b>▸ &lt;b&gt;x&lt;/b&gt;</b>", "&lt;br&gt;")
    colours = chart.figure.data[0].marker.color
    assert colours[0] == colours[2] != colours[1]
    assert (1, "▾") in [(note.x, note.text) for note in chart.figure.layout.annotations]
    assert chart.figure.data[0].hovertext[2] == (
        "position 2<br><b>&lt;br&gt;</b><br>probability 1.00%<br>rank 400<br>loss 4.61 nats"
    )


def test_many_positions_are_a_line_with_the_readers_position_marked() -> None:
    n = BARS + 2
    long = scored([1] * n, [0.5] * (n - 1), [1] * (n - 1))
    figure = draw(losses_chart, long, 7).figure
    assert [trace.type for trace in figure.data] == ["scatter", "scatter"]
    assert len(figure.data[0].y) == n - 1
    assert figure.layout.shapes[0].x0 == 7


def test_the_table_sets_each_input_beside_the_token_one_further_on() -> None:
    table = targets_table(scored(), str)
    assert table["input"].tolist() == ["The", "·cat", "<b>x</b>"]
    assert table["target"].tolist() == ["·cat", "<b>x</b>", "<br>"]
    assert table["probability"].tolist() == pytest.approx([0.5, 0.25, 0.01])
    assert table["rank"].tolist() == [1, 2, 400]
    assert table["likeliest"].tolist() == ["·cat"] * 3
    assert table["its probability"].tolist() == pytest.approx([0.5] * 3)


def test_the_true_token_is_marked_among_the_guesses_and_added_where_it_is_not_one_of_them() -> None:
    first, second = draw(guesses_chart, scored(), 0), draw(guesses_chart, scored(), 1)
    assert first.figure.layout.yaxis.ticktext == ("<b>▸ ·cat</b>", "·the", "&amp;lt;")
    assert second.figure.layout.yaxis.ticktext == ("·cat", "·the", "&amp;lt;", "<b>▸ &lt;b&gt;x&lt;/b&gt;</b>")
    assert second.figure.data[0].x.tolist() == pytest.approx([0.5, 0.3, 0.1, 0.25])
    assert second.table["the true one"].tolist() == [False, False, False, True]
    assert second.description == (
        "Position 1 has read up to “·cat”; the true next token, “<b>x</b>”, has rank 2 and loss 1.39 nats."
    )


def test_the_last_position_has_no_true_token() -> None:
    chart = draw(guesses_chart, scored(), 3)
    assert not chart.table["the true one"].any()
    assert len(chart.table) == 3
    assert chart.description.startswith("Position 3 has read up to “<br>”, the end of the text")


def test_a_guess_that_completes_a_character_is_shown_with_it() -> None:
    found = scored((2, 9, 10, 11))
    found.top_ids[2, 0] = 11
    assert draw(guesses_chart, found, 2).table["token"].tolist()[0] == "⟨80⟩ → 😀"
