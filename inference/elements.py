"""What one cached value costs: plain element types, and block formats that carry their own scales.

Exact integer arithmetic. Sizes of the llama.cpp formats are `GGML_QUANT_SIZES` of the gguf package; the group
formats of transformers keep a 16-bit scale and a 16-bit zero a group of 64 (`QuantizedCache`, quanto and
HQQ).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from inference.errors import N_, CalculatorError

Engine = Literal["transformers", "llama.cpp", "vLLM"]


@dataclass(frozen=True, slots=True)
class ElementType:
    """A way to store cached values.

    Attributes:
        block: how many values share one block; 1 for a plain type.
        block_bytes: bytes of a block, its scales included.
        row_bytes: bytes a head and token on top, for a scale kept beside the values.
        across_heads: the blocks run through a whole tensor; else a block lies inside one head of one token.
        engines: which engines offer it for the KV cache.
        aliases: other names for it.
    """

    name: str
    block: int
    block_bytes: int
    row_bytes: int = 0
    across_heads: bool = False
    engines: tuple[Engine, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def bits_per_value(self) -> float:
        """Bits a value, the block's scales included and `row_bytes` left out."""
        return self.block_bytes * 8 / self.block

    @property
    def model_bytes(self) -> int:
        """Bytes of a value that the model keeps unquantised beside such a cache: 4 with float32, else 2."""
        return 4 if self.name == "float32" else 2

    def blocks(self, values: int) -> int:
        """How many blocks hold `values` values, the last one perhaps in part."""
        return -(-values // self.block)

    def bytes(self, rows: int, width: int) -> int:
        """Bytes of `rows` rows (one a token and head) of `width` values (the head size).

        Raises:
            CalculatorError: the block does not divide the head size; llama.cpp refuses such a cache too.
        """
        if self.across_heads:
            return self.blocks(rows * width) * self.block_bytes
        if width % self.block:
            raise CalculatorError(
                N_("{element} stores blocks of {block} values, which do not divide the head size {width}."),
                N_("Choose a plain type such as float16, or fp8 or int8."),
                element=self.name,
                block=self.block,
                width=width,
            )
        return rows * (width // self.block * self.block_bytes + self.row_bytes)


ELEMENT_TYPES: dict[str, ElementType] = {
    element.name: element
    for element in (
        ElementType("float32", 1, 4, engines=("transformers", "llama.cpp", "vLLM"), aliases=("fp32", "f32", "float")),
        ElementType("float16", 1, 2, engines=("transformers", "llama.cpp", "vLLM"), aliases=("fp16", "f16", "half")),
        ElementType("bfloat16", 1, 2, engines=("transformers", "llama.cpp", "vLLM"), aliases=("bf16",)),
        ElementType(
            "fp8",
            1,
            1,
            engines=("transformers", "vLLM"),
            aliases=("float8", "fp8_e4m3", "fp8_e5m2", "float8_e4m3fn", "float8_e5m2"),
        ),
        ElementType("int8", 1, 1, row_bytes=2),
        ElementType("q8_0", 32, 34, engines=("llama.cpp",)),
        ElementType("q5_1", 32, 24, engines=("llama.cpp",)),
        ElementType("q5_0", 32, 22, engines=("llama.cpp",)),
        ElementType("q4_1", 32, 20, engines=("llama.cpp",)),
        ElementType("q4_0", 32, 18, engines=("llama.cpp",)),
        ElementType("iq4_nl", 32, 18, engines=("llama.cpp",)),
        ElementType("int4_group32", 32, 18),
        ElementType("int8_group64", 64, 68, across_heads=True, engines=("transformers",)),
        ElementType("int4_group64", 64, 36, across_heads=True, engines=("transformers",), aliases=("int4",)),
        ElementType("int2_group64", 64, 20, across_heads=True, engines=("transformers",), aliases=("int2",)),
    )
}

_BY_NAME = {name: element for element in ELEMENT_TYPES.values() for name in (element.name, *element.aliases)}


def element_type(name: object) -> ElementType:
    """The element type of that name or alias; a torch dtype is read by its name.

    Raises:
        CalculatorError: there is no such element type; the message lists those there are.
    """
    found = _BY_NAME.get(str(name).strip().lower().removeprefix("torch."))
    if found is None:
        raise CalculatorError(
            N_("There is no element type {name} for a KV cache."),
            N_("Choose one of: {known}."),
            name=str(name)[:40] or "''",
            known=tuple(ELEMENT_TYPES),
        )
    return found


def key_and_value_types(element: object) -> tuple[ElementType, ElementType]:
    """The types of keys and of values, from one name for both or a pair of names.

    Raises:
        CalculatorError: a name is unknown, or there are not one or two of them.
    """
    if not isinstance(element, (tuple, list)):
        return element_type(element), element_type(element)
    if len(element) != 2:
        raise CalculatorError(
            N_("An element type is one name, or one for keys and one for values; these are {count}."),
            N_('Write "q8_0", or ("q8_0", "q4_0").'),
            count=len(element),
        )
    return element_type(element[0]), element_type(element[1])
