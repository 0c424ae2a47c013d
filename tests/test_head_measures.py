"""The map of heads and its measures against sums written out over eager attention weights."""

from __future__ import annotations

import numpy as np
import pytest

from inference import head_measures
from inference.attention import LayerSpec
from inference.errors import TraceError
from inference.head_measures import MEASURES, Rows, head_map, sample
from tests.charts.runs import G, H, run
from tests.test_parity_attention import expected_weights
from tests.tiny import attention_layers, fed_ids, greedy

ATOL = 1e-3  # the weights' own tolerance, times distances of up to 27 positions


def by_hand(weights: np.ndarray, ids: list[int]) -> dict[str, float]:
    """The measures of one head from its [T, T] weights, one query and one key at a time."""
    entropies, distances, firsts, before, induced = [], [], [], [], []
    for q in range(1, len(weights)):
        row = [float(w) for w in weights[q, : q + 1]]
        entropies.append(-sum(w * np.log(w) for w in row if w > 0))
        distances.append(sum(w * (q - k) for k, w in enumerate(row)))
        firsts.append(row[0])
        before.append(row[q - 1])
        after_same = [k + 1 for k in range(q) if ids[k] == ids[q]]
        if after_same:
            induced.append(sum(row[k] for k in after_same))
    return {
        "entropy": np.mean(entropies),
        "distance": np.mean(distances),
        "first": np.mean(firsts),
        "previous": np.mean(before),
        "induction": np.mean(induced) if induced else np.nan,
    }


@pytest.mark.parametrize("name", ["llama", "mistral", "gpt2", "bloom"])
def test_measures_of_every_head_are_those_of_the_eager_weights(name: str) -> None:
    trace = greedy(name)
    found, ids = head_map(trace), fed_ids(trace)
    assert found.layers == tuple(attention_layers(name))
    assert found.exact
    for at, weights in enumerate(expected_weights(name, trace)):
        for head in range(trace.model.n_heads):
            expected = by_hand(weights[head], ids)
            for measure in MEASURES:
                np.testing.assert_allclose(found.measures[measure][at, head], expected[measure], rtol=0, atol=ATOL)


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_thumbnails_hold_the_largest_weight_of_their_cells(name: str) -> None:
    trace = greedy(name)
    found = head_map(trace, side=7)
    edges = [i * 28 // 7 for i in range(8)]
    for at, weights in enumerate(expected_weights(name, trace)):
        exact = np.where(weights.any(axis=0), weights, np.nan)
        for i in range(7):
            for j in range(7):
                cell = exact[:, edges[i] : edges[i + 1], edges[j] : edges[j + 1]].reshape(4, -1)
                largest = np.full(4, np.nan) if np.isnan(cell).all() else np.nanmax(cell, axis=1)
                np.testing.assert_allclose(found.thumbs[at, :, i, j], largest, rtol=0, atol=2e-4)


def test_a_head_that_looks_for_what_followed_the_same_token_scores_one_on_a_repeated_text() -> None:
    ids = np.array([5, 6, 7, 5, 6, 7])
    weights = np.zeros((1, 5, 6), dtype=np.float32)  # queries 1 to 5
    weights[0, [0, 1], 0] = 1
    for query in (3, 4, 5):
        weights[0, query - 1, query - 2] = 1  # the position after the token's first occurrence
    rows = Rows(weights, np.arange(1, 6), ids)
    assert MEASURES["induction"](rows).tolist() == [1.0]
    assert MEASURES["entropy"](rows).tolist() == [0.0]
    assert MEASURES["distance"](rows).tolist() == [pytest.approx((1 + 2 + 2 + 2 + 2) / 5)]


def test_a_text_without_repeats_has_no_induction_to_measure() -> None:
    assert np.isnan(head_map(run(prompt=(2, 1, 4, 6), chosen=(3, 7))).measures["induction"]).all()


def test_a_long_run_is_measured_on_evenly_spaced_queries_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_measures, "MOST_WEIGHTS", 100_000)
    trace = run(prompt=[i % 19 for i in range(399)], chosen=(3, 7))
    found = head_map(trace)
    assert not found.exact
    assert len(found.queries) == 48
    assert (found.queries[0], found.queries[-1]) == (0, 399)
    assert set(np.diff(found.queries)) <= {8, 9}
    row = trace.attention(1, 0)[:, 0]
    np.testing.assert_allclose(found.thumbs[0, :, -1, -1] >= row[:, 384:].max(axis=1) - 1e-6, True)


def test_all_heads_of_a_long_prompt_cost_about_the_budget() -> None:
    assert len(sample(4000, 270)) * 270 * 4000 <= 2 * head_measures.MOST_WEIGHTS
    assert len(sample(64, 270)) == 64


def test_layers_without_attention_are_left_out_and_groups_are_told() -> None:
    found = head_map(run(layers=[LayerSpec(H, 0.25), None, LayerSpec(H, 0.25)]))
    assert (found.layers, found.n_kv_heads) == ((0, 2), G)
    assert found.thumbs.shape[:2] == (len(found.layers), H)


def test_a_run_without_weights_says_why() -> None:
    with pytest.raises(TraceError, match="gives other logits than its own default"):
        head_map(greedy("falcon_alibi"))
