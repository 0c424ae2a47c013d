"""The sampling settings: their ranges, the order of their steps, and where each value in effect came from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from inference.errors import N_, SamplingError
from inference.sampling_steps import DRAWING, ORDERS, STEPS, Greedy, Step

GREEDY_BELOW = 1e-5  # vLLM's threshold: a temperature this low is greedy, and is not put into the formula


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """The sampling settings, named as in transformers; `None` means "not set" and acts as off.

    Attributes:
        greedy: take the highest score; the settings that shape a draw are then left out.
        temperature: divides the scores; 1 is off, at most 1e-5 is greedy.
        top_k: how many of the highest scores to keep; 0 is off.
        top_p: keep the likeliest tokens until their mass reaches p; 1 is off, 0 keeps one.
        min_p, typical_p, epsilon_cutoff, eta_cutoff, top_h: other ways to cut the tail.
        repetition_penalty: factor on tokens seen, the prompt included; 1 is off.
        presence_penalty, frequency_penalty: subtracted for generated tokens; 0 is off.
        no_repeat_ngram_size, bad_words_ids, suppress_tokens, sequence_bias, min_new_tokens: bans and biases.
        seed: of the uniform numbers; `None` draws one, which the trace records.
        order: `"transformers"`, `"llama.cpp"`, `"vllm"`, or a tuple of step names.

    Raises:
        SamplingError: a setting is out of its range; the message names the setting and the range.
    """

    greedy: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    epsilon_cutoff: float | None = None
    eta_cutoff: float | None = None
    top_h: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    no_repeat_ngram_size: int | None = None
    bad_words_ids: tuple[tuple[int, ...], ...] = ()
    suppress_tokens: tuple[int, ...] = ()
    sequence_bias: tuple[tuple[tuple[int, ...], float], ...] = ()
    min_new_tokens: int | None = None
    seed: int | None = None
    order: str | tuple[str, ...] = "transformers"

    def __post_init__(self) -> None:
        for name, (low, high, whole) in RANGES.items():
            _check_range(name, getattr(self, name), low, high, whole)
        if self.repetition_penalty == 0:
            raise SamplingError(N_("repetition_penalty must be above 0."), N_("1 turns it off."))
        object.__setattr__(self, "bad_words_ids", _sequences("bad_words_ids", self.bad_words_ids))
        object.__setattr__(self, "suppress_tokens", _ids("suppress_tokens", self.suppress_tokens))
        object.__setattr__(self, "sequence_bias", _biases(self.sequence_bias))
        self.steps()

    @property
    def is_greedy(self) -> bool:
        """Whether the highest score is taken: asked for, or because the temperature is at most 1e-5."""
        return bool(self.greedy) or (self.temperature is not None and self.temperature <= GREEDY_BELOW)

    def steps(self) -> tuple[tuple[str, Step], ...]:
        """The active steps by name, in the order asked for."""
        steps = []
        for name in _ordered_names(self.order):
            step = None if self.is_greedy and name in DRAWING else STEPS[name](self)
            if step is not None:
                steps.append((name, step))
        if self.is_greedy:
            return (*steps, ("greedy", Greedy()))
        missing = [n for n, make in STEPS.items() if make(self) is not None and n not in dict(steps)]
        if missing:
            raise SamplingError(
                N_("The order of steps leaves out {names}, which is set."),
                N_("Name every setting that is in use, or turn it off."),
                names=tuple(missing),
            )
        return tuple(steps)


# smallest and largest value (None: no limit), and whether it must be a whole number
RANGES: Mapping[str, tuple[float | None, float | None, bool]] = {
    "temperature": (0, None, False),
    "top_k": (0, None, True),
    "top_p": (0, 1, False),
    "min_p": (0, 1, False),
    "typical_p": (0, 1, False),
    "epsilon_cutoff": (0, 1, False),
    "eta_cutoff": (0, 1, False),
    "top_h": (0, 1, False),
    "repetition_penalty": (0, None, False),
    "presence_penalty": (None, None, False),
    "frequency_penalty": (None, None, False),
    "no_repeat_ngram_size": (0, None, True),
    "min_new_tokens": (0, None, True),
    "seed": (0, 2**63 - 1, True),
}

# the value that turns a setting off, where it is not the same as leaving it out
OFF: Mapping[str, Any] = {
    "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0, "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "min_new_tokens": 0,
}  # fmt: skip


def resolve(params: SamplingParams, checkpoint: Mapping[str, Any]) -> tuple[SamplingParams, dict[str, str]]:
    """The settings in effect and where each came from: `"yours"`, `"checkpoint"` or `"default"`.

    The caller's settings win over the checkpoint's `generation_config`, and both over "off", as in transformers.
    Without a word from either on `greedy`, a caller who set something that shapes a draw, or a seed, wants a draw;
    otherwise decoding is greedy, as transformers' `do_sample=False`.
    """
    given = {f.name: getattr(params, f.name) for f in fields(params) if getattr(params, f.name) not in (None, ())}
    brought = {name: value for name, value in checkpoint.items() if name not in given}
    values, origin = {**brought, **given}, {}
    if "greedy" not in given and any(name in given for name in (*DRAWING, "seed")):
        values["greedy"], origin["greedy"] = False, "yours"
    elif "greedy" not in values:
        values["greedy"], origin["greedy"] = True, "default"
    for field in fields(params):
        source = "yours" if field.name in given else "checkpoint" if field.name in brought else "default"
        origin.setdefault(field.name, source)
    if params.order == "transformers":
        origin["order"] = "default"
    return replace(params, **values), origin


def _ordered_names(order: str | tuple[str, ...]) -> tuple[str, ...]:
    if isinstance(order, str):
        if order in ORDERS:
            return ORDERS[order]
        raise SamplingError(
            N_("There is no order of steps called {order}."),
            N_("Use one of {orders}, or a tuple of step names."),
            order=order,
            orders=tuple(ORDERS),
        )
    unknown = [name for name in order if name not in STEPS]
    if unknown or len(set(order)) < len(order):
        raise SamplingError(
            N_("The order of steps is not valid: {names}."),
            N_("Name each step once; the steps are {steps}."),
            names=tuple(unknown or order),
            steps=tuple(STEPS),
        )
    return tuple(order)


def _check_range(name: str, value: Any, low: float | None, high: float | None, whole: bool) -> None:
    if value is None:
        return
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    fits = number and math.isfinite(value) and (not whole or float(value).is_integer())
    if fits and (low is None or value >= low) and (high is None or value <= high):
        return
    if high is not None:
        what = (
            N_("{name} must be a whole number from {low} to {high}, not {value}.")
            if whole
            else N_("{name} must be a number from {low} to {high}, not {value}.")
        )
    elif low is not None:
        what = (
            N_("{name} must be a whole number of at least {low}, not {value}.")
            if whole
            else N_("{name} must be a number of at least {low}, not {value}.")
        )
    else:
        what = N_("{name} must be a number, not {value}.")
    raise SamplingError(what, name=name, low=low, high=high, value=repr(value))


def _ids(name: str, ids: Sequence[int]) -> tuple[int, ...]:
    if any(isinstance(i, bool) or not isinstance(i, (int, np.integer)) or i < 0 for i in ids):
        raise SamplingError(N_("{name} must hold token ids, which are whole numbers of at least 0."), name=name)
    return tuple(int(i) for i in ids)


def _sequences(name: str, sequences: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    if any(len(sequence) == 0 for sequence in sequences):
        raise SamplingError(N_("{name} must not hold an empty sequence."), name=name)
    return tuple(_ids(name, sequence) for sequence in sequences)


def _biases(biases: Sequence[tuple[Sequence[int], float]]) -> tuple[tuple[tuple[int, ...], float], ...]:
    _sequences("sequence_bias", [sequence for sequence, _ in biases])
    for _, bias in biases:
        _check_range("sequence_bias", bias, None, None, False)
    return tuple((_ids("sequence_bias", sequence), float(bias)) for sequence, bias in biases)
