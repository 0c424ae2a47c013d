"""The KV-cache calculator: a layout read from a config; bytes for any lengths, element type and page size.

Logical bytes follow the architecture: every layer counts what its attention needs. What an engine really
allocates is a second figure (`engine_bytes`). All arithmetic is exact, in integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from inference.elements import ElementType, key_and_value_types
from inference.errors import Note
from inference.kv_config import read_config, read_json
from inference.kv_engines import EngineBytes, EngineRequest, engine_bytes
from inference.kv_formula import expression
from inference.kv_geometry import catalogue_layers, plain_layers
from inference.kv_layers import MAX_HEADS, MAX_PAGE, MAX_TOKENS, KVLayer, Sequences, held_bytes, whole

Tokens = int | Iterable[int]
Element = str | tuple[str, str]  # one type, or one for keys and one for values

MAX_DEVICES = 4096


@dataclass(frozen=True, slots=True)
class KVLayout:
    """What a model keeps a position and a sequence, layer by layer.

    Attributes:
        layers: the records; a layer that keeps two things has two.
        assumptions: one sentence for each thing that the config did not say.
        query_heads: attention heads, where known.
        max_context: the model's own limit in tokens, where known.
    """

    layers: tuple[KVLayer, ...]
    assumptions: tuple[Note, ...] = ()
    model_type: str = ""
    query_heads: int | None = None
    max_context: int | None = None

    @classmethod
    def from_config(cls, config: object) -> KVLayout:
        """The layout of a transformers config object, or of the dict of a config.json.

        Raises:
            CalculatorError: it is neither, a figure is missing, or a figure is out of its range.
        """
        reading = read_config(config)
        return cls(reading.layers, reading.assumptions, reading.model_type, reading.query_heads, reading.max_context)

    @classmethod
    def from_file(cls, path: str | Path) -> KVLayout:
        """The layout of a config.json, or of a folder that has one.

        Raises:
            CalculatorError: there is no such file, it is too large or not JSON, or as `from_config`.
        """
        return cls.from_config(read_json(Path(path)))

    @classmethod
    def from_geometry(
        cls,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        *,
        window: int | None = None,
        full_layers: int = 0,
        query_heads: int | None = None,
    ) -> KVLayout:
        """The layout of plain numbers; with a `window`, all but `full_layers` of the layers have it.

        Raises:
            CalculatorError: a number is out of its range.
        """
        layers = plain_layers(num_layers, num_kv_heads, head_dim, window, full_layers)
        if query_heads is not None:
            query_heads = whole(query_heads, "query_heads", high=MAX_HEADS)
        return cls(layers, query_heads=query_heads)

    @classmethod
    def from_catalogue(cls, entry: Mapping[str, object]) -> KVLayout:
        """The layout of an entry of `assets/models.json`.

        Raises:
            CalculatorError: the entry lacks a figure or its rule is not known.
        """
        layers, notes = catalogue_layers(entry)
        query_heads = whole(entry.get("num_attention_heads"), "num_attention_heads", high=MAX_HEADS)
        context = whole(entry.get("max_context"), "max_context", high=MAX_TOKENS)
        return cls(layers, notes, str(entry.get("family", "")), query_heads, context)

    @property
    def attention(self) -> str:
        """MHA, GQA, MQA or MLA, by the first layer with attention; empty where that is not known."""
        kinds = ("attention", "sliding", "latent")
        layer = next((layer for layer in self.layers if layer.kind in kinds), None)
        if layer is None:
            return ""
        if layer.kind == "latent":
            return "MLA"
        if self.query_heads is None:
            return "MQA" if layer.kv_heads == 1 else ""
        if layer.kv_heads == self.query_heads:
            return "MHA"
        return "MQA" if layer.kv_heads == 1 else "GQA"

    def bytes(
        self,
        tokens: Tokens,
        batch: int = 1,
        element: Element = "float16",
        *,
        encoder_tokens: Tokens = 0,
        page_size: int | None = None,
    ) -> int:
        """Bytes of the cache after `tokens` positions.

        Positions stored after a run are prompt + new tokens - 1. Sources: of the plain case,
        2 · L · B · T · H · D · S, Kwon et al. 2023 (arXiv 2309.06180); of MLA, DeepSeek-V2 (arXiv
        2405.04434).

        Args:
            tokens: positions a sequence, or a list with one length a sequence (they add up, without padding).
            batch: how many sequences of that one length.
            element: a name of `inference.elements.ELEMENT_TYPES`, or a pair for keys and values.
            encoder_tokens: positions of an encoder-decoder model's encoder; 0 leaves cross-attention out.
            page_size: positions a block; each sequence and layer is rounded up to whole blocks.

        Raises:
            CalculatorError: an argument is out of its range, or the element type does not fit the head size.
        """
        sequences = Sequences.read(tokens, batch, encoder_tokens)
        return self._bytes(sequences, key_and_value_types(element), _page(page_size))

    def _bytes(self, sequences: Sequences, types: tuple[ElementType, ElementType], page: int) -> int:
        def stored(layer: KVLayer, tokens: int, encoder_tokens: int) -> int:
            return -(-layer.positions(tokens, encoder_tokens) // page) * page

        return held_bytes(self.layers, sequences, types, stored)

    def formula(
        self,
        tokens: Tokens,
        batch: int = 1,
        element: Element = "float16",
        *,
        encoder_tokens: Tokens = 0,
        page_size: int | None = None,
    ) -> str:
        """The expression behind `bytes` with its numbers, and its value.

        The factors are keys and values, layers, sequences, positions, KV heads, head size and bytes a value;
        one term a kind of layer. Arguments and errors are those of `bytes`.
        """
        sequences, types = Sequences.read(tokens, batch, encoder_tokens), key_and_value_types(element)
        total = self._bytes(sequences, types, _page(page_size))
        return f"{expression(self.layers, sequences, types, page_size)} = {total:,} bytes"

    def positions(self, tokens: int, encoder_tokens: int = 0) -> tuple[int, ...]:
        """Positions that each record of `layers` needs after `tokens` positions of one sequence.

        Raises:
            CalculatorError: a length is out of its range.
        """
        tokens = whole(tokens, "tokens", high=MAX_TOKENS)
        encoder_tokens = whole(encoder_tokens, "encoder_tokens", low=0, high=MAX_TOKENS)
        return tuple(layer.positions(tokens, encoder_tokens) for layer in self.layers)

    def bytes_per_token(self, element: Element = "float16", after: int = 0) -> int:
        """Bytes that one more position of one sequence adds when it already has `after` of them.

        Beyond the window only full-attention layers still grow. Blocks that run through whole tensors are
        rounded up for the one position.

        Raises:
            CalculatorError: `after` is out of its range, or the element type is unknown or does not fit.
        """
        after = whole(after, "after", low=0, high=MAX_TOKENS)
        types = key_and_value_types(element)
        growing = (la for la in self.layers if la.positions(after + 1) > la.positions(after))
        return sum(layer.position_bytes(1, types) for layer in growing)

    def bytes_per_encoder_token(self, element: Element = "float16") -> int:
        """Bytes that each encoder position adds to the cross-attention of one sequence.

        Raises:
            CalculatorError: the element type is unknown or does not fit.
        """
        types = key_and_value_types(element)
        return sum(layer.position_bytes(1, types) for layer in self.layers if layer.kind == "cross")

    def state_bytes(self, element: Element = "float16") -> int:
        """Bytes of the constant states of one sequence: they do not grow with its length.

        Raises:
            CalculatorError: the element type is unknown.
        """
        conv_bytes = key_and_value_types(element)[0].model_bytes
        return sum(layer.state_bytes(conv_bytes) for layer in self.layers if layer.kind == "state")

    def shard(self, tensor_parallel: int) -> KVLayout:
        """The layout of one of `tensor_parallel` devices; KV heads fewer than the devices are replicated.

        Raises:
            CalculatorError: the degree is out of its range, or it and the heads do not divide one another.
        """
        degree = whole(tensor_parallel, "tensor_parallel", high=MAX_DEVICES)
        if degree == 1:
            return self
        return replace(self, layers=tuple(layer.shard(degree) for layer in self.layers))

    def engine_bytes(
        self,
        tokens: Tokens,
        batch: int = 1,
        element: Element = "float16",
        *,
        encoder_tokens: Tokens = 0,
        capacity: int | None = None,
        new_tokens: int = 0,
        page_size: int = 16,
        n_ubatch: int = 512,
        tensor_parallel: int = 1,
    ) -> dict[str, EngineBytes]:
        """What each engine really holds, on one of `tensor_parallel` devices (llama.cpp: on all together).

        Args:
            capacity: positions a sequence reserved by engines that allocate ahead; by default the longest.
            new_tokens: how many of the positions came after the prompt, for transformers' quantised cache.
            page_size: positions a vLLM block.
            n_ubatch: llama.cpp's physical batch, which a window's cells include.

        The other arguments, and the errors, are those of `bytes` and `shard`.
        """
        sequences = Sequences.read(tokens, batch, encoder_tokens)
        longest = max(sequences.tokens)
        request = EngineRequest(
            layers=self.shard(tensor_parallel).layers,
            whole_layers=self.layers,
            sequences=sequences,
            types=key_and_value_types(element),
            capacity=whole(longest if capacity is None else capacity, "capacity", low=longest, high=MAX_TOKENS),
            new_tokens=whole(new_tokens, "new_tokens", low=0, high=longest - 1),
            page_size=_page(page_size),
            n_ubatch=whole(n_ubatch, "n_ubatch", high=MAX_TOKENS),
        )
        return engine_bytes(request)


def _page(page_size: object) -> int:
    return 1 if page_size is None else whole(page_size, "page_size", high=MAX_PAGE)
