"""Rows, pooled matrices, columns and stages against eager attention of models that were never wrapped."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from inference import attention_rows
from inference.attention_rows import Axis, LayerRows, Stages, axis_of, n_fed, pooled, recorded_layers, stages
from inference.errors import TraceError
from inference.trace import Trace
from tests.test_parity_attention import ATOL, expected_weights
from tests.tiny import WINDOW, attention_layers, build, fed_ids, greedy, reference

SPANS = ["llama", "mistral", "gemma2", "gemma3_text", "gpt2", "gpt_oss", "mixtral", "qwen3", "jamba"]
EAGER = ["bloom", "gpt_neo", "deepseek_v32"]


def expected(name: str, layer: int) -> tuple[Trace, np.ndarray]:
    """A run and the [H, T, T] weights of one of its layers that transformers' eager attention gives."""
    trace = greedy(name)
    return trace, expected_weights(name, trace)[attention_layers(name).index(layer)]


def with_hidden_left_out(weights: np.ndarray) -> np.ndarray:
    """NaN where no head gives a key any weight."""
    return np.where(weights.any(axis=0), weights, np.nan)


@pytest.mark.parametrize("name", [*SPANS, *EAGER])
def test_a_matrix_of_one_position_a_cell_is_the_eager_one_and_what_the_mask_hides_is_left_out(name: str) -> None:
    for layer in attention_layers(name):
        trace, eager = expected(name, layer)
        rows, whole = LayerRows(trace, layer), Axis(0, n_fed(trace))
        for head in range(rows.n_heads):
            found = pooled(rows, head, whole, whole)
            np.testing.assert_allclose(found, with_hidden_left_out(eager)[head], rtol=0, atol=ATOL)


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2", "bloom"])
def test_a_window_off_the_diagonal_is_that_slice_of_the_eager_matrix(name: str) -> None:
    layer = attention_layers(name)[0]
    trace, eager = expected(name, layer)
    found = pooled(LayerRows(trace, layer), 1, Axis(14, 25), Axis(3, 12))
    np.testing.assert_allclose(found, with_hidden_left_out(eager)[1, 14:25, 3:12], rtol=0, atol=ATOL)
    future = pooled(LayerRows(trace, layer), 1, Axis(2, 6), Axis(20, 24))
    assert future.shape == (4, 4)
    assert np.isnan(future).all()


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_pooled_cells_hold_the_largest_eager_weight_of_their_positions(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_rows, "BLOCK", 40)  # a few rows a block, so that the seams are tested
    trace, eager = expected(name, 0)
    queries, keys = Axis(3, 28, 6), Axis(0, 27, 9)
    assert (queries.cell, keys.cell) == (5, 3)
    found = pooled(LayerRows(trace, 0), 2, queries, keys)
    exact = with_hidden_left_out(eager)[2]
    for i, q in enumerate(queries.starts):
        for j, k in enumerate(keys.starts):
            cell = exact[q : min(q + 5, 28), k : min(k + 3, 27)]
            largest = np.nan if np.isnan(cell).all() else np.nanmax(cell)
            np.testing.assert_allclose(found[i, j], largest, rtol=0, atol=ATOL)


def test_rows_of_visible_cells_sum_to_one_and_the_rest_is_exactly_zero() -> None:
    rows = LayerRows(greedy("mistral"), 0)
    at = np.array([0, 5, 20, 27])
    weights, visible = rows.weights(np.arange(4), at), rows.visible(at)
    np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-6)
    assert (weights[:, ~visible] == 0).all()
    assert visible.sum(axis=1).tolist() == [1, 6, WINDOW, WINDOW]


@pytest.mark.parametrize("name", ["llama", "gemma2", "granite"])
def test_the_four_stages_lead_from_the_products_to_the_eager_weights(name: str) -> None:
    trace, eager = expected(name, 0)
    queries, keys = np.arange(15, 21), np.arange(17, 23)
    found = stages(LayerRows(trace, 0), 3, queries, keys)
    scaled = found.products * found.scale
    if name == "gemma2":
        assert found.softcap == build(name).config.attn_logit_softcapping
        scaled = 10 * np.tanh(scaled / 10)
    np.testing.assert_allclose(found.scores, scaled, rtol=1e-5, atol=1e-5)
    hidden = keys[None] > queries[:, None]
    assert np.array_equal(np.isneginf(found.masked), hidden)
    assert np.array_equal(np.isnan(found.weights), hidden)
    np.testing.assert_allclose(found.weights[~hidden], eager[3][15:21, 17:23][~hidden], rtol=0, atol=ATOL)
    assert_shares(found)


def assert_shares(found: Stages) -> None:
    """Within a row, weights are to each other as exp of the masked scores."""
    for scores, weights in zip(found.masked, found.weights, strict=True):
        seen = np.isfinite(scores)
        if seen.sum() > 1:
            ratio = np.exp(scores[seen] - scores[seen].max())
            np.testing.assert_allclose(weights[seen] / weights[seen].max(), ratio, rtol=1e-3, atol=1e-6)


def test_rows_of_a_bfloat16_run_are_those_of_its_steps() -> None:
    trace = greedy("llama", dtype=torch.bfloat16)
    rows = LayerRows(trace, 1)
    for step in (0, 1, 9):
        at = np.arange(len(trace.steps[step].fed_ids)) + trace.first_position(step)
        np.testing.assert_allclose(rows.weights(np.arange(4), at), trace.attention(step, 1), rtol=0, atol=1e-6)


def test_whole_weights_have_no_queries_and_keys_to_show() -> None:
    with pytest.raises(TraceError, match="without the queries and keys behind them"):
        stages(LayerRows(greedy("bloom"), 0), 0, np.array([1]), np.array([0]))


def test_the_layers_with_weights_are_those_with_attention() -> None:
    assert recorded_layers(greedy("jamba")) == tuple(attention_layers("jamba"))
    assert recorded_layers(greedy("bloom")) == (0, 1, 2)
    assert recorded_layers(greedy("falcon_alibi")) == ()


def test_an_axis_is_cut_to_what_there_is_and_never_empty() -> None:
    assert axis_of(600) == Axis(0, 600)
    assert (Axis(0, 600).cell, len(Axis(0, 600).starts)) == (3, 200)
    assert axis_of(600, (-5, 9999)) == Axis(0, 600)
    with pytest.raises(TraceError, match="from position 700 to 800; this step has 600 positions"):
        axis_of(600, (700, 800))


def test_as_many_positions_as_were_fed_are_seen_by_the_reference_too() -> None:
    trace = greedy("llama")
    assert n_fed(trace) == len(fed_ids(trace)) == reference("llama", fed_ids(trace)).attention[0].shape[1]
