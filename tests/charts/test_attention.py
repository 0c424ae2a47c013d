"""The attention map against a softmax written out here, and against the engine's own weights."""

from dataclasses import replace

import numpy as np
import pytest

from charts.attention import attention_map
from charts.base import Chart, Palette
from inference import attention_rows
from inference.attention import LayerSpec
from inference.attention_rows import MOST_CELLS
from inference.errors import TraceError
from inference.trace import AttentionRecord, Trace
from tests.charts.runs import SCALE, G, H, run


def draw(trace: Trace, step: int = 2, layer: int = 1, head: int = 3, positions: tuple[int, int] | None = None) -> Chart:
    return attention_map(trace, step, layer, head, palette=Palette.light(), t=str, positions=positions)


def by_hand(trace: Trace, step: int, layer: int, head: int) -> np.ndarray:
    """[T, T] causal weights, NaN above the diagonal, one query and key at a time."""
    records = [trace.steps[s].attention for s in range(step + 1)]
    queries = np.concatenate([r.queries[layer][head] for r in records if r]).astype(np.float64)
    keys = np.concatenate([r.keys[layer][head // (H // G)] for r in records if r]).astype(np.float64)
    weights = np.full((len(queries), len(keys)), np.nan)
    for q in range(len(queries)):
        scores = [float(queries[q] @ keys[k]) * SCALE for k in range(q + 1)]
        shares = np.exp(np.array(scores) - max(scores))
        weights[q, : q + 1] = shares / shares.sum()
    return weights


def test_every_row_is_the_softmax_over_the_keys_up_to_it() -> None:
    trace = run()
    for step, layer, head in [(0, 0, 0), (1, 1, 2), (2, 0, 3)]:
        drawn = draw(trace, step, layer, head).figure.data[0].z
        assert drawn.shape == (4 + step, 4 + step)
        np.testing.assert_allclose(drawn, by_hand(trace, step, layer, head), atol=1e-6)


def test_each_row_equals_what_the_engine_gives_for_its_step() -> None:
    trace = run()
    drawn = draw(trace).figure.data[0].z
    np.testing.assert_allclose(np.nan_to_num(drawn[:4, :4]), trace.attention(0, 1)[3], atol=1e-6)
    for step in (1, 2):
        np.testing.assert_allclose(drawn[3 + step, : 4 + step], trace.attention(step, 1)[3, 0], atol=1e-6)


def test_positions_outside_a_sliding_window_are_left_empty() -> None:
    trace = run(layers=[LayerSpec(H, SCALE, window=2), LayerSpec(H, SCALE)])
    drawn = draw(trace, layer=0).figure.data[0].z
    expected = [[max(0, q - 1) <= k <= q for k in range(6)] for q in range(6)]
    np.testing.assert_array_equal(~np.isnan(drawn), expected)
    np.testing.assert_allclose(np.nansum(drawn, axis=1), 1, atol=1e-6)


def test_weights_kept_by_an_eager_model_are_drawn_as_they_are() -> None:
    trace = run()
    kept = [np.concatenate([trace.attention(s, layer)[None] for layer in (0, 1)]) for s in range(3)]
    steps = tuple(replace(step, attention=None, weights=tuple(w)) for step, w in zip(trace.steps, kept, strict=True))
    eager = replace(trace, steps=steps)
    np.testing.assert_allclose(draw(eager).figure.data[0].z, draw(trace).figure.data[0].z, atol=1e-6)


def test_the_table_is_what_is_drawn_with_positions_so_that_equal_tokens_stay_apart() -> None:
    chart = draw(run(prompt=(3, 8, 3), chosen=(8, 3)), 1)
    np.testing.assert_array_equal(chart.table.to_numpy(), chart.figure.data[0].z)
    assert list(chart.table.columns) == ["0 ·the", "1 ·the", "2 ·the", "3 ·the"]
    assert list(chart.table.index) == list(chart.table.columns)
    assert list(chart.figure.layout.xaxis.tickvals) == [0, 1, 2, 3]


def test_tick_and_hover_texts_are_escaped() -> None:
    chart = draw(run(prompt=(12, 13, 14), chosen=(1,)), 0)
    assert chart.figure.layout.xaxis.ticktext == ("&lt;b&gt;x&lt;/b&gt;", "&amp;lt;", "&lt;br&gt;")
    assert chart.figure.data[0].text[2, 0] == "query 2 &lt;br&gt;<br>key 0 &lt;b&gt;x&lt;/b&gt;"


def test_the_sentence_names_the_strongest_key_of_this_step() -> None:
    trace = run()
    weights = by_hand(trace, 2, 1, 3)[-1]
    best = int(np.nanargmax(weights))
    said = draw(trace).description
    assert said.startswith("Step 2: the query at position 5, “·mat”, looks most at position ")
    assert f"position {best}, “{trace.tokens[best].display}”, with a weight of {weights[best]:.1%}" in said


def test_the_row_of_this_step_is_framed() -> None:
    frame = draw(run()).figure.layout.shapes[0]
    assert (frame.x0, frame.x1, frame.y0, frame.y1) == (-0.5, 5.5, 4.5, 5.5)


def test_more_than_256_positions_are_pooled_to_the_largest_weight_of_each_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = run(prompt=tuple(i % 19 for i in range(597)), chosen=(3, 7, 19))
    monkeypatch.setattr(attention_rows, "BLOCK", 4000)  # many blocks, so that their seams are tested
    chart = draw(trace)
    exact = by_hand(trace, 2, 1, 3)
    padded = np.full((600, 600), -np.inf)
    padded[:599, :599] = np.where(np.isnan(exact), -np.inf, exact)
    expected = padded.reshape(200, 3, 200, 3).max(axis=(1, 3))
    drawn = chart.figure.data[0].z
    assert drawn.shape == (200, 200)
    assert max(drawn.shape) <= MOST_CELLS
    np.testing.assert_allclose(np.nan_to_num(drawn, nan=-np.inf), expected, atol=1e-6)
    assert "Each cell shows the largest of 3 × 3 weights." in chart.description
    assert chart.table.columns[-1] == "597–598"
    assert list(chart.figure.data[0].x[:2]) == [1, 4]


def test_a_part_of_a_long_run_is_drawn_exactly() -> None:
    trace = run(prompt=tuple(i % 19 for i in range(597)), chosen=(3, 7, 19))
    drawn = draw(trace, positions=(500, 599)).figure.data[0].z
    np.testing.assert_allclose(drawn, by_hand(trace, 2, 1, 3)[500:, 500:], atol=1e-6)


def test_a_layer_that_was_not_recorded_gives_a_sentence_in_the_place_of_the_figure() -> None:
    trace = run()
    empty = np.empty((0, 0, 0), dtype=np.float32)
    steps = []
    for step in trace.steps:
        record = step.attention
        assert record
        partial = AttentionRecord((record.queries[0], empty), (record.keys[0], empty), record.visible)
        steps.append(replace(step, attention=partial))
    chart = draw(replace(trace, steps=tuple(steps)))
    assert chart.description == "Attention of layer 1 was not recorded in this run."
    assert not chart.figure.data
    assert chart.table.empty


def test_a_layer_without_attention_gives_a_sentence() -> None:
    chart = draw(run(layers=[LayerSpec(H, SCALE), None]))
    assert chart.description == "Layer 1 of this model has no attention."


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ({"layer": 2}, "There is no layer 2; the model has 2"),
        ({"head": 4}, "There is no head 4; the model has 4 a layer"),
        ({"positions": (6, 9)}, "There is nothing to draw from position 6 to 9; this step has 6 positions"),
    ],
)
def test_a_place_that_does_not_exist_is_refused_with_the_limit(place: dict[str, int], said: str) -> None:
    with pytest.raises(TraceError, match=said):
        draw(run(), **place)
