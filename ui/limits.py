"""What a server allows, from the environment or `.streamlit/secrets.toml`; the environment wins."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from inference.catalogue import Entry, entries
from inference.errors import N_, RequestError
from inference.request import GenerationRequest

MIB = 2**20


@dataclass(frozen=True, slots=True)
class Limits:
    """A server's limits.

    Attributes:
        prompt_tokens, new_tokens: longest prompt (template included) and most new tokens of a run.
        trace_bytes: of one run's record; `session_bytes`, `all_bytes`: of a session's and of all sessions' records.
        models: catalogue ids that may be run; empty for all.
        hub: whether models may be downloaded.
    """

    prompt_tokens: int = 8192
    new_tokens: int = 2048
    trace_bytes: int = 512 * MIB
    session_bytes: int = 1024 * MIB
    all_bytes: int = 4096 * MIB
    models: tuple[str, ...] = ()
    hub: bool = True

    def allowed(self) -> list[Entry]:
        """The catalogue models that may be run: those allowed, and without the hub only those that are installed."""
        chosen = [e for e in entries().values() if not self.models or e.id in self.models]
        return chosen if self.hub else [e for e in chosen if e.installed]

    @property
    def any_model(self) -> bool:
        """Whether a reader may name a model that is not in the catalogue: a folder, a file or a hub id."""
        return self.hub and not self.models

    def allows(self, name: str) -> bool:
        """Whether a model may be run here."""
        return self.any_model or name in [entry.id for entry in self.allowed()]

    def check_model(self, name: str) -> None:
        """Refuse a model that may not be run here."""
        if not self.allows(name):
            raise RequestError(
                N_("This server does not run {name}."),
                N_("Choose one of {allowed}."),
                name=name,
                allowed=tuple(entry.id for entry in self.allowed()),
            )

    def bound(self, request: GenerationRequest) -> GenerationRequest:
        """The request of a run that was made elsewhere, held to what this server gives a run of its own."""
        record = replace(request.record, max_trace_bytes=min(request.record.max_trace_bytes, self.trace_bytes))
        return replace(request, max_new_tokens=min(request.max_new_tokens, self.new_tokens), record=record)

    def check_prompt(self, n_tokens: int) -> None:
        """Refuse a prompt that is longer than this server takes."""
        if n_tokens > self.prompt_tokens:
            raise RequestError(
                N_("The prompt has {n} tokens; this server takes at most {limit}."),
                N_("Shorten it by {over} tokens."),
                n=n_tokens,
                limit=self.prompt_tokens,
                over=n_tokens - self.prompt_tokens,
            )


def read(secrets: Mapping[str, Any], address: str, environment: Mapping[str, str] = os.environ) -> Limits:
    """The limits of a server that listens on `address`; the hub is off by default where others can reach it.

    Raises:
        RequestError: a setting is no whole number of at least 1; the message names it.
    """

    def setting(name: str) -> str | None:
        value = environment.get(f"INFEROSCOPE_{name}", secrets.get(f"INFEROSCOPE_{name}"))
        return None if value is None else str(value)

    def number(name: str, default: int, unit: int = 1) -> int:
        value = setting(name)
        if value is None:
            return default
        if not value.isdigit() or int(value) < 1:
            raise RequestError(
                N_("The setting {name} must be a whole number of at least 1."), name=f"INFEROSCOPE_{name}"
            )
        return int(value) * unit

    hub, usual = setting("HUB"), Limits()
    return Limits(
        prompt_tokens=number("MAX_PROMPT_TOKENS", usual.prompt_tokens),
        new_tokens=number("MAX_NEW_TOKENS", usual.new_tokens),
        trace_bytes=number("MAX_TRACE_MIB", usual.trace_bytes, MIB),
        session_bytes=number("SESSION_TRACE_MIB", usual.session_bytes, MIB),
        all_bytes=number("ALL_TRACE_MIB", usual.all_bytes, MIB),
        models=tuple(name.strip() for name in (setting("MODELS") or "").split(",") if name.strip()),
        hub=is_local(address) if hub is None else hub.lower() in ("1", "on", "true", "yes"),
    )


def is_local(address: str) -> bool:
    """Whether only this machine can reach an address that a server is bound to."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
