"""A run's measured cache beside the plain formula, layer by layer: equal to the byte, or the reason why not.

The formula is 2 · T · H_kv · D · S: keys and values of T positions, each H_kv heads of D numbers of S bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from inference.errors import N_, Note
from inference.trace import ModelFacts, Trace

Reason = Literal["equal", "window", "expanded", "state", "shared", "other"]

ELEMENT_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True, slots=True)
class LayerCheck:
    """One layer after a step.

    Attributes:
        fed: T, positions fed so far.
        positions, nbytes: what it holds, measured on its tensors.
        formula_bytes: 2 · T · H_kv · D · S.
        why: a sentence, where the two differ.
    """

    layer: int
    fed: int
    positions: int
    nbytes: int
    formula_bytes: int
    reason: Reason
    why: Note | None = None


def layer_checks(trace: Trace, step: int) -> tuple[LayerCheck, ...]:
    """Every layer's measured bytes after a step beside the formula's."""
    kv, fed = trace.steps[step].kv, trace.n_prompt + step
    return tuple(
        _check(trace, layer, fed, int(positions), int(nbytes))
        for layer, (positions, nbytes) in enumerate(zip(kv.positions, kv.nbytes, strict=True))
    )


def position_bytes(model: ModelFacts) -> int:
    """2 · H_kv · D · S: keys and values of one position in one layer, in bytes."""
    return 2 * model.n_kv_heads * model.head_dim * ELEMENT_BYTES[model.dtype]


def _check(trace: Trace, layer: int, fed: int, positions: int, nbytes: int) -> LayerCheck:
    model = trace.model
    each = position_bytes(model)
    reason, why = _reason(trace, layer, fed, positions, nbytes)
    return LayerCheck(layer, fed, positions, nbytes, fed * each, reason, why if reason != "equal" else None)


def _reason(trace: Trace, layer: int, fed: int, positions: int, nbytes: int) -> tuple[Reason, Note]:
    model, each = trace.model, position_bytes(trace.model)
    if not positions:
        if nbytes:
            return "state", Note(N_("It keeps a state of constant size instead of keys and values."))
        return "shared", Note(N_("It keeps nothing: it reads the keys and values of an earlier layer."))
    if nbytes == fed * each:
        return "equal", Note("")
    if positions < fed and nbytes == positions * each:
        return "window", _window_note(trace, layer, positions)
    if nbytes == positions * each // model.n_kv_heads * model.n_heads:
        values = {"heads": model.n_heads, "kv_heads": model.n_kv_heads}
        return "expanded", Note(N_("All {heads} heads are cached, after {kv_heads} KV heads were repeated."), values)
    measured = nbytes // positions
    note = N_("It keeps {measured} bytes a position and not {formula}: its heads differ, or it keeps a latent (MLA).")
    return "other", Note(note, {"measured": measured, "formula": each})


def _window_note(trace: Trace, layer: int, positions: int) -> Note:
    spec = trace.layers[layer] if layer < len(trace.layers) else None
    if spec is None or spec.window is None or positions != spec.window - 1:
        return Note(N_("It keeps the newest {n} positions only."), {"n": positions})
    note = N_("A window of {window}: {n} positions are kept, and the current one completes it during its pass.")
    return Note(note, {"window": spec.window, "n": positions})
