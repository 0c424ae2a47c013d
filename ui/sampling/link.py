"""The lab's settings in the address: what a link sets, and what is written back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from inference.errors import InferenceError
from inference.sampling_params import RANGES, SamplingParams

NAMES = ("greedy", *(name for name in RANGES if name != "seed"), "order")
NOT_SET = "off"


def from_query(start: SamplingParams, query: Mapping[str, str]) -> tuple[SamplingParams, list[InferenceError]]:
    """The settings with those of a link, one by one; a setting that is refused stays, and its error is returned."""
    params, errors = start, []
    for name in NAMES:
        if name in query:
            try:
                setting: dict[str, Any] = {name: _value(name, query[name])}
                params = replace(params, **setting)
            except InferenceError as error:
                errors.append(error)
    return params, errors


def to_query(start: SamplingParams, params: SamplingParams) -> dict[str, str]:
    """What differs from the settings to begin with."""
    changed = {name: getattr(params, name) for name in NAMES if getattr(params, name) != getattr(start, name)}
    return {name: _text(value) for name, value in changed.items()}


def _value(name: str, text: str) -> Any:
    if name == "order":
        return tuple(text.split(",")) if "," in text else text
    if text == NOT_SET:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def _text(value: Any) -> str:
    if value is None:
        return NOT_SET
    if isinstance(value, tuple):
        return ",".join(value)
    return value if isinstance(value, str) else json.dumps(value)
