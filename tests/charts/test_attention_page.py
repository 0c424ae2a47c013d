"""The charts of the attention page: ranking, one head's lines and words, four stages, masks, the softmax by hand."""

from __future__ import annotations

import numpy as np
import pytest

from charts.attention_head import HeadView, head_view
from charts.attention_stages import stages_view
from charts.base import Palette
from charts.heads import HIDDEN, mosaic
from charts.masks import compared_masks, example_chart, used_mask
from inference.attention_rows import Axis, LayerRows, pooled, stages
from inference.head_measures import head_map
from inference.masks import causal, prefix, sliding, softmax_with_mask
from inference.trace import Trace
from tests.charts.runs import G, H, run
from tests.charts.test_attention import by_hand

PALETTES = [Palette.light(), Palette.dark()]
AWKWARD = (12, 13, 14, 15, 5, 9, 10, 11, 3, 8)  # markup, TeX, a newline, an emoji in pieces, two tokens that read alike


def view(trace: Trace, focus: int, side: str, axis: Axis | None = None) -> HeadView:
    rows, axis = LayerRows(trace, 1), axis or Axis(0, trace.n_prompt + len(trace.steps) - 1)
    return head_view(
        trace, rows, 3, pooled(rows, 3, axis, axis), axis, axis, focus=focus, side=side, t=str
    )  # fmt: skip


def test_what_a_token_reads_is_its_row_and_who_reads_it_is_its_column() -> None:
    trace = run()
    exact = by_hand(trace, 2, 1, 3)
    np.testing.assert_allclose(view(trace, 4, "reads").line, exact[4], atol=1e-6)
    np.testing.assert_allclose(view(trace, 2, "read_by").line, exact[:, 2], atol=1e-6)


def test_the_strongest_positions_are_the_largest_weights_of_the_line_in_order() -> None:
    trace = run()
    row = by_hand(trace, 2, 1, 3)[5]
    found = view(trace, 5, "reads")
    assert list(found.top) == sorted(range(6), key=lambda k: -row[k])[:5]
    best = found.top[0]
    assert f"reads most from position {best}, “{trace.tokens[best].display}”: {row[best]:.1%}" in found.description
    assert "spread over 6 visible keys" in found.description


def test_the_table_keeps_equal_and_awkward_tokens_apart_and_literal() -> None:
    trace = run(prompt=AWKWARD, chosen=(8, 1))
    names = list(view(trace, 0, "reads").table.columns)
    assert names[:5] == ["0 <b>x</b>", "1 &lt;", "2 <br>", "3 $y$", "4 ↵"]
    assert names[8:] == ["8 ·the", "9 ·the", "10 ·the"]


def test_a_pooled_table_names_ranges_of_positions() -> None:
    trace = run(prompt=[i % 19 for i in range(599)], chosen=(3, 7))
    table = view(trace, 0, "reads", Axis(0, 600)).table
    assert table.shape == (200, 200)
    assert table.columns[1] == "3–5"


def test_stages_are_four_panels_whose_names_are_literal_and_whose_hidden_cells_are_empty() -> None:
    trace = run(prompt=AWKWARD, chosen=(8, 1))
    found = stages(LayerRows(trace, 1), 3, np.arange(0, 4), np.arange(0, 5))
    shown = stages_view(trace, found, t=str)
    assert [panel.name for panel in shown.panels] == ["q · k", "× 0.25", "masked", "softmax"]
    assert shown.keys[:3] == ["<b>x</b> 0", "&lt; 1", "<br> 2"]
    products, scaled, masked, softmax = (panel.shades for panel in shown.panels)
    np.testing.assert_allclose(scaled, products, rtol=1e-6)  # the scale is the same for all, and so are the shades
    hidden = ~np.tri(4, 5, dtype=bool)
    assert np.array_equal(np.isnan(masked), hidden)
    assert np.array_equal(np.isnan(softmax), hidden)
    right = by_hand(trace, 1, 1, 3)[:4, :5]
    np.testing.assert_allclose(softmax[~hidden], (right / right[~hidden].max())[~hidden], atol=1e-5)
    assert shown.panels[3].words == [
        [f"{right[q, k]:.3f}" if k <= q else "" for k in range(5)] for q in range(4)
    ]  # fmt: skip
    assert shown.panels[2].words[0][1] == "−∞"
    assert np.nanmax(np.abs(products)) == 1
    assert len(shown.table) == 20


def test_heads_in_place_stand_layer_by_layer_and_show_their_groups() -> None:
    found = mosaic(head_map(run()), "entropy", "place", t=str)
    assert found.heads.tolist() == [[layer, head] for layer in range(2) for head in range(H)]
    assert found.groups.tolist() == [head // (H // G) for head in range(H)]
    assert found.levels[0, 0, 0, 1] == HIDDEN
    assert found.levels[0, 0, 0, 0] == HIDDEN - 1  # position 0 gives itself everything


def test_a_ranking_goes_from_the_highest_or_from_the_lowest() -> None:
    heads = head_map(run())
    values = heads.measures["distance"]
    up, down = (mosaic(heads, "distance", order, t=str).heads for order in ("lowest", "highest"))
    assert [values[tuple(at)] for at in up] == sorted(values.ravel())
    assert [values[tuple(at)] for at in down] == sorted(values.ravel(), reverse=True)


def test_the_sentence_of_the_map_names_the_highest_head_and_what_was_sampled() -> None:
    heads = head_map(run())
    layer, head = np.unravel_index(heads.measures["first"].argmax(), (2, H))
    said = mosaic(heads, "first", "place", t=str).description
    assert f"Highest on the first token: layer {layer}, head {head}," in said
    assert "2 query heads share one KV head" in said
    assert "evenly spaced" not in said


def test_a_measure_that_nothing_repeats_for_ranks_no_head() -> None:
    found = mosaic(head_map(run(prompt=(2, 1, 4, 6), chosen=(3, 7))), "induction", "highest", t=str)
    assert not len(found.heads)
    assert found.notes[0, 0] == "no token repeats"


@pytest.mark.parametrize(
    ("visible", "window", "kind"),
    [
        (causal(6, 6), None, "causal"),
        (causal(1, 9), None, "causal"),
        (causal(3, 3), 8, "causal"),
        (sliding(9, 9, 4), 4, "causal with a sliding window of 4"),
        (sliding(1, 9, 4), 4, "causal with a sliding window of 4"),
        (prefix(6, 3), None, "prefix: some queries see later positions"),
        (sliding(9, 9, 4), None, "causal, with keys left out"),
    ],
)
def test_the_kind_of_a_mask_is_read_off_its_cells(visible: np.ndarray, window: int | None, kind: str) -> None:
    tokens = run(prompt=AWKWARD, chosen=(8, 1)).tokens[: visible.shape[1]]
    first = visible.shape[1] - len(visible)
    chart = used_mask(visible, first, tokens, window, layer=3, palette=Palette.light(), t=str)
    assert chart.title == f"The mask of layer 3: {kind}"
    assert np.array_equal(chart.figure.data[0].z > 0, visible)
    assert chart.table["visible keys"].tolist() == visible.sum(axis=1).tolist()
    assert chart.figure.layout.xaxis.ticktext[0] == "&lt;b&gt;x&lt;/b&gt;"


def test_decode_is_one_row_and_a_long_mask_is_pooled_to_shares() -> None:
    tokens = run(prompt=[i % 19 for i in range(600)], chosen=(3,)).tokens[:600]
    row = used_mask(causal(1, 600), 599, tokens, None, layer=0, palette=Palette.light(), t=str)
    assert row.figure.data[0].z.shape == (1, 200)
    assert row.description.startswith("Decode: one query, at position 599, and 600 keys in the row; it sees 600")
    whole = used_mask(causal(600, 600), 0, tokens, None, layer=0, palette=Palette.light(), t=str)
    np.testing.assert_allclose(np.diag(whole.figure.data[0].z), 6 / 9)


def test_a_query_without_a_visible_key_is_told() -> None:
    visible = causal(3, 3)
    visible[1] = False
    tokens = run().tokens[:3]
    chart = used_mask(visible, 0, tokens, None, layer=0, palette=Palette.light(), t=str)
    assert "Queries with no visible key: 1." in chart.description


def test_other_architectures_hide_what_their_papers_say() -> None:
    chart = compared_masks(8, 3, 4, palette=Palette.dark(), t=str)
    cells = dict(zip(chart.table["mask"], chart.table["visible cells"], strict=True))
    assert cells == {
        "causal (GPT)": 36,
        "sliding window 3": 21,
        "prefix 4": 36 + 6,
        "bidirectional (BERT)": 64,
        "decoder (T5)": 21,
        "cross-attention (T5)": 48,
    }


def test_the_softmax_by_hand_is_written_out() -> None:
    chart = example_chart(softmax_with_mask([2, 1, 5], [2]), palette=Palette.light(), t=str)
    assert chart.description == "softmax([2, 1, −∞]) = [0.7311, 0.2689, 0]"
    assert chart.figure.data[0].text == ("0.7311", "0.2689", "−∞")
    blind = example_chart(softmax_with_mask([2, 1], [0, 1]), palette=Palette.light(), t=str)
    assert blind.description.startswith("No visible key")
