"""Greedy, random, temperature, top-k and top-p in two sentences each, with this position's own numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from charts.base import percent
from inference.errors import InferenceError
from inference.position import settled
from inference.sampling import SamplerStage, choose, run_pipeline
from inference.sampling_params import SamplingParams
from ui.components.sampling_lab import LabState
from ui.i18n import _, sentences
from ui.sampling.spot import Spot


def notes(spot: Spot, state: LabState) -> dict[str, str]:
    """An explanation by name of setting; where settings leave nothing, the control itself says what is wrong."""
    try:
        raw, now = stages(spot, SamplingParams())[0], _with(spot, state, greedy=False)
        return {
            "greedy": _greedy(spot, raw),
            "random": _random(spot, now, state.u),
            "temperature": _temperature(spot, state),
            "top_k": _top_k(spot, state),
            "top_p": _top_p(spot, state),
        }
    except InferenceError:
        return {}


def stages(spot: Spot, params: SamplingParams) -> list[SamplerStage]:
    """The pipeline of some settings at the spot."""
    context = spot.position.context
    return run_pipeline(spot.position.logits, params, context.ids.tolist(), context.n_prompt, context.eos_ids)


def _with(spot: Spot, state: LabState, **changes: Any) -> SamplerStage:
    return stages(spot, replace(state.params, **changes))[-1]


def _name(spot: Spot, token_id: int) -> str:
    return spot.tokens([token_id])[0]


def _greedy(spot: Spot, raw: SamplerStage) -> str:
    best = int(raw.probs.argmax())
    return sentences(
        [
            _("Greedy always takes the likeliest token and draws nothing."),
            _("Here that is “{token}”, with a raw probability of {prob}.", token=_name(spot, best),
              prob=percent(float(raw.probs[best]))),
        ]
    )  # fmt: skip


def _random(spot: Spot, now: SamplerStage, u: float) -> str:
    hit = choose([now], u)
    return sentences(
        [
            _("A random draw lays the probabilities end to end and takes the token on which the number u falls."),
            _("Here u = {u:.3f} falls on “{token}”, whose share is {prob}.", u=u, token=_name(spot, hit),
              prob=percent(float(now.probs[hit]))),
        ]
    )  # fmt: skip


def _temperature(spot: Spot, state: LabState) -> str:
    first = _("The scores are divided by the temperature: below 1 sharpens, above 1 flattens, the order stays.")
    at = state.params.temperature
    at = 1.0 if at is None else at
    before, after = (_with(spot, state, greedy=False, temperature=value) for value in (1.0, at))
    best = int(before.probs.argmax())
    if state.params.is_greedy or at == 1:
        return sentences([first, _("At 1 “{token}” keeps {prob}; at 0 it would be taken always.",
                                   token=_name(spot, best), prob=percent(float(before.probs[best])))])  # fmt: skip
    return sentences(
        [
            first,
            _("At {t:g} the share of “{token}” goes from {before} to {after}.", t=at, token=_name(spot, best),
              before=percent(float(before.probs[best])), after=percent(float(after.probs[best]))),
        ]
    )  # fmt: skip


def _top_k(spot: Spot, state: LabState) -> str:
    k = state.params.top_k
    first = _("Top-k keeps the k highest scores and shares out their probability anew.")
    if not k:
        return sentences([first, _("It is off: all {n:,} tokens stay.", n=len(spot.position.logits))])
    alone = stages(spot, SamplingParams(top_k=k))
    mass = float(alone[0].probs[alone[-1].kept].sum(dtype="float64"))
    return sentences(
        [first, _("The {k:,} highest here hold {mass} of the raw probability.", k=int(alone[-1].kept.sum()),
                  mass=percent(min(mass, 1.0)))]
    )  # fmt: skip


def _top_p(spot: Spot, state: LabState) -> str:
    p = state.params.top_p
    first = _("Top-p keeps the likeliest tokens until together they reach p: few where the model is sure.")
    if p is None or p >= 1:
        return sentences([first, _("It is off: nothing is cut from the tail.")])
    alone = SamplingParams(top_p=p, greedy=False)
    if not settled(spot.position, alone):
        return sentences([first, _("How many that is here, the recorded logits cannot tell.")])
    kept = int(stages(spot, alone)[-1].kept.sum())
    return sentences([first, _("Of the raw distribution, p = {p:g} keeps {n:,} here.", p=p, n=kept)])
