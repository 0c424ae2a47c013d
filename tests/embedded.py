"""The embedded model, loaded once for all tests; converting it the first time takes about 20 s."""

from __future__ import annotations

from functools import cache

from inference.engine import record
from inference.models import LoadedModel, load_model
from inference.request import GenerationRequest
from inference.sampling import SamplingParams
from inference.trace import Trace

MODEL_ID = "smollm2-135m"


@cache
def embedded() -> LoadedModel:
    """SmolLM2-135M-Instruct in float32 on the CPU."""
    return load_model(MODEL_ID, device="cpu")


@cache
def gravity() -> Trace:
    """Its greedy answer to "What is gravity?", 24 tokens, everything recorded."""
    request = GenerationRequest(
        prompt="What is gravity?", chat=True, max_new_tokens=24, sampling=SamplingParams(greedy=True)
    )
    return record(embedded(), request)
