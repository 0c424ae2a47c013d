"""What a model is known by in its queue and among the loaded ones: name and element type, as one text."""

from __future__ import annotations

from functools import cache

from inference.errors import N_
from inference.machine import bfloat16_instructions, runs_on_cpu

FLOAT32 = "float32"
ELEMENTS = (FLOAT32, "bfloat16")
_SIGN = "|"


def model_key(name: str, element: str = FLOAT32) -> str:
    """The key of a model in an element type; in float32, or on a GPU in the checkpoint's, it is the name itself."""
    return name if element == FLOAT32 else f"{name}{_SIGN}{element}"


def parted(key: str) -> tuple[str, str]:
    """Name and element type of a key."""
    for element in ELEMENTS[1:]:
        if key.endswith(_SIGN + element):
            return key.removesuffix(_SIGN + element), element
    return key, FLOAT32


@cache
def instructions() -> tuple[str, ...]:
    """The processor's bfloat16 instructions, where it is the processor that models run on."""
    return bfloat16_instructions() if runs_on_cpu() else ()


def why_not() -> str:
    """Why bfloat16 is not offered here, as a text to translate; empty where it is."""
    if not runs_on_cpu():
        return N_("Models run on a GPU here, in the type of their checkpoint, so there is no type to choose.")
    if not instructions():
        return N_("This processor has no instructions for bfloat16, so models run in float32.")
    return ""
