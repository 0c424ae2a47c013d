"""Which kind of memory each layer has: full attention, a window, a constant state, both, or none.

A config says it in one of about ten ways; `layer_types` reads them in the order in which transformers does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inference.errors import N_, CalculatorError, Note
from inference.kv_layers import MAX_LAYERS, whole

Config = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class LayerType:
    """What a layer keeps: keys and values, of a window if `window_key` names one, and a constant state."""

    name: str
    attention: bool = True
    state: bool = False
    window_key: str | None = None


FULL = LayerType("full")
SLIDING = LayerType("sliding", window_key="sliding_window")
CHUNKED = LayerType("chunked", window_key="attention_chunk_size")
LINEAR = LayerType("linear", attention=False, state=True)
CONV = LayerType("conv", attention=False, state=True)
NOTHING = LayerType("nothing", attention=False)

# Names in `layer_types`, today's and older ones, and the letters of `hybrid_override_pattern` (Nemotron-H).
BY_NAME = {
    "full_attention": FULL,
    "attention": FULL,
    "sliding_attention": SLIDING,
    "chunked_attention": CHUNKED,
    "linear_attention": LINEAR,
    "mamba": LINEAR,
    "conv": CONV,
    "hybrid": LayerType("hybrid", state=True),
    "hybrid_sliding": LayerType("hybrid_sliding", state=True, window_key="sliding_window"),
    "indexed_attention": LayerType("indexed"),
    "deepseek_sparse_attention": LayerType("indexed"),
    "moe": NOTHING,
    "mlp": NOTHING,
    "M": LINEAR,
    "*": FULL,
    "-": NOTHING,
    "E": NOTHING,
}
ALL_STATE = frozenset({"mamba", "mamba2", "falcon_mamba"})


def layer_types(config: Config, n_layers: int, notes: list[Note]) -> list[LayerType]:
    """One type a layer.

    Raises:
        CalculatorError: the config's own list has not one entry a layer, or a period is not a whole number.
    """
    named = config.get("layer_types") or config.get("layers_block_type") or config.get("hybrid_override_pattern")
    if isinstance(named, Sequence):
        return _named(named, n_layers, notes)
    if config.get("model_type") in ALL_STATE:
        return [LINEAR] * n_layers
    if config.get("model_type") == "falcon_h1":
        return [BY_NAME["hybrid"]] * n_layers
    full = _full_layers(config, n_layers)
    if full is not None:
        other = CONV if config.get("conv_L_cache") else LINEAR
        return [FULL if i in full else other for i in range(n_layers)]
    return _windowed(config, n_layers, notes)


def _named(named: Sequence[object], n_layers: int, notes: list[Note]) -> list[LayerType]:
    if len(named) != n_layers:
        raise CalculatorError(
            N_("The config lists {listed} layer types for {layers} layers."),
            N_("Give one layer type a layer."),
            listed=len(named),
            layers=n_layers,
        )
    unknown = sorted({str(name)[:40] for name in named if str(name) not in BY_NAME})
    if unknown:
        text = N_("Layers of the type {names} are not known and are counted as full attention: an upper bound.")
        notes.append(Note(text, {"names": tuple(unknown)}))
    return [BY_NAME.get(str(name), FULL) for name in named]


def _full_layers(config: Config, n_layers: int) -> set[int] | None:
    """The layers with attention where all others keep a constant state; `None` for another design."""
    if "attn_layer_indices" in config or config.get("full_attn_idxs"):  # Bamba, LFM2
        indices = config.get("attn_layer_indices") or config.get("full_attn_idxs") or ()
        listed = indices if isinstance(indices, Sequence) else (indices,)
        return {whole(i, "attn_layer_indices", low=0, high=MAX_LAYERS) for i in listed}
    if config.get("full_attention_interval"):  # Qwen3-Next: the last of each group
        interval = whole(config["full_attention_interval"], "full_attention_interval", high=MAX_LAYERS)
        return set(range(interval - 1, n_layers, interval))
    if config.get("attn_layer_period"):  # Jamba
        period = whole(config["attn_layer_period"], "attn_layer_period", high=MAX_LAYERS)
        offset = whole(config.get("attn_layer_offset", 0), "attn_layer_offset", low=0, high=MAX_LAYERS)
        return set(range(offset, n_layers, period))
    return None


def _windowed(config: Config, n_layers: int, notes: list[Note]) -> list[LayerType]:
    """Attention in all layers: which of them have a window."""
    if config.get("attention_layers"):
        notes.append(Note(N_("Local attention layers (GPT-Neo) are counted in full, as transformers caches them.")))
    windowed = SLIDING if config.get("sliding_window") is not None else None
    if config.get("use_sliding_window") is False:  # Qwen: the number is there, and is not used
        windowed = None
    if windowed is None and config.get("attention_chunk_size") is not None:
        windowed = CHUNKED
    if windowed is None:
        return [FULL] * n_layers
    pattern = config.get("sliding_window_pattern") or config.get("_sliding_window_pattern")
    if isinstance(pattern, str):  # EXAONE: "LLLG"
        return [FULL if pattern[i % len(pattern)] == "G" else windowed for i in range(n_layers)]
    if pattern:  # Gemma, Cohere: the last of each group is full
        period = whole(pattern, "sliding_window_pattern", high=MAX_LAYERS)
        return [windowed if (i + 1) % period else FULL for i in range(n_layers)]
    if config.get("use_sliding_window") and config.get("max_window_layers") is not None:  # Qwen: the first are full
        first = whole(config["max_window_layers"], "max_window_layers", low=0, high=MAX_LAYERS)
        return [FULL if i < first else windowed for i in range(n_layers)]
    notes.append(Note(N_("All layers are taken as sliding: the config gives a window and no list of layer types.")))
    return [windowed] * n_layers


def shared_layers(config: Config, n_layers: int) -> frozenset[int]:
    """The layers that read another layer's cache (Gemma 3n and 4: the last `num_kv_shared_layers`)."""
    shared = whole(config.get("num_kv_shared_layers") or 0, "num_kv_shared_layers", low=0, high=n_layers)
    return frozenset(range(n_layers - shared, n_layers))
