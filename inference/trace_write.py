"""A run as a JSON header and a table of tensors: the layout of the run file."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from inference.attention import LayerSpec
from inference.sampling import SamplingDecision
from inference.trace import Trace

VERSION = 2  # since 2: the logit lens

Tensors = dict[str, NDArray[Any]]

# the columns of the step table that lie as one tensor each, with their element types
COLUMN = {"int": np.int64, "float": np.float64, "bool": np.bool_}
DECISION = {f.name: COLUMN[str(f.type)] for f in fields(SamplingDecision) if f.name not in ("removed", "draw_u")}
TIMES = ("forward_s", "sampling_s", "recording_s", "at_s")
KV = ("positions", "nbytes", "added", "dropped")
LENS = {"ids": np.int32, "probs": np.float32, "chosen_probs": np.float32, "chosen_ranks": np.int32}


def parts(trace: Trace) -> tuple[dict[str, Any], Tensors]:
    """The header and the tensors of a run file."""
    tensors: Tensors = {"prompt_ids": np.array([t.id for t in trace.prompt_tokens], dtype=np.int64)}
    _put_vocabulary(trace, tensors)
    header = _header(trace)
    if trace.steps:
        _put_steps(trace, tensors)
        header["spans_of"] = _put_attention(trace, tensors)
        _put_router(trace, tensors)
    return header, {name: np.ascontiguousarray(array) for name, array in tensors.items()}


def _header(trace: Trace) -> dict[str, Any]:
    return {
        "version": VERSION,
        "model": asdict(trace.model),
        "request": asdict(trace.request),
        "sampling": asdict(trace.sampling),
        "origin": dict(trace.origin),
        "eos_ids": list(trace.eos_ids),
        "finish": asdict(trace.finish),
        "layers": [_layer_json(spec) for spec in trace.layers],
        "tokenise_s": trace.tokenise_s,
        "element": trace.element,
        "left_out": [{"template": n.template, "values": dict(n.values)} for n in trace.left_out],
        "versions": dict(trace.versions),
        "taken_over": trace.taken_over,
        "texts": [step.text for step in trace.steps],
        "removed": [step.decision.removed for step in trace.steps],
        "passes_s": [step.timing.passes_s for step in trace.steps],
    }


def _layer_json(spec: LayerSpec | None) -> dict[str, Any] | None:
    if spec is None:
        return None
    sinks = None if spec.sinks is None else [float(s) for s in spec.sinks]
    return {
        "n_heads": spec.n_heads,
        "scale": spec.scale,
        "softcap": spec.softcap,
        "sinks": sinks,
        "window": spec.window,
    }


def _put_vocabulary(trace: Trace, tensors: Tensors) -> None:
    vocabulary = trace.vocabulary
    if vocabulary.ids is None and not any(s.logits is not None and s.logits.whole for s in trace.steps):
        ids = [t.id for t in trace.tokens]
        ids += [int(i) for s in trace.steps if s.logits is not None and s.logits.ids is not None for i in s.logits.ids]
        ids += [int(i) for s in trace.steps if s.lens is not None for i in s.lens.ids.ravel()]
        vocabulary = vocabulary.only(ids)
    tensors["vocabulary/data"] = vocabulary.data
    tensors["vocabulary/ends"] = vocabulary.ends
    tensors["vocabulary/special"] = np.array(sorted(vocabulary.special), dtype=np.int64)
    if vocabulary.ids is not None:
        tensors["vocabulary/ids"] = vocabulary.ids


def _put_steps(trace: Trace, tensors: Tensors) -> None:
    steps = trace.steps
    for name, dtype in DECISION.items():
        tensors[f"steps/{name}"] = np.array([getattr(s.decision, name) for s in steps], dtype=dtype)
    draws = [np.nan if s.decision.draw_u is None else s.decision.draw_u for s in steps]
    tensors["steps/draw_u"] = np.array(draws, dtype=np.float64)
    for name in TIMES:
        tensors[f"steps/{name}"] = np.array([getattr(s.timing, name) for s in steps], dtype=np.float64)
    for name in KV:
        tensors[f"kv/{name}"] = np.stack([getattr(s.kv, name) for s in steps])
    if steps[0].logits is not None:
        logits = [s.logits for s in steps if s.logits is not None]
        tensors["logits/values"] = np.stack([one.values for one in logits])
        tensors["logits/log_z"] = np.array([one.log_z for one in logits], dtype=np.float64)
        if logits[0].ids is not None:
            tensors["logits/ids"] = np.stack([one.ids for one in logits if one.ids is not None])
    if steps[0].hidden is not None:
        tensors["hidden"] = np.stack([s.hidden for s in steps if s.hidden is not None])
    _put_lens(trace, tensors)


def _put_lens(trace: Trace, tensors: Tensors) -> None:
    """The logit lens of the steps that have it, and which they are."""
    records = {step.index: step.lens for step in trace.steps if step.lens is not None}
    if records:
        tensors["lens/steps"] = np.array(list(records), dtype=np.int64)
        for name in LENS:
            tensors[f"lens/{name}"] = np.stack([getattr(record, name) for record in records.values()])


def _put_attention(trace: Trace, tensors: Tensors) -> list[int]:
    """Queries, keys and spans, all steps joined by layer; layers with equal spans share them. Returns which."""
    if trace.steps[0].weights is not None:
        for layer in range(len(trace.steps[0].weights)):
            parts = [s.weights[layer].ravel() for s in trace.steps if s.weights is not None]
            tensors[f"weights/{layer}"] = np.concatenate(parts)
    records = [s.attention for s in trace.steps if s.attention is not None]
    if not records:
        return []
    shared: dict[bytes, int] = {}
    spans_of = []
    for layer in range(len(records[0].queries)):
        if not records[0].queries[layer].size:
            spans_of.append(-1)
            continue
        tensors[f"queries/{layer}"] = np.concatenate([r.queries[layer] for r in records], axis=1)
        tensors[f"keys/{layer}"] = np.concatenate([r.keys[layer] for r in records], axis=1)
        spans = np.concatenate([r.visible[layer] for r in records])
        index = shared.setdefault(spans.tobytes(), len(shared))
        tensors[f"spans/{index}"] = spans
        spans_of.append(index)
    return spans_of


def _put_router(trace: Trace, tensors: Tensors) -> None:
    for index, first in enumerate(trace.steps[0].router):
        for name in ("logits", "experts", "weights"):
            parts = [getattr(step.router[index], name) for step in trace.steps]
            tensors[f"router/{first.layer}/{name}"] = np.concatenate(parts)
