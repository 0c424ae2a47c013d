"""What the calculator is asked, as plain values: from a link, to a link, and checked figure by figure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from inference.elements import ELEMENT_TYPES
from inference.errors import InferenceError
from inference.kv_fit import WEIGHT_TYPES
from inference.kv_layers import MAX_BATCH, MAX_HEADS, MAX_LAYERS, MAX_PAGE, MAX_TOKENS, MAX_WIDTH, whole
from inference.kv_memory import MAX_DEVICES

RUN, OWN = "run", "own"  # what the model can be beside a name of the catalogue
MAX_LINK = 6000  # characters of a config or a list; longer addresses are cut by some browsers and chats
MAX_BILLIONS = 100_000

# Figures with their ranges; those of a plain layout may differ from the model's own.
LAYOUT = {"layers": (1, MAX_LAYERS), "kv_heads": (1, MAX_HEADS), "head_dim": (1, MAX_WIDTH)}
FIGURES = {
    **LAYOUT,
    "tokens": (1, MAX_TOKENS),
    "batch": (1, MAX_BATCH),
    "page_size": (1, MAX_PAGE),
    "tp": (1, MAX_DEVICES),
    "encoder_tokens": (0, MAX_TOKENS),
}
IN_BROWSER = (*LAYOUT, "tokens", "batch", "element")  # what the component sets


@dataclass(frozen=True, slots=True)
class Plan:
    """The calculator's values; a figure that came from outside may be anything until it is checked.

    Attributes:
        model: a name of the catalogue, `RUN` or `OWN`; `config` is the text of an own config.json.
        layers, kv_heads, head_dim: instead of the model's own; `None` leaves those.
        lengths: one length a sequence, as typed, instead of `batch` sequences of `tokens`; empty for none.
        value_element: the type of values where it is another than that of keys; else empty.
        billions: parameters in billions, instead of the model's own; `None` leaves those.
    """

    model: str = "Llama 3.1 8B"
    config: str = ""
    layers: Any = None
    kv_heads: Any = None
    head_dim: Any = None
    tokens: Any = 8192
    batch: Any = 1
    lengths: str = ""
    element: str = "float16"
    value_element: str = ""
    page_size: Any = 1
    tp: Any = 1
    encoder_tokens: Any = 512
    gpu: str = "NVIDIA RTX 4090"
    weights: str = "bfloat16"
    billions: Any = None

    @property
    def elements(self) -> tuple[str, str]:
        """The types of keys and of values."""
        return self.element, self.value_element or self.element

    @property
    def page(self) -> int | None:
        """The page size as the engine takes it; a page of one position is none."""
        return self.page_size if self.page_size > 1 else None


USUAL = Plan()


def checked(plan: Plan, good: Plan) -> tuple[Plan, dict[str, InferenceError]]:
    """The plan with each figure that is out of its range taken from `good`, and what is wrong with it by field."""
    wrong: dict[str, InferenceError] = {}
    for name, (low, high) in FIGURES.items():
        value = getattr(plan, name)
        if value is None and name in LAYOUT:
            continue
        try:
            whole(value, name, low=low, high=high)
        except InferenceError as error:
            wrong[name] = error
    return replace(plan, **{name: getattr(good, name) for name in wrong}), wrong


def from_link(query: Mapping[str, str]) -> Plan:
    """The plan of a link; figures are read as they stand, and checked later, so that the page can say what is wrong."""
    names = {f.name for f in fields(Plan)}
    given: dict[str, Any] = {name: query[name] for name in names & query.keys()}
    given |= {name: _number(given[name]) for name in FIGURES.keys() & given.keys()}
    if "preset" in query:  # "model" is the name of a run's own setting on another page
        given["model"] = query["preset"]
    if "billions" in given:
        given["billions"] = _billions(given["billions"])
    for name, known in (("value_element", ELEMENT_TYPES), ("weights", WEIGHT_TYPES)):
        if given.get(name) not in known:
            given.pop(name, None)
    return Plan(**given)


def _number(text: str) -> int | str:
    return int(text) if re.fullmatch(r"-?[0-9]{1,15}", text) else text


def _billions(text: str) -> float | None:
    found = re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,9})?", text)
    return min(float(text), MAX_BILLIONS) or None if found else None


def to_link(plan: Plan) -> dict[str, str]:
    """The query part of a link to the plan: what differs from the usual one, without a text that is too long."""
    changed = {f.name: getattr(plan, f.name) for f in fields(plan) if getattr(plan, f.name) != getattr(USUAL, f.name)}
    if "model" in changed:
        changed["preset"] = changed.pop("model")
    texts = {name: f"{value}" for name, value in changed.items() if value is not None}
    return {name: text for name, text in texts.items() if len(text) <= MAX_LINK}


def link_names() -> set[str]:
    """Every name that a link to a plan may use."""
    return {f.name for f in fields(Plan)} - {"model"} | {"preset"}


def from_browser(report: Mapping[str, Any]) -> dict[str, Any]:
    """The values that the component reported: known names with figures or a type's name, and nothing else."""
    values = report.get("values")
    if not isinstance(values, Mapping):
        return {}
    kinds = {name: str if name == "element" else int for name in IN_BROWSER}
    return {name: values[name] for name, kind in kinds.items() if isinstance(values.get(name), kind)}
