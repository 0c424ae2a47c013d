"""The quantised cache drawn from figures made by hand."""

from __future__ import annotations

import numpy as np

from charts.base import Palette
from charts.quantised import channels, effect, head_errors, summary
from inference.cache_quantise import FormatRun, LayerNumbers, Quantised


def peaks(outlier: float) -> np.ndarray:
    """[2, 4]: channel 2 of head 1 stands out."""
    return np.array([[1, 1, 1, 1], [2, 2, outlier, 2]], dtype=np.float32)


def layer(index: int, outlier: float, key_errors: list[list[float]]) -> LayerNumbers:
    return LayerNumbers(index, peaks(outlier), peaks(2), np.array(key_errors), np.full((2, 2), 0.01))


FOUND = Quantised(
    layers=(layer(0, 2, [[0.01, 0.02], [0.1, 0.2]]), layer(2, 18, [[0.03, 0.04], [0.3, 0.4]])),
    exact_nbytes=4096,
    exact_ids=np.array([5, 6, 7]),
    formats=(
        FormatRun("q8_0", 1088, np.array([0, 1e-5, 2e-5]), np.array([0, 0.1, 0.3]), np.array([5, 6, 7])),
        FormatRun("q4_0", 576, np.array([0, 0.1, 0.2]), np.array([0, 3.0, 2.0]), np.array([5, 9, 9])),
    ),
)


def test_the_summary_has_bytes_share_and_changed_tokens() -> None:
    rows = summary(FOUND, str).to_numpy().tolist()
    assert rows[0] == ["as computed", 4096, "100.0%", "0", 0]
    assert rows[1] == ["q8_0", 1088, "26.6%", "1e-05", 0]
    assert rows[2] == ["q4_0", 576, "14.1%", "0.1", 2]


def test_an_exact_prefill_leaves_a_gap_on_the_logarithmic_axis() -> None:
    chart = effect(FOUND, palette=Palette.light(), t=str)
    assert np.isnan(chart.figure.data[0].y[0])
    assert chart.description.endswith("q4_0 moves the logits by up to 3 and changes the token at 2 of 3 steps.")


def test_errors_stand_in_the_row_of_their_layer_keys_before_values() -> None:
    chart = head_errors(FOUND, 1, palette=Palette.dark(), t=str)
    heat = chart.figure.data[0]
    np.testing.assert_allclose(heat.z, [[10, 20, 1, 1], [30, 40, 1, 1]], rtol=1e-6)
    assert heat.y.tolist() == [0, 2]
    assert list(chart.table.columns) == ["layer", "K 0", "K 1", "V 0", "V 1"]
    assert "27.39% of the keys' size" in chart.description  # root of (0.01 + 0.04 + 0.09 + 0.16) / 4


def test_the_channel_that_stands_out_is_named_with_its_multiple_of_the_median() -> None:
    chart = channels(FOUND, "keys", palette=Palette.light(), t=str)
    assert chart.description == (
        "Channel 2 of head 1 in layer 2 reaches 9.0 × the median channel of its head. "
        "1 of 16 channels reach more than 4 ×."
    )
    assert chart.table.iloc[0].tolist() == [2, 1, 2, 9.0]
    assert channels(FOUND, "values", palette=Palette.light(), t=str).description.startswith("Channel 0 of head 0")
