"""Where a run's tokens went: the gates and choices of a mixture-of-experts layer over all positions, and its load.

Dimension letters as in `inference.trace`: T positions that were fed, E experts, k chosen a token.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from inference.errors import N_, TraceError
from inference.tokens import Token
from inference.trace import Floats, Trace

Gate = Literal["softmax", "sigmoid", "unknown"]
GATE_TOLERANCE = 0.02  # relative; bfloat16 keeps three digits
MOST_LINES = 10
# what the first letter, digit or sign of a token is
KINDS = {
    "special": N_("special tokens"),
    "digit": N_("digits"),
    "han": N_("Chinese characters"),
    "latin": N_("Latin letters"),
    "letter": N_("other letters"),
    "sign": N_("signs"),
    "space": N_("white space"),
    "piece": N_("pieces of characters"),
}


@dataclass(frozen=True, slots=True)
class Routing:
    """One layer's router over the whole run.

    Attributes:
        logits: [T, E] as the router gave them.
        gates: [T, E] the scores between 0 and 1 that the router's weights come from: softmax of all logits (each row
            sums to 1) or the sigmoid of each. Where the recorded weights follow from neither, softmax, and `gate` is
            `"unknown"`.
        experts: [T, k] ids of the experts chosen, and `weights` [T, k] what the model multiplies their outputs by.
    """

    layer: int
    logits: Floats
    gates: Floats
    gate: Gate
    experts: NDArray[np.int64]
    weights: Floats

    @property
    def load(self) -> NDArray[np.int64]:
        """[E] how many tokens chose each expert."""
        return load_of(self.experts, self.logits.shape[1])


@dataclass(frozen=True, slots=True)
class LayerLoad:
    """What one layer's choices add up to: `load` [E] tokens an expert, `strongest` the mean of a token's largest weight
    over the sum of its weights, `n_chosen` k, `n_tokens` T."""

    layer: int
    load: NDArray[np.int64]
    strongest: float
    n_chosen: int
    n_tokens: int


@dataclass(frozen=True, slots=True)
class Group:
    """Positions that belong together: a kind of token, or a line of the text."""

    name: str
    positions: NDArray[np.int64]


def routed_layers(trace: Trace) -> tuple[int, ...]:
    """The layers whose router choices the run holds, in order of depth."""
    return tuple(record.layer for record in trace.steps[0].router) if trace.steps else ()


def routing(trace: Trace, layer: int) -> Routing:
    """A layer's router over all positions that were fed, prefill and decode joined.

    Raises:
        TraceError: the run holds no router choices of this layer.
    """
    logits, experts, weights = (_joined(trace, layer, name) for name in ("logits", "experts", "weights"))
    gates, gate = _gates(logits, experts, weights)
    return Routing(layer, logits, gates, gate, experts, weights)


def routing_at(trace: Trace, position: int, gate: Gate) -> list[Routing]:
    """Every layer's router at one position (T = 1), with the gates of a known function; no other position is read.

    Raises:
        TraceError: the position was not fed.
    """
    step = max(0, position - trace.n_prompt + 1)
    if not 0 <= position < trace.n_prompt + len(trace.steps) - 1:
        n = trace.n_prompt + len(trace.steps) - 1
        raise TraceError(N_("There is no position {position}; {n} were fed."), position=position, n=n)
    row = slice(at := position - trace.first_position(step), at + 1)
    found = []
    for r in trace.steps[step].router:
        gates = _scores(r.logits[row])["sigmoid" if gate == "sigmoid" else "softmax"].astype(np.float32)
        found.append(Routing(r.layer, r.logits[row], gates, gate, r.experts[row], r.weights[row]))
    return found


def layer_load(trace: Trace, layer: int) -> LayerLoad:
    """What a layer's choices add up to.

    Raises:
        TraceError: the run holds no router choices of this layer.
    """
    experts, weights = _joined(trace, layer, "experts"), _joined(trace, layer, "weights")
    n_experts = next(r.logits.shape[1] for r in trace.steps[0].router if r.layer == layer)
    strongest = float((weights.max(axis=1) / weights.sum(axis=1)).mean())
    return LayerLoad(layer, load_of(experts, n_experts), strongest, experts.shape[1], len(experts))


def load_of(experts: NDArray[np.int64], n_experts: int) -> NDArray[np.int64]:
    """[E] how many times each expert occurs among choices of any shape."""
    return np.bincount(experts.ravel(), minlength=n_experts)


def imbalance(load: NDArray[np.int64]) -> float:
    """How many times its even share the busiest expert got: 1 is even, E is everything to one."""
    return float(load.max() / load.mean())


def distance(a: NDArray[np.int64], b: NDArray[np.int64]) -> float:
    """Total variation distance of two loads' shares: 0 the same experts in the same shares, 1 no expert shared."""
    return float(np.abs(a / a.sum() - b / b.sum()).sum() / 2)


def kind_of(token: Token) -> str:
    """What kind of token it is, one of `KINDS`, by its first character that is not a space."""
    if token.special:
        return "special"
    try:
        text = token.data.decode()
    except UnicodeDecodeError:
        return "piece"
    first = text.strip()[:1]
    if not first:
        return "space"
    if first.isdigit():
        return "digit"
    if not first.isalpha():
        return "sign"
    name = unicodedata.name(first, "")
    if name.startswith("CJK"):
        return "han"
    return "latin" if name.startswith("LATIN") else "letter"


def by_kind(tokens: tuple[Token, ...]) -> list[Group]:
    """The positions of each kind of token that occurs; the names are of `KINDS`, to be translated."""
    kinds = np.array([kind_of(token) for token in tokens])
    return [Group(name, np.flatnonzero(kinds == kind)) for kind, name in KINDS.items() if (kinds == kind).any()]


def by_line(tokens: tuple[Token, ...]) -> list[Group]:
    """The positions of each line of the text, without special tokens; the first `MOST_LINES` lines with a token.

    A token belongs to the line on which it begins; the name is the line's own text.
    """
    lines: dict[int, list[int]] = {}
    at = 0
    for position, token in enumerate(tokens):
        if not token.special:
            lines.setdefault(at, []).append(position)
            at += token.data.count(b"\n")
    kept = [positions for positions in lines.values() if _text(tokens, positions).strip()][:MOST_LINES]
    return [Group(_text(tokens, positions).strip(), np.array(positions)) for positions in kept]


def _text(tokens: tuple[Token, ...], positions: list[int]) -> str:
    return b"".join(tokens[at].data for at in positions).decode("utf-8", "replace")


def _joined(trace: Trace, layer: int, name: str) -> NDArray[Any]:
    """One array of a layer's records, all steps joined."""
    found = [getattr(record, name) for step in trace.steps for record in step.router if record.layer == layer]
    if not found:
        raise TraceError(N_("This run holds no router choices of layer {layer}."), layer=layer)
    return np.concatenate(found)


def _gates(logits: Floats, experts: NDArray[np.int64], weights: Floats) -> tuple[Floats, Gate]:
    """The scores that the weights are in proportion to. Families differ (Mixtral: softmax; DeepSeek-V3: sigmoid).

    gpt-oss takes the softmax of the chosen logits alone, which is in the same proportion as that of all.
    """
    candidates = _scores(logits)
    for gate, scores in candidates.items():
        chosen = np.take_along_axis(scores, experts, axis=1)
        shares = chosen / chosen.sum(axis=1, keepdims=True)
        if np.allclose(weights / weights.sum(axis=1, keepdims=True), shares, rtol=GATE_TOLERANCE, atol=1e-6):
            return scores.astype(np.float32), gate
    return candidates["softmax"].astype(np.float32), "unknown"


def _scores(logits: Floats) -> dict[Gate, NDArray[np.float64]]:
    """[T, E] of each function that a gate may be."""
    wide = logits.astype(np.float64)
    powers = np.exp(wide - wide.max(axis=1, keepdims=True))
    return {"softmax": powers / powers.sum(axis=1, keepdims=True), "sigmoid": 1 / (1 + np.exp(-wide))}
