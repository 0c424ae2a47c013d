"""Where the calculator's layout comes from: the catalogue, the run on show, or the reader's own config."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from inference.catalogue import default
from inference.errors import N_, CalculatorError, Note
from inference.kv_config import parse_json
from inference.kv_layers import KVLayer, group
from inference.kv_memory import KVLayout
from inference.kv_variants import query_heads
from inference.trace import Trace
from ui import session
from ui.calculator.plan import OWN, RUN, Plan

FEED_FORWARD = 4  # hidden sizes, where the feed-forward size is not known


@dataclass(frozen=True, slots=True)
class Source:
    """A model to calculate with.

    Attributes:
        params: parameters, `None` where they are not known.
        width: values a position of a layer's widest part, and whether the model itself says so.
    """

    name: str
    layout: KVLayout
    params: int | None
    width: int
    width_known: bool = False

    @property
    def plain(self) -> KVLayer | None:
        """The one kind of layer, where 2 · L · B · T · H_kv · D_head · S holds as it stands; else `None`."""
        kinds = list(group(self.layout.layers))
        if len(kinds) == 1 and kinds[0].kind == "attention" and kinds[0].key_dim == kinds[0].value_dim:
            return kinds[0]
        return None


@cache
def catalogue() -> dict[str, Mapping[str, Any]]:
    """The models of `assets/models.json` by name."""
    rows = json.loads((session.ASSETS / "models.json").read_text(encoding="utf-8"))["models"]
    return {row["model"]: row for row in rows}


@cache
def gpus() -> dict[str, int]:
    """Bytes of memory by the name of a GPU; makers count in decimal units."""
    rows = json.loads((session.ASSETS / "gpus.json").read_text(encoding="utf-8"))
    return {row["name"]: row["vram_gb"] * 10**9 for row in rows if row["vram_gb"]}


def find(plan: Plan, trace: Trace) -> Source:
    """The plan's model.

    Raises:
        CalculatorError: there is no such model, or the config cannot be used.
    """
    if plan.model == RUN:
        return _of_run(trace)
    if plan.model == OWN:
        return _of_config(plan.config)
    if plan.model in catalogue():
        return _of_entry(catalogue()[plan.model])
    raise CalculatorError(
        N_("There is no preset {name}."),
        N_("Choose one from the list, or paste its config.json."),
        name=plan.model[:60],
    )


def changed(source: Source, plan: Plan) -> Source:
    """The source with the plan's own layers, KV heads and head size, where its layout is plain enough to have them."""
    own = source.plain
    if own is None:
        return source
    layers = plan.layers or len(source.layout.layers)
    heads, width = plan.kv_heads or own.kv_heads, plan.head_dim or own.key_dim
    if (layers, heads, width) == (len(source.layout.layers), own.kv_heads, own.key_dim):
        return source
    asked = max(query_heads(source.layout), heads)
    layout = KVLayout.from_geometry(layers, heads, width, query_heads=asked)
    kept = {"model_type": source.layout.model_type, "max_context": source.layout.max_context}
    return replace(source, layout=replace(layout, **kept))


def _of_entry(entry: Mapping[str, Any]) -> Source:
    layout = KVLayout.from_catalogue(entry)
    head_dim = entry["head_dim"] or 0
    hidden = entry.get("hidden") or entry["num_attention_heads"] * head_dim
    return Source(entry["model"], layout, entry["params"], FEED_FORWARD * hidden)


def _of_run(trace: Trace) -> Source:
    """The run's model: its own config where it is still loaded, else the figures in the record."""
    facts, job = trace.model, session.shown()
    loaded = session.models().loaded(job.model_name if job is not None and job.model_name else default().id)
    if loaded is not None and (loaded.facts.name, loaded.facts.n_params) == (facts.name, facts.n_params):
        config = loaded.forward.model.config
        layout, (width, known) = KVLayout.from_config(config), _width(config.to_dict())
    else:
        layout = KVLayout.from_geometry(facts.n_layers, facts.n_kv_heads, facts.head_dim, query_heads=facts.n_heads)
        text = N_("The run's model is not loaded: full attention in every layer is taken from its record.")
        layout = replace(
            layout, assumptions=(Note(text),), model_type=facts.architecture, max_context=facts.context_length
        )
        width, known = FEED_FORWARD * facts.hidden_size, False
    return Source(facts.name, layout, facts.n_params, width, known)


def _of_config(text: str) -> Source:
    if not text.strip():
        raise CalculatorError(N_("There is no config yet."), N_("Paste a config.json, or upload one."))
    config = parse_json(text)
    layout = KVLayout.from_config(config)
    width, known = _width(config if isinstance(config, Mapping) else {})
    name = str(config.get("model_type") or "") if isinstance(config, Mapping) else ""
    return Source(name[:40] or "config.json", layout, None, width, known)


def _width(config: Mapping[str, Any]) -> tuple[int, bool]:
    """The widest part of a layer, and whether the config says it."""
    inner = next((config[key] for key in ("text_config", "llm_config") if isinstance(config.get(key), Mapping)), config)
    keys = ("intermediate_size", "n_inner", "d_ff", "ffn_dim", "hidden_size", "n_embd", "d_model")
    found = {key: inner[key] for key in keys if isinstance(inner.get(key), int) and 0 < inner[key] < 10**7}
    feed_forward = [found[key] for key in keys[:4] if key in found]
    hidden = next((found[key] for key in keys[4:] if key in found), 0)
    return (max(*feed_forward, hidden), True) if feed_forward else (FEED_FORWARD * hidden, False)


def why_not_plain(layout: KVLayout) -> list[Note]:
    """Why the formula with six factors does not hold for a layout, one sentence a reason."""
    return [Note(sentence, {"window": _window(layout)}) for kind, sentence in REASONS.items() if _has(layout, kind)]


def _has(layout: KVLayout, kind: str) -> bool:
    return any(layer.kind == kind for layer in layout.layers)


def _window(layout: KVLayout) -> tuple[str, ...]:
    return tuple(f"{n:,}" for n in sorted({layer.window for layer in layout.layers if layer.window}))


REASONS = {
    "latent": N_("MLA keeps one latent a layer and position: no factor 2, and no heads."),
    "sliding": N_("Layers with a window keep at most {window} positions, however long the text is."),
    "state": N_("Layers with a constant state take the same at every length."),
    "cross": N_("Cross-attention keeps the encoder's positions, which stay the same while the decoder writes."),
    "shared": N_("Some layers read another layer's cache and keep none."),
    "indexer": N_("The indexer of sparse attention keeps one more key a position."),
}
