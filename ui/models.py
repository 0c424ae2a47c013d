"""The models of a server: shared, loaded once, at most two at a time, and given back when another needs the room."""

from __future__ import annotations

import gc
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from inference.errors import MemoryLimitError
from ui.model_key import FLOAT32, parted

if TYPE_CHECKING:
    from inference.models import LoadedModel

MAX_LOADED = 2


def _load(key: str, progress: Callable[[str], None]) -> LoadedModel:
    from inference.models import load_model  # imports torch: not before a model is asked for

    name, element = parted(key)
    return load_model(name, dtype="auto" if element == FLOAT32 else element, progress=progress)


class ModelStore:
    """Loaded models by key, see `ui.model_key`, the least recently used one released first.

    Args:
        load: loads a model by its key, telling its progress.
    """

    def __init__(self, load: Callable[..., LoadedModel] | None = None) -> None:
        self._load = load or _load
        self._models: OrderedDict[str, LoadedModel] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: str, progress: Callable[[str], None]) -> LoadedModel:
        """The model, loaded now if it is not there; a model that does not fit beside the others gets their room."""
        with self._lock:
            if name not in self._models:
                self._models[name] = self._make_room(name, progress)
            self._models.move_to_end(name)
            return self._models[name]

    def loaded(self, name: str) -> LoadedModel | None:
        """The model if it is loaded; never waits for another one that is loading."""
        return self._models.get(name)

    def _make_room(self, name: str, progress: Callable[[str], None]) -> LoadedModel:
        while len(self._models) >= MAX_LOADED:
            self._release_oldest()
        while True:
            try:
                model = self._load(name, progress=progress)
            except MemoryLimitError:
                if not self._models:
                    raise
                self._release_oldest()
            else:
                gc.collect()
                gc.freeze()  # the collector would walk the model's objects after every rerun of a page
                return model

    def _release_oldest(self) -> None:
        self._models.popitem(last=False)
        gc.unfreeze()
        gc.collect()
