"""What the form asks for, as plain values: to a request, to a link, and back from a link."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, get_type_hints
from urllib.parse import urlencode

from inference.errors import N_, InferenceError, RequestError
from inference.request import GenerationRequest, RecordOptions
from inference.sampling_params import SamplingParams
from ui.model_key import ELEMENTS, FLOAT32

PARTS = {
    "logits": N_("logits"),
    "attention": N_("attention"),
    "hidden": N_("hidden states"),
    "router": N_("experts"),
    "lens": N_("logit lens"),
}
USUAL = ("logits", "attention", "hidden", "router")  # the logit lens adds half of the run's time at its end
ROLES = {"user": N_("user"), "assistant": N_("assistant")}
MAX_LINK = 8000  # characters; longer addresses are cut by some browsers and chats


@dataclass(frozen=True, slots=True)
class Asked:
    """The form's values; `None` leaves a sampling setting to the checkpoint, else off.

    `turns` is the conversation before the prompt: role and text by turns, in chat only. `stop` holds one stop string a
    line, `\\\\n` for a line break.
    """

    model: str = "smollm2-135m"
    element: str = FLOAT32
    prompt: str = ""
    chat: bool = True
    system: str = ""
    turns: tuple[tuple[str, str], ...] = ()
    max_new_tokens: int = 48
    stop: str = ""
    include_stop: bool = False
    decoding: str = "random"
    temperature: float | None = 0.8
    top_k: int | None = 50
    top_p: float | None = 0.95
    min_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = 42
    record: tuple[str, ...] = USUAL

    def sampling(self) -> SamplingParams:
        """The settings; under `"checkpoint"` none is the reader's."""
        if self.decoding == "checkpoint":
            return SamplingParams()
        if self.decoding == "greedy":
            return SamplingParams(greedy=True, repetition_penalty=self.repetition_penalty)
        names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")
        return SamplingParams(greedy=False, **{name: getattr(self, name) for name in names})

    def request(self, trace_bytes: int) -> GenerationRequest:
        """The request that the form stands for; `RequestError` or `SamplingError` where it makes no sense."""
        turns = (*self.turns, ("user", self.prompt))
        return GenerationRequest(
            prompt=turns if self.chat and self.turns else self.prompt,
            chat=self.chat,
            system=self.system or None if self.chat else None,
            max_new_tokens=self.max_new_tokens,
            sampling=self.sampling(),
            stop_strings=tuple(line.replace("\\n", "\n") for line in self.stop.splitlines() if line),
            include_stop_string=self.include_stop,
            record=RecordOptions(**{part: part in self.record for part in PARTS}, max_trace_bytes=trace_bytes),
        )


def link(asked: Asked) -> str:
    """The query part of a link that fills the form; only what differs from the form's beginning is in it."""
    usual = Asked()
    changed = {
        f.name: getattr(asked, f.name) for f in fields(asked) if getattr(asked, f.name) != getattr(usual, f.name)
    }
    query = urlencode({name: value if isinstance(value, str) else json.dumps(value) for name, value in changed.items()})
    if len(query) > MAX_LINK:
        raise RequestError(
            N_("The link would have {n} characters; more than {limit} do not survive being shared."),
            N_("Share the run file instead."),
            n=len(query),
            limit=MAX_LINK,
        )
    return f"?{query}"


def from_link(query: Mapping[str, str]) -> dict[str, Any]:
    """The form's values that a link holds; what does not fit its field is left out, since a link is untrusted."""
    hints = get_type_hints(Asked)
    found = {}
    for name in hints.keys() & query.keys():
        value: Any = query[name] if hints[name] is str else _json(query[name])
        if name in ("turns", "record") and isinstance(value, list):
            value = tuple(tuple(part) if isinstance(part, list) else part for part in value)
        if _fits(name, value):
            found[name] = value
    return found


def _fits(name: str, value: Any) -> bool:
    try:
        asked = Asked(**{name: value})
        asked.request(0)
    except (InferenceError, TypeError, ValueError, AttributeError):
        return False
    kinds = {
        "element": value in ELEMENTS,
        "decoding": value in ("checkpoint", "greedy", "random"),
        "record": set(asked.record) <= set(PARTS),
    }
    kinds["turns"] = all(role in ROLES and isinstance(text, str) for role, text in asked.turns)
    kinds |= {"chat": isinstance(value, bool), "include_stop": isinstance(value, bool)}
    return kinds.get(name, True)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
