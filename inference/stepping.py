"""From a step's forward passes to the arrays of its record: tensors in, NumPy out, one copy at most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from inference.errors import N_, RequestError
from inference.readback import Readback
from inference.recorder import Recorder
from inference.request import RecordOptions
from inference.trace import AttentionRecord, Logits, RouterRecord

if TYPE_CHECKING:
    from inference.forward import Cache
    from inference.models import LoadedModel

NOTHING: NDArray[Any] = np.empty((0, 0, 0), dtype=np.float32)
SMALL_BYTES = 2**20
NO_SPANS = np.empty((0, 2), dtype=np.int32)


class Passes:
    """The forward passes of one step and what they showed.

    Attributes:
        logits: [V] of the last position.
        seconds: one entry a pass, device synchronised.
        copied_s: seconds the device then took to hand over what the passes showed; 0 on the CPU.
    """

    def __init__(self, model: LoadedModel, options: RecordOptions) -> None:
        self._forward, self._options = model.forward, options
        self.recorders: list[Recorder] = []
        self.weights: list[tuple[torch.Tensor, ...]] = []
        self.seconds: tuple[float, ...] = ()
        self.copied_s = 0.0
        self.logits: NDArray[np.float32] = np.empty(0, dtype=np.float32)

    def run(self, ids: NDArray[np.int64], cache: Cache, clock: Callable[[], float]) -> None:
        """One more pass over `ids` [Q].

        Raises:
            RequestError: the model's recurrent layers cannot go on with several positions after a first pass.
        """
        if self.recorders and not self._forward.takes_chunks:
            raise RequestError(
                N_("The recurrent layers of {name} cannot be prefilled in chunks."),
                N_("Leave prefill_chunk out."),
                name=self._forward.model.config.model_type,
            )
        options, began = self._options, clock()
        wants = options.attention is not False
        recorder = Recorder(
            attention=wants and not self._forward.eager_weights,
            layers=frozenset(options.attention) if isinstance(options.attention, tuple) else None,
            hidden=options.hidden or options.lens,
            router=options.router,
        )
        result = self._forward(ids, cache, recorder, weights=wants)
        weights = result.weights or ()
        readback = Readback([result.logits, *weights, *recorder.tensors()])
        self._forward.synchronise()
        copied_s = readback.seconds()
        self.seconds = (*self.seconds, clock() - began - copied_s)
        self.copied_s += copied_s
        logits, *shown = readback.tensors()
        self.logits = alone(logits.float()).numpy()
        recorder.settle(shown[len(weights) :])
        self.recorders.append(recorder)
        if result.weights is not None:
            self.weights.append(tuple(shown[: len(weights)]))


def build_attention(passes: Passes, model: LoadedModel) -> AttentionRecord:
    """Queries, new keys and spans by layer; chunks of a prefill joined. Layers not recorded hold empty arrays."""
    per_pass = []
    for recorder in passes.recorders:
        calls = recorder.layer_calls
        layers = sorted(calls)
        of_queries = to_numpy([calls[layer].queries for layer in layers])
        of_keys = to_numpy([calls[layer].keys for layer in layers])
        spans = [calls[layer].visible for layer in layers]
        per_pass.append(dict(zip(layers, zip(of_queries, of_keys, spans, strict=True), strict=True)))
    queries, keys, visible = [], [], []
    for layer in range(model.facts.n_layers):
        parts = [part[layer] for part in per_pass] if all(layer in part for part in per_pass) else []
        queries.append(_join([p[0] for p in parts], axis=1) if parts else NOTHING)
        keys.append(_join([p[1] for p in parts], axis=1) if parts else NOTHING)
        visible.append(_join([p[2] for p in parts], axis=0) if parts else NO_SPANS)
    return AttentionRecord(tuple(queries), tuple(keys), tuple(visible))


def build_weights(passes: Passes) -> tuple[NDArray[np.float32], ...]:
    """Eager attention weights by layer, [H, Q, K] on key positions; 0 where a sliding layer had dropped the key."""
    ends = [recorder.position + w[0].shape[1] for recorder, w in zip(passes.recorders, passes.weights, strict=True)]
    layers = []
    for parts in zip(*passes.weights, strict=True):
        arrays = [alone(part.float()).numpy() for part in parts]
        gaps = [(end - a.shape[-1], ends[-1] - end) for end, a in zip(ends, arrays, strict=True)]
        placed = [np.pad(a, ((0, 0), (0, 0), gap)) for gap, a in zip(gaps, arrays, strict=True)]
        layers.append(_join(placed, axis=1))
    return tuple(layers)


def build_logits(logits: NDArray[np.float32], log_z: float, keep: bool | int) -> Logits | None:
    """The raw logits [V], or the highest of them; the mass of all, `log_z`, is kept either way."""
    if keep is False:
        return None
    if keep is True or keep >= len(logits):
        return Logits(logits, log_z)
    ids, _ = Logits(logits, log_z).top(keep)
    return Logits(logits[ids], log_z, ids)


def build_hidden(passes: Passes) -> NDArray[Any] | None:
    """[L, C] last-position output of every decoder layer, or `None` where the layers are not known."""
    states = passes.recorders[-1].hidden_states
    return np.stack(to_numpy(states)) if states else None


def build_router(passes: Passes) -> tuple[RouterRecord, ...]:
    """The experts chosen, one record a mixture-of-experts layer in order of depth; chunks joined."""
    records = []
    for index, choices in enumerate(zip(*(r.router_choices for r in passes.recorders), strict=True)):
        logits = [alone(c.logits.float()).numpy() for c in choices]
        weights = [alone(c.weights.float()).numpy() for c in choices]
        experts = [alone(c.experts).numpy() for c in choices]
        layer = passes.recorders[0].router_layers[index]
        records.append(RouterRecord(layer, _join(logits, 0), _join(experts, 0), _join(weights, 0)))
    return tuple(records)


def to_numpy(tensors: Sequence[torch.Tensor]) -> list[NDArray[Any]]:
    """Tensors of the host as arrays of their own: no more copies than it takes; bfloat16 as uint16 bit patterns.

    Small tensors of one shape (a decode step's) are copied in one go.
    """
    if not tensors:
        return []
    alike = len({(t.shape, t.dtype) for t in tensors}) == 1
    if alike and len(tensors) * tensors[0].nbytes <= SMALL_BYTES:
        return list(_array(torch.stack(list(tensors))))
    return [_array(alone(t)) for t in tensors]


def alone(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy where it is a slice that would keep something larger alive, or page-locked memory."""
    slice_of_more = tensor.untyped_storage().nbytes() > tensor.nbytes
    return tensor.clone() if slice_of_more or tensor.is_pinned() else tensor


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    return tensor.view(torch.int16).numpy().view(np.uint16) if tensor.dtype == torch.bfloat16 else tensor.numpy()


def _join(parts: Sequence[NDArray[Any]], axis: int) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=axis)
