"""One small pass when a model is loaded: can its attention be computed from queries and keys, and what will it cost?

The weights computed from what the recording function was given are compared with the model's own eager weights. Only
if they agree is the function used; otherwise the model runs with eager attention and its weights are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from inference.attention import LayerSpec, attention_weights, widen
from inference.budget import Footprint
from inference.errors import N_
from inference.forward import Forward
from inference.recorder import LayerAttention, Recorder, install
from inference.stepping import to_numpy

N_PROBED = 6  # positions; enough for a mask, a scale, a soft-cap, a bias or sinks to show
# largest difference between weights computed in float32 and eager ones rounded to the model's dtype
TOLERANCE = {"float32": 1e-4, "float16": 5e-3, "bfloat16": 3e-2}


@dataclass(frozen=True, slots=True)
class Findings:
    """How a model is run, and what a record of it takes."""

    forward: Forward
    footprint: Footprint
    layers: tuple[LayerSpec | None, ...]
    attention: str
    note: str


def probe(model: PreTrainedModel, element: str) -> Findings:
    """Install the recording function on a model, or leave it in eager mode with the reason."""
    default = model.config._attn_implementation
    ids = np.arange(N_PROBED, dtype=np.int64) % model.config.get_text_config(decoder=True).vocab_size
    weights = _eager_weights(model, ids)
    forward, recorder = Forward(model, eager_weights=False), Recorder(specs=True)
    if not install(model, default):
        reason = N_("it does not take an attention function from outside")
    else:
        forward(ids, forward.new_cache(), recorder, weights=False)
        reason = recorder.inexact or _disagreement(recorder, weights, TOLERANCE[element])
    if not reason:
        specs = {layer: call.spec for layer, call in recorder.layer_calls.items()}
        layers = tuple(specs.get(i) for i in range(n_layers(model)))
        return Findings(forward, _footprint(model, recorder, 0), layers, "recorded", "")
    return _eager(model, ids, reason)


def n_layers(model: PreTrainedModel) -> int:
    """L of the language model."""
    return int(model.config.get_text_config(decoder=True).num_hidden_layers)


def _eager_weights(model: PreTrainedModel, ids: NDArray[np.int64]) -> tuple[torch.Tensor, ...]:
    if model._can_set_attn_implementation():
        model.set_attn_implementation("eager")
    eager = Forward(model, eager_weights=True)
    return eager(ids, eager.new_cache(), Recorder(attention=False), weights=True).weights or ()


def _eager(model: PreTrainedModel, ids: NDArray[np.int64], reason: str) -> Findings:
    weights = _eager_weights(model, ids)
    forward, recorder = Forward(model, eager_weights=True), Recorder(attention=False)
    forward(ids, forward.new_cache(), recorder, weights=False)
    footprint = _footprint(model, recorder, sum(w.shape[0] for w in weights))
    return Findings(forward, footprint, (None,) * n_layers(model), "eager" if weights else "none", reason)


def _disagreement(recorder: Recorder, weights: tuple[torch.Tensor, ...], tolerance: float) -> str:
    """Why the computed weights cannot be trusted; empty if they equal the eager ones, layer by layer."""
    if not recorder.layer_calls:
        return N_("it never called the attention function")
    if len(recorder.layer_calls) != len(weights):
        return N_("some of its layers did not call the attention function")
    for call, eager in zip(_in_order(recorder), weights, strict=True):
        queries, keys = (widen(a, element_of(call.queries)) for a in to_numpy([call.queries, call.keys]))
        spans = np.arange(keys.shape[1])
        visible = (spans >= call.visible[:, :1]) & (spans < call.visible[:, 1:])
        assert call.spec is not None
        computed = attention_weights(queries, keys, call.spec, visible, np.arange(len(queries)))
        if np.abs(computed - eager.float().cpu().numpy()).max() > tolerance:
            return N_("weights computed from its queries and keys differ from its own")
    return ""


def _in_order(recorder: Recorder) -> list[LayerAttention]:
    return [recorder.layer_calls[layer] for layer in sorted(recorder.layer_calls)]


def _footprint(model: PreTrainedModel, recorder: Recorder, eager_heads: int) -> Footprint:
    per_position = {
        layer: (call.queries.nbytes + call.keys.nbytes) // N_PROBED for layer, call in recorder.layer_calls.items()
    }
    routers = recorder.router_choices
    return Footprint(
        attention=per_position,
        eager_heads=eager_heads,
        hidden=sum(h.nbytes for h in recorder.hidden_states),
        router=sum(4 * c.logits.shape[-1] + 12 * c.experts.shape[-1] for c in routers),
        vocab_size=model.config.get_text_config(decoder=True).vocab_size,
    )


def element_of(tensor: torch.Tensor) -> str:
    """`"float32"`, `"float16"` or `"bfloat16"`."""
    return str(tensor.dtype).removeprefix("torch.")
