"""The charts of a router's choice on a distribution made by hand: what is drawn, tabled and said."""

from __future__ import annotations

import json

import numpy as np
import pytest

from charts.base import Palette
from charts.expert_tokens import draw_chart, expert_tokens
from inference.routing import Expert, Route
from inference.sampling import SamplingParams, choose, run_pipeline
from inference.tokens import Token

# ids 1 and 2 stand for models; 0 and 3 do not
PROBS = np.array([0.15, 0.5, 0.3, 0.05])
WORDS = ("<a>", "<|one|>", "<|two|>", "$x$")
EXPERTS = (Expert(Token(1, b"<|one|>", True), "one"), Expert(Token(2, b"<|two|>", True), "two"))


def route(u: float | None = 0.6, **settings: object) -> Route:
    """A choice among the tokens above at u; greedy where u is `None`."""
    params = SamplingParams(greedy=u is None, **settings)  # type: ignore[arg-type]
    stages = [stage for stage in run_pipeline(np.log(PROBS), params) if stage.name != "greedy"]
    token_id = int(PROBS.argmax()) if u is None else choose(stages, u)
    return Route(EXPERTS, tuple(stages), Token(token_id, WORDS[token_id].encode()), u)


def test_the_experts_rows_and_one_for_all_others_hold_the_whole_probability() -> None:
    chart = expert_tokens(route(), palette=Palette.light(), t=str)
    assert chart.table["token"].tolist() == ["<|one|>", "<|two|>", "all other 2"]
    assert chart.table["model"].tolist() == ["one", "two", ""]
    assert chart.table["raw probability"].tolist() == pytest.approx([0.5, 0.3, 0.2])
    assert chart.table["chosen"].tolist() == [False, True, False]
    assert chart.description == (
        "<|two|> was drawn with probability 30.0%; its raw probability is 30.0%. "
        "The vocabulary's other 2 tokens have 20.0% together."
    )


def test_top_k_two_gives_five_eighths_and_three_eighths_and_names_what_removed_the_others() -> None:
    chart = expert_tokens(route(top_k=2), palette=Palette.light(), t=str)
    assert chart.table["after settings"].tolist() == pytest.approx([0.625, 0.375, 0])
    assert chart.table["removed by"].tolist() == ["", "", "top_k"]
    assert "20.0% together, 0.0% after the settings" in chart.description


def test_a_setting_that_leaves_a_part_of_the_others_is_not_said_to_have_removed_them() -> None:
    chart = expert_tokens(route(top_k=3), palette=Palette.light(), t=str)
    assert chart.table["removed by"].tolist() == ["", "", ""]
    assert chart.table["after settings"].tolist() == pytest.approx([0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95])


def test_a_draw_on_another_token_is_said_to_ask_nobody() -> None:
    chart = expert_tokens(route(0.9), palette=Palette.light(), t=str)
    assert chart.table["chosen"].tolist() == [False, False, True]
    assert "“<a>” was drawn, which stands for no model" in chart.description


def test_greedy_says_that_there_was_no_draw() -> None:
    assert "Greedy decoding took <|one|>" in expert_tokens(route(None), palette=Palette.light(), t=str).description
    drawn = draw_chart(route(None), palette=Palette.light(), t=str)
    assert drawn.description == "Greedy decoding needs no draw: the likeliest token is taken."
    assert not drawn.figure.layout.shapes


def test_the_line_is_cut_in_the_order_of_probability_and_the_needle_stands_at_u() -> None:
    chart = draw_chart(route(), palette=Palette.light(), t=str)
    assert chart.table["token"].tolist() == ["<|one|>", "<|two|>", "all other 2"]
    assert chart.table["begins"].tolist() == pytest.approx([0, 0.5, 0.8])
    assert chart.table["ends"].tolist() == pytest.approx([0.5, 0.8, 1.0])
    assert [shape.x0 for shape in chart.figure.layout.shapes] == [0.6]
    assert "u = 0.6000 falls on <|two|>" in chart.description


def test_token_text_is_drawn_literally() -> None:
    for chart in (
        expert_tokens(route(0.99), palette=Palette.dark(), t=str),
        draw_chart(route(), palette=Palette.dark(), t=str),
    ):
        drawn = str(json.loads(chart.figure.to_json()))
        assert "<|one|>" not in drawn
        assert "&lt;|one|&gt;" in drawn


def test_every_span_is_in_the_legend_once_and_a_narrow_one_has_no_name_in_it() -> None:
    chart = draw_chart(route(temperature=2.0), palette=Palette.light(), t=str)
    bars = [trace for trace in chart.figure.data if trace.type == "bar"]
    assert [bar.name for bar in bars if bar.showlegend] == ["&lt;|one|&gt;", "&lt;|two|&gt;", "all other 2"]
    weights = np.sqrt(PROBS) / np.sqrt(PROBS).sum()
    assert [bar.x[0] for bar in bars] == pytest.approx([weights[1], weights[2], weights[0] + weights[3]], rel=1e-5)
    narrow = draw_chart(route(temperature=0.3), palette=Palette.light(), t=str)
    assert [bar.text[0] for bar in narrow.figure.data if bar.type == "bar"][-1] == ""
