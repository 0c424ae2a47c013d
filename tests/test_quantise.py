"""Quantised formats: cases worked out by hand, and bit for bit what the gguf package gives."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from inference.errors import CalculatorError
from inference.quantise import FORMATS, rounded


def row(*values: float) -> np.ndarray:
    """The values, then zeros up to one block of 32."""
    return np.array([*values, *[0.0] * (32 - len(values))], dtype=np.float32)


def test_eight_bits_by_hand() -> None:
    # scale 127 / 127 = 1, exact in 16 bits: every number goes to the nearest whole one, halves away from zero
    assert rounded(row(127, 2.4, 2.5, -2.5, -0.4), "q8_0")[:5].tolist() == [127, 2, 3, -3, 0]


def test_four_bits_by_hand() -> None:
    # the largest magnitude, 4, becomes code -8: scale 4 / -8 = -0.5, so codes reach from 4 down to 7 · -0.5 = -3.5
    assert rounded(row(4, -3.9, 1.0, 0.2, -0.3), "q4_0")[:5].tolist() == [4, -3.5, 1.0, 0.0, -0.5]


def test_four_bits_with_a_minimum_by_hand() -> None:
    # from -3 to 12 in 15 steps of 1
    assert rounded(row(12, -3, 0.4, 0.6), "q4_1")[:4].tolist() == [12, -3, 0, 1]


def test_int8_has_one_scale_for_the_whole_row() -> None:
    values = np.zeros((2, 64), dtype=np.float32)
    values[0, 0], values[0, 63] = 127, 0.4  # 63 is in another block of 32, but in the same row
    values[1, 0] = 12.7
    assert rounded(values, "int8")[0, 63] == 0
    assert rounded(values, "q8_0")[0, 63] == pytest.approx(0.4, rel=1e-3)
    assert rounded(values, "int8")[1, 0] == pytest.approx(12.7, rel=1e-3)


def test_zeros_stay_zeros() -> None:
    for name in FORMATS:
        assert not rounded(row(), name).any()


@pytest.mark.parametrize("name", ["q8_0", "q4_0", "q4_1"])
def test_it_is_what_the_gguf_package_gives_to_the_bit(name: str) -> None:
    values = np.random.default_rng(3).normal(0, 3, (40, 5, 64)).astype(np.float32)
    values[0, 0, :32] = 0
    kind = GGMLQuantizationType[name.upper()]
    assert np.array_equal(rounded(values, name), dequantize(quantize(values, kind), kind))


def test_a_head_that_blocks_do_not_divide_is_refused() -> None:
    with pytest.raises(CalculatorError, match="blocks of 32 values, which do not divide the head size 12"):
        rounded(np.ones((3, 12), dtype=np.float32), "q8_0")
