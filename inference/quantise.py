"""Numbers as 8- or 4-bit codes and back: what a quantised cache stores, block by block, along a head's dimensions.

The block formats are llama.cpp's (ggml-quants.c): a scale in 16 bits for 32 numbers. `int8` has one such scale for
the whole row of a head and position.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inference.elements import element_type

Floats = NDArray[np.float32]


def rounded(values: Floats, name: str) -> Floats:
    """What is left of `values` [..., D] after they were stored as `name` and read back.

    Args:
        name: one of `FORMATS`.

    Raises:
        CalculatorError: the format's block does not divide D.
    """
    element, width = element_type(name), values.shape[-1]
    element.bytes(1, width)  # refuses a width that its blocks do not divide
    block = width if element.block == 1 else element.block
    blocks = np.ascontiguousarray(values, dtype=np.float32).reshape(-1, block)
    back: Floats = FORMATS[element.name](blocks).reshape(values.shape)
    return back


def _q8(blocks: Floats) -> Floats:
    """Symmetric: the largest magnitude becomes 127."""
    scale = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    codes = np.clip(_nearest(blocks * _inverse(scale)), -127, 127)
    return _numbers(codes, scale)


def _q4_0(blocks: Floats) -> Floats:
    """Sixteen codes from -8 to 7: the number of largest magnitude becomes -8, whatever its sign."""
    at = np.abs(blocks).argmax(axis=1)[:, None]
    scale = np.take_along_axis(blocks, at, axis=1) / np.float32(-8)
    codes = np.clip(np.floor(blocks * _inverse(scale) + np.float32(8.5)), 0, 15) - 8
    return _numbers(codes, scale)


def _q4_1(blocks: Floats) -> Floats:
    """Sixteen codes from the smallest number to the largest; both the scale and the smallest are kept."""
    low = blocks.min(axis=1, keepdims=True)
    scale = (blocks.max(axis=1, keepdims=True) - low) / np.float32(15)
    codes = np.clip(np.floor((blocks - low) * _inverse(scale) + np.float32(0.5)), 0, 15)
    return _numbers(codes, scale) + _half(low)


FORMATS: dict[str, Callable[[Floats], Floats]] = {"q8_0": _q8, "int8": _q8, "q4_1": _q4_1, "q4_0": _q4_0}


def _inverse(scale: Floats) -> Floats:
    found: Floats = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)
    return found


def _numbers(codes: NDArray[Any], scale: Floats) -> Floats:
    return codes.astype(np.float32) * _half(scale)


def _half(values: Floats) -> Floats:
    """As it is kept, in 16 bits."""
    return values.astype(np.float16).astype(np.float32)


def _nearest(values: Floats) -> Floats:
    """The nearest whole number; a half goes away from zero."""
    return np.trunc(values + np.copysign(np.float32(0.5), values)).astype(np.float32)
