"""A model's final norm and head as a function of hidden states, and the logit lens of a run computed with it.

What a model does after its last decoder layer (norm, head, scale, soft-cap) stands in its own code and nowhere else.
So that code is run: in a shallow copy of the model, which shares every weight, one layer takes the place of all and
hands on the hidden states that are asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from inference.attention import widen
from inference.errors import N_, ModelError, TraceError
from inference.lens import N_TOP, LensRecord
from inference.probe import LOGIT_TOLERANCE
from inference.recorder import Recorder, decoder_layers

if TYPE_CHECKING:
    from inference.models import LoadedModel
    from inference.sampling import SamplingDecision
    from inference.trace import Logits, StepRecord

CHUNK_BYTES = 64 * 2**20  # of logits at a time


class Head:
    """The way from a decoder layer's output to logits.

    Args:
        model: any model that shows one hidden state a layer.

    Raises:
        ModelError: its layers are not known, or hand on something other than one hidden state a position.
    """

    def __init__(self, model: LoadedModel) -> None:
        hf = model.forward.model
        recorder = Recorder(attention=False, router=False)
        model.forward(np.zeros(1, dtype=np.int64), model.forward.new_cache(), recorder, weights=False)
        path = decoder_layers(hf)
        if path is None or not recorder.hidden_states:
            raise ModelError(
                N_("The layers of {name} do not hand on one hidden state a position, so there is no logit lens of it."),
                name=model.facts.name,
            )
        self._stand_in = _StandIn(hf.get_submodule(path)[-1], recorder.n_outputs)  # type: ignore[index]
        self._model = _with_module(hf, path, torch.nn.ModuleList([self._stand_in]))
        self._dtype, self._device, self._element = hf.dtype, model.forward.device, model.element
        self.vocab_size = model.facts.vocab_size

    def __call__(self, hidden: NDArray[Any]) -> torch.Tensor:
        """Logits [R, V] float32 of hidden states [R, C] as recorded, each taken as a last layer's output."""
        rows = torch.from_numpy(widen(hidden, self._element)).to(self._device, self._dtype)
        self._stand_in.hidden = rows[:, None]
        ids = torch.zeros((len(rows), 1), dtype=torch.long, device=self._device)
        with torch.inference_mode():
            return self._model(input_ids=ids, use_cache=False).logits[:, 0].float()  # type: ignore[no-any-return]


class _StandIn(torch.nn.Module):
    """Takes the place of the decoder layers: whatever it is given, it returns `hidden` [R, 1, C].

    Args:
        layer: a real one, asked for any other attribute that the model may read (its kind of attention, …).
        n_outputs: as in `Recorder`.
    """

    def __init__(self, layer: torch.nn.Module, n_outputs: int) -> None:
        super().__init__()
        self._layer = (layer,)  # in a tuple it is no submodule
        self._n_outputs = n_outputs
        self.hidden = torch.empty(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_layer"][0], name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What a decoder layer returns: its output, or a tuple that begins with it."""
        return (self.hidden, *[None] * (self._n_outputs - 1)) if self._n_outputs else self.hidden


def _with_module(model: torch.nn.Module, path: str, module: torch.nn.Module) -> torch.nn.Module:
    """A model that shares everything with `model` but the module at `path`."""
    name, _, rest = path.partition(".")
    changed = copy(model)
    changed._modules = dict(model._modules)
    changed._modules[name] = _with_module(model.get_submodule(name), rest, module) if rest else module
    return changed


def with_lens(
    model: LoadedModel,
    steps: Sequence[StepRecord],
    progress: Callable[[float], None] = lambda share: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> tuple[StepRecord, ...] | None:
    """The records with the logit lens of each step that holds hidden states; `None` where it was cancelled.

    Args:
        progress: told the share that is done after each part.

    Raises:
        TraceError: no step holds hidden states.
        ModelError: the model has no logit lens.
    """
    todo = [step for step in steps if step.lens is None and step.hidden is not None]
    if not todo and any(step.lens is None for step in steps):
        raise TraceError(
            N_("This run holds no hidden states, which the logit lens is computed from."),
            N_("Run the prompt again with hidden states recorded."),
        )
    head, found = Head(model), {step.index: step for step in steps}
    for part in _parts(todo, head.vocab_size):
        if cancelled():
            return None
        found |= {step.index: step for step in _lens(model, head, part)}
        progress((part[-1].index + 1) / len(steps))
    return tuple(found.values())


def _parts(steps: Sequence[StepRecord], vocab_size: int) -> Iterator[Sequence[StepRecord]]:
    """The steps in parts whose logits are not too many at a time; the steps of a run have equally many layers."""
    n_layers = max((len(step.hidden) for step in steps if step.hidden is not None), default=1)
    size = max(1, CHUNK_BYTES // (4 * vocab_size * n_layers))
    for start in range(0, len(steps), size):
        yield steps[start : start + size]


def _lens(model: LoadedModel, head: Head, steps: Sequence[StepRecord]) -> list[StepRecord]:
    hidden = np.stack([step.hidden for step in steps if step.hidden is not None])  # [N, L, C]
    logits = head(hidden.reshape(-1, hidden.shape[-1])).view(*hidden.shape[:2], -1)
    found = []
    for step, of_layers in zip(steps, logits, strict=True):
        record = record_of(of_layers, step.token_id)
        if step.logits is not None:
            _check(step.logits, of_layers[-1], model)
            record = _ending(record, step.logits, step.decision)
        found.append(replace(step, lens=record))
    return found


def record_of(logits: torch.Tensor, chosen: int) -> LensRecord:
    """The lens of one step from the logits [L, V] of its layers."""
    log_z = logits.logsumexp(dim=-1, keepdim=True)
    values, ids = logits.topk(min(N_TOP, logits.shape[-1]), dim=-1)
    score = logits[:, chosen, None]
    ranks = (logits > score).sum(dim=-1) + (logits[:, :chosen] == score).sum(dim=-1) + 1
    order = np.lexsort((ids.cpu().numpy(), -values.cpu().numpy()))  # equal logits stand in id order, as everywhere
    return LensRecord(
        ids=np.take_along_axis(ids.cpu().numpy(), order, axis=-1).astype(np.int32),
        probs=np.take_along_axis((values - log_z).exp().cpu().numpy(), order, axis=-1),
        chosen_probs=(score - log_z).exp()[:, 0].cpu().numpy(),
        chosen_ranks=ranks.to(torch.int32).cpu().numpy(),
    )


def _check(own: Logits, found: torch.Tensor, model: LoadedModel) -> None:
    """Refuse a head that does not give the model's own logits for its last layer, as far as they are recorded."""
    values, last = own.values, found.cpu().numpy()
    off = values - (last if own.ids is None else last[own.ids])
    if np.sqrt(np.square(off).mean()) > LOGIT_TOLERANCE[model.element] * last.std():
        raise ModelError(
            N_("The head of {name}, applied to its last layer, does not give its own logits: there is no logit lens."),
            name=model.facts.name,
        )


def _ending(record: LensRecord, own: Logits, decision: SamplingDecision) -> LensRecord:
    """The record with the step's own figures as its last layer's: rows of a batch round differently from one alone."""
    ids, probs = own.top(record.ids.shape[1])
    if len(ids) < record.ids.shape[1]:
        return record
    return LensRecord(
        ids=np.vstack([record.ids[:-1], ids.astype(np.int32)]),
        probs=np.vstack([record.probs[:-1], probs]),
        chosen_probs=np.append(record.chosen_probs[:-1], np.float32(decision.raw_prob)),
        chosen_ranks=np.append(record.chosen_ranks[:-1], np.int32(decision.rank)),
    )
