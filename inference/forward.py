"""The only caller of the Hugging Face model: one adapter over cache classes, keyword drift and devices."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import CacheLayerMixin, DynamicLayer

from inference.recorder import Recorder

Cache = DynamicCache


@dataclass(frozen=True, slots=True)
class PassResult:
    """What a forward pass gave: last-position logits [V], or all [Q, V]; weights by layer if eager.

    Logits have the model's dtype and device.
    """

    logits: torch.Tensor
    weights: tuple[torch.Tensor, ...] | None


class Forward:
    """Runs one model, batch of one, with a cache that the caller owns.

    Args:
        model: a causal language model, in evaluation mode.
        eager_weights: whether the model gives attention weights only in eager mode.
        takes_chunks: whether a pass over several positions may follow another pass.
    """

    def __init__(self, model: PreTrainedModel, eager_weights: bool, takes_chunks: bool = True) -> None:
        self.model = model
        self.eager_weights = eager_weights
        self.takes_chunks = takes_chunks
        known = inspect.signature(model.forward).parameters
        # renamed in transformers 5.2x; on older ones `cache=` is silently swallowed and the cache stays empty
        self._cache_name = "cache" if "cache" in known else "past_key_values"
        self._takes_positions = "position_ids" in known
        self.device: torch.device = model.get_input_embeddings().weight.device  # type: ignore[assignment]
        self._gpus = sorted({p.device.index for p in model.parameters() if p.device.type == "cuda"})
        # as an index, because for a number gemma4 leaves all other positions out of the layers that share keys
        last = torch.tensor([-1], device=self.device) if _shares_keys(model) else 1
        self._extra: dict[str, Any] = {"logits_to_keep": last} if "logits_to_keep" in known else {}

    def new_cache(self) -> Cache:
        """An empty cache of the kinds of layer that the model's config asks for."""
        return DynamicCache(config=self.model.config.get_text_config(decoder=True))

    def new_dropping_cache(self) -> Cache | None:
        """An empty cache that positions can be dropped from; `None` where a layer has a window or a state."""
        cache = self.new_cache()
        if any(type(layer) is not DynamicLayer for layer in cache.layers):
            return None
        cache.layers = [DroppingLayer() for _ in cache.layers]
        return cache

    def __call__(
        self,
        ids: NDArray[np.int64],
        cache: Cache | None,
        recorder: Recorder,
        weights: bool,
        last_only: bool = True,
    ) -> PassResult:
        """Feed `ids` [Q] after what is in the cache, which grows; or alone, keeping nothing, where there is none.

        Args:
            recorder: collects what the pass shows.
            weights: ask for attention weights (only where the model gives them in eager mode).
            last_only: give the logits of the last position alone.
        """
        recorder.position = 0 if cache is None else n_cached(cache)
        extra = dict(self._extra) if last_only else {}
        if weights and self.eager_weights:
            extra["output_attentions"] = True
        if self._takes_positions:  # as generate does: left alone, bamba counts from 0 in every pass
            end = recorder.position + len(ids)
            extra["position_ids"] = torch.arange(recorder.position, end, device=self.device)[None]
        if cache is not None:
            extra[self._cache_name] = cache
        batch = self._to_device(ids[None])
        with torch.inference_mode(), recorder.active():
            out = self.model(input_ids=batch, use_cache=cache is not None, **extra)
        found = getattr(out, "attentions", None) or ()
        given = tuple(w[0] for w in found if w is not None) if weights and self.eager_weights else None
        return PassResult(out.logits[0, -1] if last_only else out.logits[0], given)

    def rows(self, ids: NDArray[np.int64], cache: Cache, seen: NDArray[np.bool_] | None = None) -> torch.Tensor:
        """Feed B sequences of one length `ids` [B, Q] after what is in the cache of all; nothing is recorded.

        Args:
            seen: [B, n] which of all positions so far, these included, are a row's own and which are padding; `None`
                where all are. A row's own positions are counted from 0, wherever its padding ends.

        Returns:
            Logits [B, V] after the last position of each.
        """
        extra, first = dict(self._extra), n_cached(cache)
        positions = np.arange(first, first + ids.shape[1])[None]
        if seen is not None:
            positions = np.maximum(seen.cumsum(axis=1) - 1, 0)[:, first:]
            extra["attention_mask"] = self._to_device(seen.astype(np.int64))
        if self._takes_positions:
            extra["position_ids"] = self._to_device(positions)
        extra[self._cache_name] = cache
        with torch.inference_mode():
            logits: torch.Tensor = self.model(self._to_device(ids), use_cache=True, **extra).logits
        return logits[:, -1]

    def _to_device(self, array: NDArray[np.int64]) -> torch.Tensor:
        """A small array on the model's device; from page-locked memory, a GPU takes it without stopping the host."""
        tensor = torch.from_numpy(array)
        return tensor.pin_memory().to(self.device, non_blocking=True) if self._gpus else tensor.to(self.device)

    def synchronise(self) -> None:
        """Wait until the devices have done what was asked of them, so that a clock reading is true."""
        for gpu in self._gpus:
            torch.cuda.synchronize(gpu)
        if self.device.type == "mps":
            torch.mps.synchronize()


class DroppingLayer(DynamicLayer):
    """A layer that counts the positions that it has lost, so that every later one keeps its own number.

    Keys stay rotated as they were: a key's distance to a query is the distance in the text, whatever lies between.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.gone = 0

    def get_seq_length(self) -> int:
        """Positions taken in, the lost ones included."""
        return self.gone + (self.keys.shape[-2] if self.keys is not None else 0)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Keys of a pass, and the position of the first if they were in one piece."""
        return self.get_seq_length() - self.gone + query_length, self.gone

    def copies(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Copies of the keys and values [1, G, n, D]; never aliased."""
        assert self.keys is not None
        assert self.values is not None
        return self.keys.clone(), self.values.clone()

    def keep(self, places: torch.Tensor) -> None:
        """Keep these places [n] of what is held."""
        assert self.keys is not None
        assert self.values is not None
        self.gone += self.keys.shape[-2] - len(places)
        self.keys, self.values = self.keys[:, :, places], self.values[:, :, places]


def keep_places(cache: Cache, places: NDArray[np.int64]) -> None:
    """Keep these places [n] of what every layer of a dropping cache holds, and free the rest."""
    for layer in cache.layers:
        assert isinstance(layer, DroppingLayer)
        layer.keep(torch.from_numpy(places).to(layer.device))


def copy_dropping(cache: Cache, fresh: Cache) -> Cache:
    """`fresh`, a new dropping cache, as a copy of another one; never aliased."""
    for layer, copied in zip(cache.layers, fresh.layers, strict=True):
        assert isinstance(layer, DroppingLayer)
        assert isinstance(copied, DroppingLayer)
        copied.update(*layer.copies())
        copied.gone = layer.gone
    return fresh


def keys_and_values(cache: Cache) -> list[tuple[int, torch.Tensor, torch.Tensor]]:
    """Layer, keys [1, G, n, D] and values [1, G, n, D] of every layer that keeps both; views, not copies."""
    held = [
        (index, getattr(layer, "keys", None), getattr(layer, "values", None))
        for index, layer in enumerate(cache.layers)
    ]
    return [(i, k, v) for i, k, v in held if k is not None and v is not None and k.ndim == v.ndim == 4]


def rewrite_newest(cache: Cache, n: int, rewrite: Callable[[NDArray[np.float32]], NDArray[np.float32]]) -> None:
    """Put `rewrite(numbers)` in the place of the keys and values [G, n, D] of the newest `n` positions."""
    with torch.inference_mode():
        for _, *both in keys_and_values(cache):
            for held in both:
                newest = held[0, :, -n:]
                changed = rewrite(newest.float().cpu().numpy())
                newest.copy_(torch.from_numpy(changed).to(newest))


def _shares_keys(model: PreTrainedModel) -> bool:
    return bool(getattr(model.config.get_text_config(decoder=True), "num_kv_shared_layers", 0))


def n_cached(cache: Cache) -> int:
    """Positions a cache has taken in, those that sliding layers have dropped included; 0 if no layer has attention."""
    return next((layer.get_seq_length() for layer in cache.layers if isinstance(layer, CacheLayerMixin)), 0)


def cache_prefix(cache: Cache, fresh: Cache, n: int) -> Cache | None:
    """`fresh` filled with copies of the first `n` positions of `cache`, never aliased; `None` where they are gone.

    Only layers that keep every position can be cut back: not sliding layers, and not constant states.
    """
    if n_cached(cache) < n:
        return None
    for index, layer in enumerate(cache.layers):
        if type(layer) is not DynamicLayer or layer.keys is None or layer.values is None:
            return None
        fresh.update(layer.keys[:, :, :n].clone(), layer.values[:, :, :n].clone(), index)
    return fresh


def cache_sizes(cache: Cache) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions [L] and bytes [L] that a cache holds, read off its tensors.

    A layer with constant state (convolution, recurrence) counts its bytes and 0 positions.
    """
    positions, nbytes = [], []
    for layer in cache.layers:
        keys = getattr(layer, "keys", None)
        positions.append(keys.shape[-2] if keys is not None and keys.ndim == 4 else 0)
        state = ("keys", "values") if type(layer) is DynamicLayer else STATE
        nbytes.append(sum(_nbytes(getattr(layer, name, None)) for name in state))
    return np.array(positions, dtype=np.int64), np.array(nbytes, dtype=np.int64)


# the tensors in which transformers' cache layers keep what they remember
STATE = ("keys", "values", "indexer_keys", "conv_states", "recurrent_states")


def _nbytes(state: Any) -> int:
    if isinstance(state, torch.Tensor):
        return state.numel() * state.element_size()
    if isinstance(state, dict):
        return sum(_nbytes(part) for part in state.values())
    return sum(_nbytes(part) for part in state) if isinstance(state, (list, tuple)) else 0
