"""The charts of the logit lens against records made by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from charts.base import Chart, Palette
from charts.lens import lens_climb, lens_map, lens_run
from inference.errors import TraceError
from inference.lens import LensRecord
from inference.trace import Trace
from tests.charts.runs import run


def lens(ids: list[list[int]], probs: list[list[float]], ranks: list[int], shares: list[float]) -> LensRecord:
    return LensRecord(
        np.array(ids, dtype=np.int32),
        np.array(probs, dtype=np.float32),
        np.array(shares, dtype=np.float32),
        np.array(ranks, dtype=np.int32),
    )


FIRST = lens(  # " mat" was chosen, " the" is the last layer's highest from layer 1 on
    [[1, 5, 8], [3, 7, 1], [3, 7, 12]], [[0.5, 0.2, 0.1], [0.6, 0.2, 0.1], [0.7, 0.25, 0.01]], [9, 2, 2],
    [0.01, 0.2, 0.25],
)  # fmt: skip
SECOND = lens([[2, 1, 3]] * 3, [[0.4, 0.3, 0.2]] * 3, [1, 1, 1], [0.4, 0.4, 0.4])


def trace_of(*records: LensRecord | None, chosen: tuple[int, ...] = (7, 2)) -> Trace:
    trace = run(chosen=chosen)
    return replace(trace, steps=tuple(replace(s, lens=one) for s, one in zip(trace.steps, records, strict=True)))


def draw(chart, trace: Trace, step: int = 0, **options) -> Chart:
    return chart(trace, step, palette=Palette.light(), t=str, **options)


def test_the_map_draws_each_layers_tokens_by_rank_and_marks_the_chosen_one() -> None:
    drawn, texts = draw(lens_map, trace_of(FIRST, SECOND)).figure.data
    np.testing.assert_array_equal(drawn.z, FIRST.probs)
    assert drawn.x.tolist() == [1, 2, 3]
    assert drawn.y.tolist() == [0, 1, 2]
    expected = {
        0: ["·cat", "↵", "·the"],
        1: ["·the", "<b>▸ ·mat</b>", "·cat"],
        2: ["·the", "<b>▸ ·mat</b>", "&lt;b&gt;x&lt;/b&gt;"],
    }
    for layer, words in expected.items():
        assert [(x, word) for x, y, word in zip(texts.x, texts.y, texts.text, strict=True) if y == layer] == [
            *enumerate(words, 1)
        ]
    assert texts.textfont.color[0] == texts.textfont.color[1] == Palette.light().text  # 50 % and 20 %
    assert texts.textfont.color[3] == Palette.light().background  # 60 %
    assert drawn.hovertext[2][2] == "layer 2, rank 3<br><b>&lt;b&gt;x&lt;/b&gt;</b><br>id 12<br>probability 1.00%"


def test_the_map_frames_the_layers_in_which_the_last_layers_choice_leads() -> None:
    chart = draw(lens_map, trace_of(FIRST, SECOND))
    (frame,) = chart.figure.layout.shapes
    assert (frame.x0, frame.x1, frame.y0, frame.y1) == (0.5, 1.5, 0.5, 2.5)
    assert chart.description == (
        "Step 0: the last layer's highest token, “·the” (70.0%), is the highest from layer 1 on."
    )


def test_the_sentence_knows_a_lead_in_every_layer_and_in_the_last_alone() -> None:
    assert "is the highest in every layer" in draw(lens_map, trace_of(FIRST, SECOND), 1).description
    late = replace(FIRST, ids=FIRST.ids[[0, 0, 2]])
    assert "takes the lead in that layer only" in draw(lens_map, trace_of(late, SECOND)).description


def test_the_map_draws_no_more_ranks_than_asked_and_its_table_has_every_layer() -> None:
    chart = draw(lens_map, trace_of(FIRST, SECOND), n=2)
    assert chart.figure.data[0].z.shape == (3, 2)
    assert chart.table["layer"].tolist() == [0, 1, 2]
    assert chart.table["token at rank 1"].tolist() == ["·cat", "·the", "·the"]
    assert chart.table["probability at rank 2"].tolist() == pytest.approx([0.2, 0.2, 0.25])
    assert chart.table["rank of the chosen token"].tolist() == [9, 2, 2]


def test_the_climb_is_the_chosen_tokens_rank_with_the_first_rank_at_the_right_end() -> None:
    chart = draw(lens_climb, trace_of(FIRST, SECOND))
    (line,) = chart.figure.data
    assert (line.x.tolist(), line.y.tolist()) == ([9, 2, 2], [0, 1, 2])
    axis = chart.figure.layout.xaxis
    assert axis.type == "log"
    assert axis.range[0] > np.log10(9) > 0 > axis.range[1]
    assert chart.description == "“·mat” was chosen: rank 9 in layer 0, rank 2 in layer 2, which is the last."
    assert chart.table["probability"].tolist() == pytest.approx([0.01, 0.2, 0.25])


def test_the_run_has_a_column_a_step_and_frames_the_current_one() -> None:
    chart = draw(lens_run, trace_of(FIRST, SECOND), 1)
    (drawn,) = chart.figure.data
    np.testing.assert_allclose(drawn.z, -np.log10([[9, 1], [2, 1], [2, 1]]))
    assert chart.figure.layout.xaxis.ticktext == ("·mat", "The")
    (frame,) = chart.figure.layout.shapes
    assert (frame.x0, frame.x1) == (0.5, 1.5)
    assert chart.table["the last layer's choice leads from"].tolist() == [1, 0]
    assert drawn.hovertext[0][0] == "step 0: ·mat<br>layer 0<br>rank 9"


def test_a_step_without_it_says_so_and_the_run_draws_the_others() -> None:
    trace = trace_of(None, SECOND)
    for chart in (lens_map, lens_climb):
        assert draw(chart, trace).description == "The logit lens of this step is not in the record."
        assert not draw(chart, trace).figure.data
    assert draw(lens_run, trace).figure.data[0].x.tolist() == [1]
    assert not draw(lens_run, trace_of(None, None)).figure.data


@pytest.mark.parametrize("chart", [lens_map, lens_climb, lens_run])
def test_a_step_that_the_run_does_not_have_is_refused(chart) -> None:
    with pytest.raises(TraceError, match="There is no step 2; the run has 2"):
        draw(chart, trace_of(FIRST, SECOND), 2)


def test_a_piece_of_a_character_is_shown_with_what_it_completes() -> None:
    trace = run(prompt=(2, 9), chosen=(10, 11))
    record = lens([[11, 1]] * 2, [[0.9, 0.05]] * 2, [1, 1], [0.9, 0.9])
    trace = replace(trace, steps=tuple(replace(s, lens=record) for s in trace.steps))
    assert draw(lens_map, trace, 1).table["token at rank 1"].tolist() == ["⟨80⟩ → 😀"] * 2


def test_the_last_layer_has_its_tick_however_many_there_are() -> None:
    for n in (3, 12, 13, 30, 48, 96):
        record = lens([[1, 2]] * n, [[0.5, 0.4]] * n, [1] * n, [0.5] * n)
        ticks = draw(lens_map, trace_of(record, record, chosen=(1, 1))).figure.layout.yaxis.tickvals
        assert ticks[0] == n - 1
        assert 2 < len(ticks) <= 14
