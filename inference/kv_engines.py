"""What engines really hold for the same sequences: padding, blocks, windows and layouts of their own.

Sources: transformers 5.24 `cache_utils`; llama.cpp `llama-kv-cache-iswa.cpp`, `llama-context.cpp` (n_ctx
padded to 256) and `llama-hparams.cpp` (states); vLLM V1 `single_type_kv_cache_manager.py` (blocks that leave
the window are freed) and `kv_cache_utils.py` (groups of layers of equal size).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from inference.elements import ElementType
from inference.errors import N_, Note
from inference.kv_layers import RECURRENT_BYTES, KVLayer, Sequences, group, held_bytes

LLAMA_CPP_PADDING = 256
RESIDUAL_LENGTH = 128  # transformers' QuantizedCache keeps up to 127 new positions unquantised

Types = tuple[ElementType, ElementType]


@dataclass(frozen=True, slots=True)
class EngineBytes:
    """What one engine holds: `bytes`, or `None` where it has no such cache; `note` says how it is counted."""

    bytes: int | None
    note: Note


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """What the engines are asked to hold.

    Attributes:
        layers: of one device.
        whole_layers: of all devices together.
        capacity: positions a sequence reserved by engines that allocate ahead.
        new_tokens: how many of the positions came one at a time, after the prompt.
        page_size: positions a vLLM block.
        n_ubatch: llama.cpp's physical batch.
    """

    layers: tuple[KVLayer, ...]
    whole_layers: tuple[KVLayer, ...]
    sequences: Sequences
    types: Types
    capacity: int
    new_tokens: int
    page_size: int
    n_ubatch: int

    def has(self, *kinds: str) -> bool:
        """Whether a layer is of one of these kinds."""
        return any(layer.kind in kinds for layer in self.layers)

    @property
    def windowed(self) -> bool:
        """Whether a layer has a window."""
        return any(layer.window for layer in self.layers)

    def refuses(self, engine: str) -> Note | None:
        """Why the engine has no cache of these element types, if it has none."""
        for element in self.types:
            if engine not in element.engines:
                return Note(N_("{engine} has no {element} cache."), {"engine": engine, "element": element.name})
        return None


def engine_bytes(request: EngineRequest) -> dict[str, EngineBytes]:
    """What each engine holds, by name, in the order in which a page lists them."""
    figures = {
        "transformers dynamic": transformers_dynamic(request),
        "transformers static": transformers_static(request),
    }
    if request.has("latent"):
        figures["transformers, expanded"] = transformers_expanded(request)
    figures["llama.cpp"] = llama_cpp(request)
    figures["vLLM"] = vllm(request)
    if request.windowed:
        figures["vLLM, hybrid manager off"] = vllm(request, hybrid=False)
    return figures


def _as_transformers(layers: Sequence[KVLayer]) -> list[KVLayer]:
    """Falcon's heads are cached expanded; the latent of MLA is cached as it is."""
    return [layer if layer.kind == "latent" else layer.expand() for layer in layers]


def transformers_dynamic(request: EngineRequest) -> EngineBytes:
    """`DynamicCache` (a window of W keeps W - 1 positions after a step), or `QuantizedCache`."""
    refused = request.refuses("transformers")
    if refused:
        return EngineBytes(None, refused)
    if any(element.across_heads or element.name == "fp8" for element in request.types):
        return _transformers_quantised(request)
    held = held_bytes(_as_transformers(request.layers), request.sequences.padded(), request.types, _kept)
    note = N_("DynamicCache: each sequence padded to the longest; a window of W keeps W - 1 after a step.")
    return EngineBytes(held, Note(note))


def _kept(layer: KVLayer, tokens: int, encoder_tokens: int) -> int:
    if layer.window is None or layer.window == 1:  # a window of 1 slices from -0 and keeps everything
        return encoder_tokens if layer.kind == "cross" else tokens
    return min(tokens, layer.window - 1)


def _transformers_quantised(request: EngineRequest) -> EngineBytes:
    key_type, value_type = request.types
    if key_type is not value_type or any(layer.kind not in ("attention", "latent") for layer in request.layers):
        note = N_("QuantizedCache takes one type for keys and values, and full attention in all layers.")
        return EngineBytes(None, Note(note))
    tokens = request.sequences.padded()
    length = tokens.tokens[0]
    quantised, residual = length, 0
    if key_type.across_heads:
        quantised, residual = quantised_split(length, length - request.new_tokens)
    held = 0
    for layer, count in group(_as_transformers(request.layers)).items():
        held += count * tokens.count * layer.position_bytes(quantised, request.types)
        held += count * tokens.count * residual * layer.elements * key_type.model_bytes
    note = N_("QuantizedCache: {quantised} positions quantised and {residual} in 16 bits; more while a step runs.")
    return EngineBytes(held, Note(note, {"quantised": quantised, "residual": residual}))


def quantised_split(tokens: int, prompt: int, residual_length: int = RESIDUAL_LENGTH) -> tuple[int, int]:
    """Of `tokens` positions, how many `QuantizedCache` holds quantised, and how many in full precision.

    The whole prompt is quantised at once; new positions stay in full precision until there are
    `residual_length` of them, and are then quantised together with all others (transformers
    `QuantizedLayer.update`).
    """
    residual = (tokens - prompt) % residual_length
    return tokens - residual, residual


def transformers_static(request: EngineRequest) -> EngineBytes:
    """`StaticCache`: min(window, capacity) positions, allocated at once."""
    refused = request.refuses("transformers")
    if refused or any(element.block > 1 or element.name == "fp8" for element in request.types):
        return EngineBytes(None, refused or Note(N_("StaticCache holds plain element types only.")))
    padded = request.sequences.padded()
    sequences = replace(padded, tokens=(request.capacity,))
    held = held_bytes(_as_transformers(request.layers), sequences, request.types, KVLayer.positions)
    note = N_("StaticCache: {capacity} positions a sequence (a window of W: at most W), allocated at once.")
    return EngineBytes(held, Note(note, {"capacity": request.capacity}))


def transformers_expanded(request: EngineRequest) -> EngineBytes:
    """Keys and values of all heads: what older transformers and the models' own code cache for MLA."""
    refused = request.refuses("transformers")
    if refused:
        return EngineBytes(None, refused)
    layers = [layer.expand() for layer in request.layers]
    held = held_bytes(layers, request.sequences.padded(), request.types, KVLayer.positions)
    note = N_("Older transformers and the model's own code: keys and values of all heads, expanded before caching.")
    return EngineBytes(held, Note(note))


def llama_cpp(request: EngineRequest) -> EngineBytes:
    """Cells for the whole context, allocated at once; states in float32 with one convolution column less.

    Devices get whole layers, so the figure is for all of them together.
    """
    refused = request.refuses("llama.cpp")
    if refused:
        return EngineBytes(None, refused)
    n_ctx = _pad(request.capacity)

    def cells(layer: KVLayer, tokens: int, encoder_tokens: int) -> int:
        if layer.kind == "cross":
            return 0
        return n_ctx if layer.window is None else _pad(min(n_ctx, layer.window + request.n_ubatch))

    held = 0
    for layer, count in group(request.whole_layers).items():
        if layer.kind == "state":
            columns = max(layer.conv_kernel - 1, 0)
            state = replace(layer, conv_kernel=columns).state_bytes(conv_bytes=RECURRENT_BYTES)
            held += count * request.sequences.count * state
        else:
            held += count * held_bytes([layer], request.sequences.padded(), request.types, cells)
    note = N_("{cells} cells a sequence, allocated at once; a window of W: W + {n_ubatch}, padded to {padding}.")
    if request.has("cross"):
        note = N_("{cells} cells a sequence; cross keys and values are computed anew in each pass, not kept.")
    elif request.layers != request.whole_layers:
        note = N_("All devices together, which share the layers out: {cells} cells a sequence, allocated at once.")
    values = {"cells": n_ctx, "n_ubatch": request.n_ubatch, "padding": LLAMA_CPP_PADDING}
    return EngineBytes(held, Note(note, values))


def _pad(cells: int) -> int:
    return -(-cells // LLAMA_CPP_PADDING) * LLAMA_CPP_PADDING


def vllm(request: EngineRequest, hybrid: bool = True) -> EngineBytes:
    """Blocks in use (vLLM reserves its whole pool at the start).

    With the hybrid manager a windowed layer keeps the blocks that still hold one of the last W - 1 positions,
    and the layers are put into groups of equal size, the last one padded.
    """
    refused = request.refuses("vLLM")
    if refused or request.has("cross"):
        return EngineBytes(None, refused or Note(N_("vLLM is not counted for encoder-decoder models.")))
    size = request.page_size

    def blocks(layer: KVLayer, tokens: int, encoder_tokens: int) -> int:
        left = max(0, tokens - layer.window + 1) // size if layer.window and hybrid else 0
        return (-(-tokens // size) - left) * size

    layers = _padded_groups(request.layers) if hybrid else request.layers
    held = held_bytes(layers, request.sequences, request.types, blocks)
    note = N_("Blocks of {size} in use; windowed layers free blocks that left the window.")
    if not request.windowed:
        note = N_("Blocks of {size} in use.")
    elif not hybrid:
        note = N_("Blocks of {size} in use; windowed layers keep all positions.")
    if request.has("state"):
        note = N_("Blocks of {size} in use and the states; vLLM pads blocks to the size of a state: a lower bound.")
    return EngineBytes(held, Note(note, {"size": size}))


def _padded_groups(layers: Sequence[KVLayer]) -> Sequence[KVLayer]:
    """The layers, with the padding that vLLM adds where full and windowed layers of one size are mixed."""
    kinds = group([layer for layer in layers if layer.elements])
    if len(kinds) < 2 or len({layer.elements for layer in kinds}) > 1 or any(la.kind == "state" for la in layers):
        return layers
    smallest, largest = min(kinds.values()), max(kinds.values())
    size = largest if largest < smallest * 1.5 else smallest
    return [layer for layer, count in kinds.items() for _ in range(-(-count // size) * size)]
