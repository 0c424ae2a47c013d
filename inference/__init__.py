"""The engine: runs a real language model and records every step. No page, no chart, no browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inference.errors import InferenceError
from inference.request import GenerationRequest, RecordOptions
from inference.sampling_params import SamplingParams
from inference.trace import Trace

if TYPE_CHECKING:
    from inference.engine import generate, record
    from inference.models import load_model

__all__ = [
    "GenerationRequest",
    "InferenceError",
    "RecordOptions",
    "SamplingParams",
    "Trace",
    "generate",
    "load_model",
    "record",
]

_HEAVY = {"generate": "inference.engine", "record": "inference.engine", "load_model": "inference.models"}


def __getattr__(name: str) -> Any:
    """Import torch and transformers only when something is run: a run file opens without them."""
    if name in _HEAVY:
        import importlib

        return getattr(importlib.import_module(_HEAVY[name]), name)
    raise AttributeError(name)
