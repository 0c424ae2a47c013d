"""From a model's config to the records of its layers: which key holds what, family by family.

The rules follow the config classes of transformers 5.24 (`get_layer_types_and_kwargs` decides which cache a
layer gets) and the older key names that config.json files still use. What had to be assumed is said in notes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from inference.errors import N_, CalculatorError, Note
from inference.kv_families import (
    CONTEXT,
    ENCODERS,
    FAMILY_DEFAULTS,
    HEAD_SIZE,
    HEADS,
    HIDDEN,
    KV_HEADS,
    LAYERS,
    MEASURED,
    NESTED,
)
from inference.kv_layer_types import LayerType, layer_types, shared_layers
from inference.kv_layers import MAX_HEADS, MAX_LAYERS, MAX_STATE, MAX_TOKENS, MAX_WIDTH, Kind, KVLayer, whole
from inference.kv_states import state_record

Config = Mapping[str, object]

MAX_DIGITS = 5  # of a layer's number: `per_layer_config` pads its keys with zeros
MAX_FILE_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Reading:
    """What a config says about the cache, and what had to be assumed."""

    layers: tuple[KVLayer, ...]
    assumptions: tuple[Note, ...]
    model_type: str
    query_heads: int | None
    max_context: int | None


def read_config(config: object) -> Reading:
    """The layers' records of a transformers config object, or of the dict of a config.json.

    Raises:
        CalculatorError: it is neither, a figure is missing, or a figure is out of its range.
    """
    outer = _as_mapping(config)
    inner, encoder_decoder = _language_model(outer)
    notes: list[Note] = []
    inner = _with_defaults(inner, notes)
    model_type = str(inner.get("model_type") or "")
    if model_type in ENCODERS and not inner.get("is_decoder"):
        raise CalculatorError(
            N_("A {model_type} model reads a text as a whole and keeps no KV cache."),
            N_("Choose a model that generates text."),
            model_type=model_type,
        )
    if model_type not in MEASURED:
        text = N_("The family {model_type} was not checked against a real cache: usual key names are assumed.")
        notes.append(Note(text, {"model_type": model_type or '""'}))
    types = layer_types(inner, _layer_count(inner), notes)
    layers = _records(inner, types, encoder_decoder, notes)
    query_heads = _figure(inner, HEADS, MAX_HEADS) if any(layer.elements for layer in layers) else None
    return Reading(tuple(layers), tuple(notes), model_type, query_heads, _optional(inner, CONTEXT, MAX_TOKENS))


def read_json(path: Path) -> object:
    """The content of a config.json, or of the one in a folder.

    Raises:
        CalculatorError: there is no such file, it is too large, or it is not JSON.
    """
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        what = N_("There is no config file at {path}.")
        raise CalculatorError(what, N_("Give a config.json, or a folder that has one."), path=file)
    if file.stat().st_size > MAX_FILE_BYTES:
        what = N_("{path} is larger than {limit} bytes, too large for a config.")
        raise CalculatorError(what, N_("Give the model's config.json."), path=file, limit=MAX_FILE_BYTES)
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        what = N_("{path} is not JSON: {reason}.")
        raise CalculatorError(what, N_("Give the model's config.json."), path=file, reason=error) from error


def parse_json(text: str) -> object:
    """The content of a config.json that was pasted or uploaded.

    Raises:
        CalculatorError: it is too large, or it is not JSON.
    """
    remedy = N_("Paste the model's whole config.json.")
    if len(text) > MAX_FILE_BYTES:
        raise CalculatorError(N_("The text is longer than {limit:,} characters."), remedy, limit=MAX_FILE_BYTES)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CalculatorError(N_("The text is not JSON: {reason}."), remedy, reason=error) from error


def _as_mapping(config: object) -> Config:
    to_dict: Callable[[], object] | None = getattr(config, "to_dict", None)
    mapping = to_dict() if callable(to_dict) and not isinstance(config, type) else config
    if not isinstance(mapping, Mapping):
        raise CalculatorError(
            N_("A config is a transformers config or the dict of a config.json, not {kind}."),
            N_("Read the file with json.load first."),
            kind=type(config).__name__,
        )
    return mapping


def _language_model(config: Config) -> tuple[Config, bool]:
    """The config of the part that generates text, and whether it attends to an encoder."""
    encoder_decoder = bool(config.get("is_encoder_decoder"))
    for key in NESTED:
        inner = config.get(key)
        if isinstance(inner, Mapping):
            deeper, own = _language_model(inner)
            return deeper, own or encoder_decoder
    return config, encoder_decoder


def _layer_count(config: Config) -> int:
    listed = config.get("layers_block_type")  # Nemotron-H: the list alone says how many
    if isinstance(listed, list) and _optional(config, LAYERS, MAX_LAYERS) is None:
        return len(listed)
    # LongCat has two attention blocks a layer, each with its own cache.
    return _figure(config, LAYERS, MAX_LAYERS) * (2 if config.get("model_type") == "longcat_flash" else 1)


def _with_defaults(config: Config, notes: list[Note]) -> Config:
    defaults = FAMILY_DEFAULTS.get(str(config.get("model_type")), {})
    missing = {key: value for key, value in defaults.items() if key not in config}
    if config.get("layer_types") or config.get("_sliding_window_pattern"):
        missing.pop("sliding_window_pattern", None)
        missing.pop("full_attention_interval", None)
    if config.get("per_layer_config"):
        missing.pop("global_head_dim", None)
    if missing:
        filled = tuple(f"{key} = {value}" for key, value in missing.items())
        text = N_("The config leaves out what {model_type} has by default in transformers; taken: {filled}.")
        notes.append(Note(text, {"model_type": config.get("model_type"), "filled": filled}))
    return {**missing, **config}


def _records(config: Config, types: list[LayerType], encoder_decoder: bool, notes: list[Note]) -> list[KVLayer]:
    shared = shared_layers(config, len(types))
    records: list[KVLayer] = []
    for index, layer_type in enumerate(types):
        own = _layer_config(config, index, layer_type)
        if layer_type.state:
            records.append(state_record(own, index, layer_type.name))
        if layer_type.attention:
            record = _attention(own, index, layer_type)
            records.append(KVLayer(index, "shared") if index in shared else record)
            if layer_type.name == "indexed":
                records.append(_indexer(own, index))
            if encoder_decoder:
                records.append(KVLayer(index, "cross", record.kv_heads, record.key_dim, record.value_dim))
    _note_states(records, notes)
    if encoder_decoder:
        notes.append(Note(N_("Cross-attention is counted for encoder_tokens positions; 0 leaves it out.")))
    return records


def _note_states(records: list[KVLayer], notes: list[Note]) -> None:
    states = [layer for layer in records if layer.kind == "state"]
    unknown = sum(not (layer.conv_channels or layer.recurrent_elements) for layer in states)
    if unknown:
        text = N_("The size of the constant state of {count} layers is not known and not counted.")
        notes.append(Note(text, {"count": unknown}))
    if len(states) > unknown:
        text = N_("Constant states: convolution in the model's type, recurrent part in float32, never paged.")
        notes.append(Note(text))


def _layer_config(config: Config, index: int, layer_type: LayerType) -> Config:
    """The config as layer `index` sees it."""
    overrides = config.get("per_layer_config")
    if isinstance(overrides, Mapping):
        by_number = {str(key).zfill(MAX_DIGITS): value for key, value in overrides.items()}
        own = by_number.get(str(index).zfill(MAX_DIGITS))
        return {**config, **own} if isinstance(own, Mapping) else config
    if layer_type.name == "full" and config.get("global_head_dim"):  # Gemma 4, as on the Hub
        changed = {"head_dim": config["global_head_dim"]}
        if config.get("num_global_key_value_heads") and config.get("attention_k_eq_v", True):
            changed["num_key_value_heads"] = config["num_global_key_value_heads"]
        return {**config, **changed}
    return config


def _attention(config: Config, index: int, layer_type: LayerType) -> KVLayer:
    """Self-attention of one layer: MLA, or heads of keys and values, all positions or a window."""
    window = _window(config, layer_type)
    heads = _figure(config, HEADS, MAX_HEADS)
    if config.get("kv_lora_rank"):
        latent, rotary = (_figure(config, (key,), MAX_WIDTH) for key in ("kv_lora_rank", "qk_rope_head_dim"))
        key_dim = _figure(config, ("qk_nope_head_dim",), MAX_WIDTH) + rotary
        expanded = (heads, key_dim, _figure(config, ("v_head_dim",), MAX_WIDTH))
        return KVLayer(index, "latent", 1, latent, rotary, window, expanded)
    head_dim = _head_dim(config, heads)
    value_dim = _optional(config, ("v_head_dim",), MAX_WIDTH) or head_dim
    kv_heads = _kv_heads(config, heads)
    kind: Kind = "attention" if window is None else "sliding"
    # Falcon's new architecture broadcasts keys and values to all heads before transformers caches them.
    broadcast = bool(config.get("new_decoder_architecture")) and kv_heads != heads
    return KVLayer(
        index,
        kind,
        kv_heads,
        head_dim,
        value_dim,
        window,
        (heads, head_dim, value_dim) if broadcast else None,
    )


def _indexer(config: Config, index: int) -> KVLayer:
    return KVLayer(index, "indexer", 1, _figure(config, ("index_head_dim",), MAX_WIDTH), 0)


def _window(config: Config, layer_type: LayerType) -> int | None:
    if layer_type.window_key is None:
        return None
    return _figure(config, (layer_type.window_key,), MAX_TOKENS)


def _head_dim(config: Config, heads: int) -> int:
    explicit = _optional(config, HEAD_SIZE, MAX_WIDTH)
    if explicit is not None:
        return explicit
    hidden = _figure(config, HIDDEN, MAX_STATE)
    if hidden < heads:
        raise CalculatorError(
            N_("The hidden size {hidden} is smaller than the {heads} attention heads."),
            N_("Correct the config, or give head_dim."),
            hidden=hidden,
            heads=heads,
        )
    return hidden // heads


def _kv_heads(config: Config, heads: int) -> int:
    """KV heads: one by flag (Falcon, GPTBigCode), the config's own number, or as many as query heads."""
    if config.get("multi_query") and not config.get("new_decoder_architecture"):
        return 1
    nested = config.get("attn_config")  # MPT and DBRX
    if isinstance(nested, Mapping) and nested.get("kv_n_heads"):
        return _figure(nested, ("kv_n_heads",), MAX_HEADS)
    return _optional(config, KV_HEADS, MAX_HEADS) or heads


def _optional(config: Config, keys: tuple[str, ...], high: int) -> int | None:
    key = next((key for key in keys if config.get(key) is not None), None)
    return None if key is None else whole(config[key], key, high=high)


def _figure(config: Config, keys: tuple[str, ...], high: int) -> int:
    value = _optional(config, keys, high)
    if value is None:
        raise CalculatorError(
            N_("The config has none of these: {keys}."),
            N_("Add the figure, or give the layers, KV heads and head size by hand."),
            keys=keys,
        )
    return value
