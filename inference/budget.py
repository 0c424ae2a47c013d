"""What a recording will need, computed before the run, and what is left out where that is too much.

What does not fit is left out in this order, until the rest fits: the logit lens, hidden states, attention, the logits
below the 1,024 highest, the logits. Router choices are small and stay. A run never dies of its recording.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from inference.errors import N_, Note
from inference.request import RecordOptions

TOP_LOGITS = 1024


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes a model's records take, measured on a small pass when it was loaded.

    Attributes:
        attention: bytes a position by layer, of queries and keys.
        eager_heads: query heads of all layers together where weights must be kept [H, Q, K] instead, else 0.
        hidden: bytes a step.
        router: bytes a position.
        lens: bytes a step; 0 where the model has no hidden states to compute it from.
        vocab_size: V.
    """

    attention: Mapping[int, int]
    eager_heads: int
    hidden: int
    router: int
    vocab_size: int
    lens: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be recorded, the bytes of each part, and what was left out of what was asked."""

    options: RecordOptions
    nbytes: Mapping[str, int]
    left_out: tuple[Note, ...]

    @property
    def total_bytes(self) -> int:
        """Bytes of all parts."""
        return sum(self.nbytes.values())


def plan(footprint: Footprint, options: RecordOptions, n_prompt: int, n_new: int) -> Plan:
    """Fit a recording of `n_prompt` prompt and up to `n_new` new tokens into `options.max_trace_bytes`."""
    left_out: list[Note] = []
    if options.lens and not footprint.lens:
        left_out.append(Note(N_("There is no logit lens: this model's layers hand on no single hidden state.")))
        options = replace(options, lens=False)
    for change, note in _REDUCTIONS:
        need = needs(footprint, options, n_prompt, n_new)
        if sum(need.values()) <= options.max_trace_bytes:
            break
        smaller = replace(options, **change)
        if sum(needs(footprint, smaller, n_prompt, n_new).values()) < sum(need.values()):
            left_out.append(Note(note, {"limit_mib": round(options.max_trace_bytes / 2**20, 1)}))
            options = smaller
    return Plan(options, needs(footprint, options, n_prompt, n_new), tuple(left_out))


def needs(footprint: Footprint, options: RecordOptions, n_prompt: int, n_new: int) -> dict[str, int]:
    """Bytes of each part of a recording: `logits`, `attention`, `hidden`, `router`, `lens`."""
    fed = n_prompt + n_new - 1
    return {
        "logits": n_new * _logit_bytes(footprint.vocab_size, options.logits),
        "attention": _attention_bytes(footprint, options.attention, n_prompt, n_new),
        "hidden": n_new * footprint.hidden if options.hidden or options.lens else 0,
        "router": fed * footprint.router if options.router else 0,
        "lens": n_new * footprint.lens if options.lens else 0,
    }


_REDUCTIONS: tuple[tuple[dict[str, Any], str], ...] = (
    (
        {"lens": False},
        N_("The logit lens was left out, because the record would not fit in {limit_mib} MiB."),
    ),
    (
        {"hidden": False},
        N_("Hidden states were left out, because the record would not fit in {limit_mib} MiB."),
    ),
    (
        {"attention": False},
        N_("Attention was left out, because the record would not fit in {limit_mib} MiB."),
    ),
    (
        {"logits": TOP_LOGITS},
        N_("Logits below the 1,024 highest were left out, because the record would not fit in {limit_mib} MiB."),
    ),
    ({"logits": False}, N_("Logits were left out, because the record would not fit in {limit_mib} MiB.")),
)


def _logit_bytes(vocab_size: int, logits: bool | int) -> int:
    if logits is True or (logits is not False and logits >= vocab_size):
        return 4 * vocab_size
    return 12 * int(logits)  # a float32 and an int64 id each


def _attention_bytes(footprint: Footprint, attention: bool | tuple[int, ...], n_prompt: int, n_new: int) -> int:
    if attention is False:
        return 0
    if footprint.eager_heads:
        cells = n_prompt * n_prompt + sum(n_prompt + n for n in range(1, n_new))
        return 4 * footprint.eager_heads * cells
    layers = footprint.attention if attention is True else attention
    return (n_prompt + n_new - 1) * sum(footprint.attention.get(layer, 0) for layer in layers)
