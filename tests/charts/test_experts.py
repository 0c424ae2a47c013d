"""The charts of the experts page on hand-made routers: what is drawn, tabled and said."""

from __future__ import annotations

import numpy as np
import pytest

from charts.base import Palette
from charts.experts import ROWS, expert_metrics, groups_map, load_chart, path_chart, routing_map, window
from inference.errors import TraceError
from inference.experts import Group, LayerLoad, Routing
from tests.charts.runs import run

LIGHT = Palette.light()
LOGITS = np.log(
    np.array([[7, 2, 1, 0.1], [1, 7, 2, 0.1], [7, 2, 1, 0.1], [2, 7, 1, 0.1], [6, 3, 1, 0.1], [1, 6, 3, 0.1]])
)


def routed(layer: int = 1, logits: np.ndarray = LOGITS) -> Routing:
    """Six positions (four of the prompt), four experts, two chosen, weights normalised."""
    gates = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    experts = np.argsort(-logits, axis=1)[:, :2]
    picked = np.take_along_axis(gates, experts, 1)
    weights = (picked / picked.sum(1, keepdims=True)).astype(np.float32)
    return Routing(layer, logits.astype(np.float32), gates.astype(np.float32), "softmax", experts, weights)


def test_the_map_draws_the_gates_and_a_dot_on_each_chosen_expert() -> None:
    found = routed()
    chart = routing_map(run(), found, 3, palette=LIGHT, t=str)
    grid, dots = chart.figure.data
    np.testing.assert_allclose(grid.z, found.gates)
    assert list(zip(dots.y, dots.x, strict=True)) == [(at, e) for at in range(6) for e in found.experts[at]]
    assert chart.description.startswith("“·on” at position 3 goes to the dotted experts: 1 (0.78) + 0 (0.22)")
    assert "Rows below the dashed line" in chart.description
    assert [shape.y0 for shape in chart.figure.layout.shapes] == [3.5, 2.5]  # the prompt's end, the row in focus
    assert chart.table["experts"][0] == "0 (0.78) + 1 (0.22)"
    assert list(chart.table["phase"]) == ["prefill"] * 4 + ["decode"] * 2


def test_a_position_that_was_never_fed_is_refused_with_both_numbers() -> None:
    with pytest.raises(TraceError, match="no position 6; 6 were fed"):
        routing_map(run(), routed(), 6, palette=LIGHT, t=str)


@pytest.mark.parametrize(("n", "at", "expected"), [(10, 9, (0, 10)), (500, 0, (0, ROWS)), (500, 499, (460, 500))])
def test_a_long_run_is_drawn_around_the_token_in_focus(n: int, at: int, expected: tuple[int, int]) -> None:
    assert window(n, at) == expected
    assert expected[0] <= at < expected[1]


def test_markup_in_a_token_is_shown_and_not_parsed() -> None:
    chart = routing_map(run(prompt=(12, 13, 14, 15)), routed(), 0, palette=LIGHT, t=str)
    assert list(chart.figure.layout.yaxis.ticktext[:4]) == [
        "&lt;b&gt;x&lt;/b&gt;", "&amp;lt;", "&lt;br&gt;", "&#36;y&#36;",
    ]  # fmt: skip
    assert "<b>" not in chart.figure.data[0].text[0][0]
    assert chart.table["token"][0] == "<b>x</b>"


def test_the_load_counts_choices_and_names_the_busiest_and_the_unused() -> None:
    chart = load_chart(routed(), palette=LIGHT, t=str)
    assert chart.table["chosen"].tolist() == [4, 6, 2, 0]
    assert list(chart.figure.data[0].y) == pytest.approx([4 / 12, 6 / 12, 2 / 12, 0])
    assert chart.description == (
        "Expert 1 is the busiest with 50.0% of the choices, 2.00 times its even share. Never used: 1 (3)."
    )


def test_groups_are_compared_by_the_share_that_would_have_to_move() -> None:
    groups = [Group("a", np.array([0, 2])), Group("b", np.array([1, 5])), Group("c", np.array([3, 4]))]
    chart = groups_map(routed(), groups, palette=LIGHT, t=str)
    np.testing.assert_allclose(chart.figure.data[0].z, [[0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0.5, 0.5, 0, 0]])
    assert "“a” and “b” differ most: 50.0%" in chart.description
    assert "“a” and “c” least: 0.0%" in chart.description


def test_a_long_line_is_cut_before_its_count_and_whole_in_the_table() -> None:
    line = "def get_total(items, index, value)"
    chart = groups_map(routed(), [Group(line, np.arange(6))], palette=LIGHT, t=str)
    assert list(chart.figure.layout.yaxis.ticktext) == ["def get_total(ite… (6)"]
    assert chart.table["group"].tolist() == [f"{line} (6)"]


def test_one_group_alone_is_not_compared() -> None:
    chart = groups_map(routed(), [Group("a", np.arange(6))], palette=LIGHT, t=str)
    assert chart.description == "There is only one group, so there is nothing to compare."


def test_the_way_joins_the_strongest_expert_of_each_layer() -> None:
    layers = [routed(0, LOGITS[:1]), routed(2, LOGITS[:1, ::-1].copy())]
    chart = path_chart(run(), layers, 0, palette=LIGHT, t=str)
    assert list(chart.figure.data[1].x) == [0, 3]
    assert chart.description == "“The” at position 0 goes to 0 (0.78) + 1 (0.22) → 3 (0.78) + 2 (0.22)."


def test_the_figures_are_those_of_the_layer_and_the_unused_of_all() -> None:
    layers = [LayerLoad(0, np.array([4, 6, 2, 0]), 0.74, 2, 6), LayerLoad(2, np.array([0, 2, 6, 4]), 0.74, 2, 6)]
    found = {metric.label: metric for metric in expert_metrics(layers, 0, str)}
    assert found["Experts a token"].value == "2 of 4"
    assert found["Imbalance"].value == "2.00 ×"
    assert (found["Never used"].value, found["Never used"].note) == ("1", "2 in all layers")
    assert found["Strongest expert's part"].value == "74.0%"
