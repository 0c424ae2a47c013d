"""The attention function that keeps queries and keys, and the hooks that keep hidden states and router choices.

Both are put on a model once, at loading, and do nothing until a `Recorder` is active in the current context (a
context variable, so two threads that run one model never see each other). The function hands the work on to the
kernel the model would have used: recording changes no number.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import eager_mask, sdpa_mask

from inference.attention import LayerSpec
from inference.errors import N_

SDPA, EAGER = "inferoscope_sdpa", "inferoscope_eager"
# what a mask can have that one span a query does not tell, in the order of the columns that say so
FLAWS = (N_("its mask has gaps"), N_("its heads have masks of their own"), N_("a bias is added to its scores"))
_active: ContextVar[Recorder | None] = ContextVar("inferoscope_recorder", default=None)


@dataclass(frozen=True, slots=True)
class LayerAttention:
    """One call of one layer: queries [H, Q, D], new keys [G, Q, D], visible [Q, 2], and the layer's constants."""

    queries: torch.Tensor
    keys: torch.Tensor
    visible: NDArray[np.int32]
    spec: LayerSpec | None


@dataclass(frozen=True, slots=True)
class _Call:
    """What one layer was given, while its tensors are still on their device; `mask` is the key of its mask."""

    queries: torch.Tensor
    keys: torch.Tensor
    mask: int
    spec: LayerSpec | None


@dataclass(frozen=True, slots=True)
class RouterChoice:
    """One call of one router: logits [Q, E], weights [Q, k], expert ids [Q, k]."""

    logits: torch.Tensor
    weights: torch.Tensor
    experts: torch.Tensor


@dataclass(slots=True)
class Recorder:
    """Collects what one forward pass shows, in two parts: tensors during the pass, and what is read off them after it.

    Nothing is read during the pass: on a GPU every look at a number stops the host until the device has caught up.

    Attributes:
        layer_calls: by layer, once `settle` was called.
        attention: whether to keep queries and keys; `layers` restricts it to some layers.
        specs: whether to keep each layer's constants, which are the same in every pass.
        position: position of the pass's first query.
        inexact: why weights cannot be computed from what a layer was given; empty if they can.
        n_outputs: elements of the tuple that a decoder layer returns; 0 where it returns its output itself.
    """

    attention: bool = True
    layers: frozenset[int] | None = None
    hidden: bool = True
    router: bool = True
    specs: bool = False
    position: int = 0
    n_calls: int = 0
    n_layers_done: int = 0
    layer_calls: dict[int, LayerAttention] = field(default_factory=dict)
    hidden_states: list[torch.Tensor] = field(default_factory=list)
    router_choices: list[RouterChoice] = field(default_factory=list)
    router_layers: list[int] = field(default_factory=list)
    inexact: str = ""
    n_outputs: int = 0
    _calls: dict[int, _Call] = field(default_factory=dict)
    _masks: dict[int, tuple[torch.Tensor | None, torch.Tensor]] = field(default_factory=dict)

    @contextmanager
    def active(self) -> Iterator[Recorder]:
        """Record the passes made inside, in this thread only."""
        token = _active.set(self)
        try:
            yield self
        finally:
            _active.reset(token)

    def keep(
        self,
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        mask: torch.Tensor | None,
        kwargs: dict[str, Any],
    ) -> None:
        """Keep what one layer was given: query [1, H, Q, D], key [1, G, K, D] with the new keys last."""
        index = getattr(module, "layer_idx", None)
        index = self.n_calls if index is None else index
        self.n_calls += 1
        if not self.attention or (self.layers is not None and index not in self.layers):
            return
        n_queries, n_keys = query.shape[2], key.shape[2]
        if n_keys > self.position + n_queries:
            self.inexact = N_("its keys are not positions")
            return
        if kwargs.get("position_bias") is not None:
            self.inexact = N_("a position bias is added to its scores")
            return
        self._calls[index] = _Call(
            queries=query[0],
            keys=key[0, :, n_keys - n_queries :],  # a view: the step's record copies it out of the cache
            mask=self._mask(mask, n_queries, n_keys),
            spec=_spec(module, query, kwargs) if self.specs else None,
        )

    def _mask(self, mask: torch.Tensor | None, n_queries: int, n_keys: int) -> int:
        """The key of a mask; layers that share a mask share its spans."""
        memo = n_keys if mask is None else id(mask)
        if memo not in self._masks:
            offset = self.position + n_queries - n_keys
            rows = _causal_rows(n_queries, n_keys, offset) if mask is None else _rows_of(mask, offset)
            self._masks[memo] = (mask, rows)  # holding the mask keeps its id its own
        return memo

    def tensors(self) -> list[torch.Tensor]:
        """All that the pass showed, wherever it lies."""
        calls = [tensor for call in self._calls.values() for tensor in (call.queries, call.keys)]
        choices = [tensor for one in self.router_choices for tensor in (one.logits, one.weights, one.experts)]
        return [*calls, *(rows for _, rows in self._masks.values()), *self.hidden_states, *choices]

    def settle(self, tensors: Sequence[torch.Tensor]) -> None:
        """Take over what the pass showed from the host, and read its masks.

        Args:
            tensors: those of `tensors`, in order, on the host.
        """
        given = iter(tensors)
        pairs = {layer: (next(given), next(given)) for layer in self._calls}
        visible = {key: self._spans(next(given).numpy()) for key in self._masks}
        for layer, call in self._calls.items():
            spans = visible[call.mask]
            if spans is not None:  # rather nothing than something that is not so
                self.layer_calls[layer] = LayerAttention(*pairs[layer], spans, call.spec)
        self.hidden_states = [next(given) for _ in self.hidden_states]
        self.router_choices = [RouterChoice(next(given), next(given), next(given)) for _ in self.router_choices]
        self._calls, self._masks = {}, {}

    def _spans(self, rows: NDArray[np.int32]) -> NDArray[np.int32] | None:
        """A mask as one span of key positions a query; `None` where it is not one."""
        flawed = np.flatnonzero(rows[:, 2:].any(axis=0))
        if len(flawed):
            self.inexact = FLAWS[flawed[0]]
            return None
        return rows[:, :2].copy()


# models with sparse attention mask the keys they did not choose if the function is called eager or sdpa, and leave
# it to the function otherwise (DeepSeek-V3.2 and its kin)
_BY_NAME = re.compile(r"_attn_implementation in \(")


def why_not_installable(model: PreTrainedModel) -> str:
    """Why a model cannot be given the recording attention function; empty if it can."""
    if not model._can_set_attn_implementation():
        return N_("it does not take an attention function from outside")
    if _BY_NAME.search(inspect.getsource(sys.modules[type(model).__module__])):
        return N_("it masks keys for attention functions of its own choice only")
    return ""


def set_attention(model: PreTrainedModel, name: str) -> None:
    """Make a model use the attention function of this name: `SDPA`, `EAGER` or one of transformers' own.

    Call it before the model is shared.
    """
    if model._can_set_attn_implementation():
        model.set_attn_implementation(name)
    else:  # its own code reads the name: called sdpa, falcon gives weights of a pass without its causal mask
        model.config._attn_implementation = name


def install_hooks(model: PreTrainedModel) -> None:
    """Hooks on the decoder layers and the routers, which transformers itself names in `_can_record_outputs`.

    Older models name nothing: their decoder layers are the outermost list of that many modules.
    """
    for parent in model.modules():
        if isinstance(parent, PreTrainedModel):
            outputs = getattr(parent, "_can_record_outputs", None) or {}
            for module in parent.modules():
                if isinstance(module, _classes(outputs.get("hidden_states"))):
                    _hook_once(module, _keep_hidden)
                if isinstance(module, _classes(outputs.get("router_logits"))):
                    _hook_once(module, _keep_router)
    if not any(_keep_hidden in module._forward_hooks.values() for module in model.modules()):
        n_layers = model.config.get_text_config(decoder=True).num_hidden_layers
        lists = (m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == n_layers)
        for layer in next(lists, ()):
            _hook_once(layer, _keep_hidden)


def decoder_layers(model: PreTrainedModel) -> str | None:
    """Name of the module list that holds the decoder layers, by their hooks; `None` if there is none."""
    lists = ((str(name), m) for name, m in model.named_modules() if isinstance(m, torch.nn.ModuleList) and len(m))
    hooked = (name for name, m in lists if all(_keep_hidden in layer._forward_hooks.values() for layer in m))
    return next(hooked, None)


def _recording_sdpa(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    recorder = _active.get()
    if recorder is not None:
        recorder.keep(module, query, key, attention_mask, kwargs)
    return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)


def _recording_eager(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    recorder = _active.get()
    if recorder is not None:
        recorder.keep(module, query, key, attention_mask, kwargs)
    eager: Callable[..., Any] = sys.modules[type(module).__module__].eager_attention_forward
    return eager(module, query, key, value, attention_mask, **kwargs)  # type: ignore[no-any-return]


AttentionInterface.register(SDPA, _recording_sdpa)
AttentionInterface.register(EAGER, _recording_eager)
AttentionMaskInterface.register(SDPA, sdpa_mask)
AttentionMaskInterface.register(EAGER, eager_mask)


def _keep_hidden(module: torch.nn.Module, args: Any, output: Any) -> None:
    recorder = _active.get()
    if recorder is None:
        return
    recorder.n_layers_done += 1
    recorder.n_outputs = len(output) if isinstance(output, (tuple, list)) else 0
    hidden = output[0] if recorder.n_outputs else output
    if recorder.hidden and hidden.ndim == 3:  # not where a layer hands on several streams at once (Gemma 3n)
        last = hidden[0, -1]
        recorder.hidden_states.append(last.clone() if hidden.shape[1] > 1 else last)


def _keep_router(module: torch.nn.Module, args: Any, output: Any) -> None:
    recorder = _active.get()
    if recorder is not None and recorder.router and isinstance(output, tuple) and len(output) == 3:
        recorder.router_choices.append(RouterChoice(*output))
        recorder.router_layers.append(recorder.n_layers_done)


def _spec(module: Any, query: torch.Tensor, kwargs: dict[str, Any]) -> LayerSpec:
    sinks = kwargs.get("s_aux")
    scale = kwargs.get("scaling")
    return LayerSpec(
        n_heads=query.shape[1],
        scale=float(scale) if scale is not None else query.shape[-1] ** -0.5,
        softcap=kwargs.get("softcap"),
        sinks=None if sinks is None else sinks.detach().float().cpu().numpy(),
        window=kwargs.get("sliding_window") or getattr(module, "sliding_window", None),
    )


def _causal_rows(n_queries: int, n_keys: int, offset: int) -> torch.Tensor:
    """`_rows_of` the mask that lets every query see all keys up to its own."""
    rows = torch.zeros((n_queries, 2 + len(FLAWS)), dtype=torch.int32)
    rows[:, 0] = offset
    rows[:, 1] = torch.arange(n_keys - n_queries + 1, n_keys + 1) + offset
    return rows


def _rows_of(mask: torch.Tensor, offset: int) -> torch.Tensor:
    """A mask [1, 1 or H, Q, K], row by row and on its device, as [Q, 5]: first position seen, end, and the `FLAWS`."""
    seen = mask if mask.dtype == torch.bool else mask == 0
    rows = seen[0, 0]
    count, first = rows.sum(dim=-1), rows.to(torch.uint8).argmax(dim=-1)
    last = rows.shape[-1] - rows.flip(-1).to(torch.uint8).argmax(dim=-1)
    gaps = (last - first != count) & (count > 0)
    parted = (seen != seen[:, :1]).any().expand(len(rows))
    hidden = ~seen if mask.dtype == torch.bool else mask <= torch.finfo(mask.dtype).min / 2
    biased = (~(seen | hidden)).any().expand(len(rows))
    return torch.stack([first + offset, first + count + offset, gaps, parted, biased], dim=-1).to(torch.int32)


def _classes(target: Any) -> tuple[type, ...]:
    targets = target if isinstance(target, list) else [target]
    classes = [getattr(t, "target_class", t) for t in targets]
    return tuple(c for c in classes if isinstance(c, type))


def _hook_once(module: torch.nn.Module, hook: Callable[..., None]) -> None:
    if hook not in module._forward_hooks.values():
        module.register_forward_hook(hook)
