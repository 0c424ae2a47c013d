"""A few small passes when a model is loaded: how it can be run and recorded, and what a record of it takes.

Weights are computed from the queries and keys that the recording function was given, and compared with those that the
model's own eager attention gave in the same call. Only if they agree is the function used. Otherwise the model runs
with eager attention and its weights are kept; and where even those cannot be shown, it runs as it came, without.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from inference.attention import Floats, LayerSpec, attention_scores, attention_weights, widen
from inference.budget import Footprint
from inference.errors import N_, ModelError
from inference.forward import Cache, Forward, PassResult, cache_sizes
from inference.lens import lens_bytes
from inference.readback import Readback
from inference.recorder import EAGER, SDPA, LayerAttention, Recorder, install_hooks, set_attention, why_not_installable
from inference.sources import LOAD_ANOTHER
from inference.stepping import to_numpy

if TYPE_CHECKING:
    from transformers import PreTrainedModel

N_PROBED = 16  # positions; enough for a mask, a scale, a soft-cap, sinks or a bias that grows with distance to show
# relative error of a score: half a unit in the last place each for product and scale; in float32 the sum's own error
ROUNDING = {"float32": 1e-6, "float16": 2.0**-11, "bfloat16": 2.0**-8}
# largest distance between logits under two attention kernels, which round differently
LOGIT_TOLERANCE = {"float32": 1e-3, "float16": 1e-2, "bfloat16": 3e-2}


@dataclass(frozen=True, slots=True)
class Findings:
    """How a model is run, and what a record of it takes."""

    forward: Forward
    footprint: Footprint
    layers: tuple[LayerSpec | None, ...]
    attention: Literal["recorded", "eager", "none"]
    note: str


def probe(model: PreTrainedModel, element: str) -> Findings:
    """Install the recording function on a model, or leave it in eager mode or as it came with the reason.

    Raises:
        ModelError: the model does not keep what it has read in the cache that a run gives it.
    """
    default = model.config._attn_implementation
    ids = np.arange(N_PROBED, dtype=np.int64) % model.config.get_text_config(decoder=True).vocab_size
    forward = Forward(model, eager_weights=False)
    if not getattr(type(model), "_supports_default_dynamic_cache", bool)():
        raise _forgetful(model)
    if model._is_stateful:
        if _mixes_runs(forward, ids):
            raise _forgetful(model)
        forward.takes_chunks = _takes_chunks(forward, ids)
    install_hooks(model)
    recorder, reason = _try_recording(model, ids, default, ROUNDING[element])
    if not reason:
        specs = {layer: call.spec for layer, call in recorder.layer_calls.items()}
        layers = tuple(specs.get(i) for i in range(n_layers(model)))
        return Findings(forward, _footprint(model, recorder, 0), layers, "recorded", "")
    set_attention(model, default)
    expected = _feed(forward, ids, forward.new_cache())
    set_attention(model, "eager")
    recorder = Recorder(attention=False)
    eager = _pass(model, ids, recorder, weights=True)
    useless = _why_useless(eager, expected, n_layers(model), LOGIT_TOLERANCE[element])
    if useless:
        set_attention(model, default)
    heads = 0 if useless else sum(w.shape[0] for w in eager.weights or ())
    forward.eager_weights = not useless
    return Findings(
        forward=forward,
        footprint=_footprint(model, recorder, heads),
        layers=(None,) * n_layers(model),
        attention="none" if useless else "eager",
        note=useless or reason,
    )


def n_layers(model: PreTrainedModel) -> int:
    """L of the language model."""
    return int(model.config.get_text_config(decoder=True).num_hidden_layers)


def _forgetful(model: PreTrainedModel) -> ModelError:
    """The refusal of a model that remembers anywhere but in the cache it is given: its runs would mix."""
    return ModelError(
        N_("{name} does not keep what it has read in a KV cache, so its runs could not be kept apart."),
        LOAD_ANOTHER,
        name=model.config.model_type,
    )


def _mixes_runs(forward: Forward, ids: NDArray[np.int64]) -> bool:
    """Whether another run between two passes of a run changes what the second one gives."""
    alone, disturbed, other = (forward.new_cache() for _ in range(3))
    _feed(forward, ids[:-1], alone)
    expected = _feed(forward, ids[-1:], alone)
    _feed(forward, ids[:-1], disturbed)
    _feed(forward, np.flip(ids).copy(), other)
    return _distance(_feed(forward, ids[-1:], disturbed), expected) > 0.02  # atomic sums on a GPU are not repeatable


def _takes_chunks(forward: Forward, ids: NDArray[np.int64]) -> bool:
    """Whether a pass over several positions goes on from the recurrent state instead of starting anew."""
    cache = forward.new_cache()
    _feed(forward, ids[: N_PROBED // 2], cache)
    in_chunks, whole = _feed(forward, ids[N_PROBED // 2 :], cache), _feed(forward, ids, forward.new_cache())
    return _distance(in_chunks, whole) < 0.05  # scans and steps round differently


def _try_recording(
    model: PreTrainedModel, ids: NDArray[np.int64], default: str, rounding: float
) -> tuple[Recorder, str]:
    """What the recording function kept of a pass, and why it cannot be used; empty if it can."""
    recorder = Recorder(specs=True)
    reason = why_not_installable(model)
    if reason:
        return recorder, reason
    set_attention(model, EAGER)
    weights = _pass(model, ids, recorder, weights=True).weights or ()
    reason = recorder.inexact or _disagreement(recorder, weights, rounding)
    if reason or default not in ("sdpa", SDPA):
        return recorder, reason
    set_attention(model, SDPA)
    fast = Recorder(specs=True)
    _pass(model, ids, fast, weights=False)
    return fast, fast.inexact or _other_masks(recorder, fast)


def _disagreement(recorder: Recorder, weights: tuple[torch.Tensor, ...], rounding: float) -> str:
    """Why the computed weights cannot be trusted; empty if they equal the eager ones, layer by layer."""
    if not recorder.layer_calls:
        return N_("it never called the attention function")
    if len(recorder.layer_calls) != len(weights):
        return N_("some of its layers did not call the attention function")
    if min(recorder.layer_calls) < 0:
        return N_("its attention does not say which layer it belongs to")
    for call, eager in zip(_in_order(recorder), weights, strict=True):
        computed, largest = _computed(call)
        given = eager.float().cpu().numpy()
        # a score that is off by d moves a weight by a factor of exp(2 d) at most, and the weight is rounded itself
        bound = np.expm1(4 * rounding * largest + rounding) * np.maximum(computed, given) + rounding
        if (np.abs(computed - given) > bound).any():
            return N_("weights computed from its queries and keys differ from its own")
    return ""


def _computed(call: LayerAttention) -> tuple[Floats, Floats]:
    """Weights [H, Q, K] from a call's queries and keys, and the largest visible score of each row [H, Q, 1]."""
    queries, keys = (widen(a, element_of(call.queries)) for a in to_numpy([call.queries, call.keys]))
    at = np.arange(keys.shape[1])
    visible = (at >= call.visible[:, :1]) & (at < call.visible[:, 1:])
    assert call.spec is not None
    heads = np.arange(len(queries))
    scores = attention_scores(queries, keys, call.spec, heads)
    largest = np.abs(scores).max(axis=-1, keepdims=True, where=visible, initial=0)
    return attention_weights(queries, keys, call.spec, visible, heads), largest


def _other_masks(eager: Recorder, fast: Recorder) -> str:
    """Why the fast kernel is not given what eager attention is given; empty if it is."""
    if eager.layer_calls.keys() != fast.layer_calls.keys():
        return N_("some of its layers did not call the attention function")
    pairs = zip(_in_order(eager), _in_order(fast), strict=True)
    return "" if all(np.array_equal(a.visible, b.visible) for a, b in pairs) else N_("its masks are of two kinds")


def _why_useless(eager: PassResult, expected: torch.Tensor, n_layers: int, tolerance: float) -> str:
    """Why the weights of the model's own eager attention cannot be shown; empty if they can."""
    weights = eager.weights or ()
    if len(weights) != n_layers:
        return N_("it does not give the weights of every layer")
    if any(w.shape[-1] != N_PROBED for w in weights):
        return N_("its keys are not positions")
    if _distance(eager.logits.float(), expected) > tolerance:
        return N_("its eager attention gives other logits than its own default")
    return ""


def _distance(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Root mean square of the difference of two logit vectors, as a share of the spread of the second."""
    return float((found - expected).square().mean().sqrt() / expected.std())


def _pass(model: PreTrainedModel, ids: NDArray[np.int64], recorder: Recorder, weights: bool) -> PassResult:
    forward = Forward(model, eager_weights=weights)
    return _run(forward, ids, forward.new_cache(), recorder, weights)


def _feed(forward: Forward, ids: NDArray[np.int64], cache: Cache) -> torch.Tensor:
    return _run(forward, ids, cache, Recorder(attention=False), weights=False).logits.float()


def _run(forward: Forward, ids: NDArray[np.int64], cache: Cache, recorder: Recorder, weights: bool) -> PassResult:
    """One pass, after which something must be in the cache."""
    result = forward(ids, cache, recorder, weights)
    readback = Readback(recorder.tensors())
    forward.synchronise()
    recorder.settle(readback.tensors())
    if not cache_sizes(cache)[1].any():
        raise _forgetful(forward.model)
    return result


def _in_order(recorder: Recorder) -> list[LayerAttention]:
    return [recorder.layer_calls[layer] for layer in sorted(recorder.layer_calls)]


def _footprint(model: PreTrainedModel, recorder: Recorder, eager_heads: int) -> Footprint:
    per_position = {
        layer: (call.queries.nbytes + call.keys.nbytes) // N_PROBED for layer, call in recorder.layer_calls.items()
    }
    routers, vocab_size = recorder.router_choices, model.config.get_text_config(decoder=True).vocab_size
    return Footprint(
        attention=per_position,
        eager_heads=eager_heads,
        hidden=sum(h.nbytes for h in recorder.hidden_states),
        router=sum(4 * c.logits.shape[-1] + 12 * c.experts.shape[-1] for c in routers),
        vocab_size=vocab_size,
        lens=lens_bytes(len(recorder.hidden_states), vocab_size),
    )


def element_of(tensor: torch.Tensor) -> str:
    """`"float32"`, `"float16"` or `"bfloat16"`."""
    return str(tensor.dtype).removeprefix("torch.")
