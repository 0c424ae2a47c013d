"""Another token at some step, and the run from there on: what would have followed?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from inference.counterfactual import choices, parting
from inference.engine import Generation
from inference.errors import N_, RequestError
from inference.forward import Cache, cache_prefix
from inference.loop import Start
from inference.models import LoadedModel
from inference.request import GenerationRequest
from inference.sampling_params import OFF, SamplingParams
from inference.trace import Trace
from inference.walk import check_model


def branch(
    model: LoadedModel,
    trace: Trace,
    step: int,
    token_id: int,
    cache: Cache | None = None,
    max_new_tokens: int | None = None,
) -> Generation:
    """Leave a run at `step` with another token, and go on from there; iterate for the steps from that one on.

    The new run shares the records before `step`, its own record of `step` has the token marked as forced, and later
    steps use the same uniform numbers as the run it leaves, so that the token is the only difference.

    Args:
        model: the model that made `trace`.
        cache: the KV cache of the run it leaves (`Generation.cache`), which is copied; without it, or where its
            layers have dropped positions, the tokens up to `step` are fed again.
        max_new_tokens: of the whole new run, the shared steps included; as before if `None`.

    Raises:
        TraceError: the step's logits are not all there, so its figures would not be true.
        RequestError: no such step or token, or a step past `max_new_tokens`.
    """
    max_new_tokens = max_new_tokens or trace.request.max_new_tokens
    _check(model, trace, step, token_id, max_new_tokens)
    request = _request(trace, trace.sampling, max_new_tokens)
    copied = _copied(model, trace, step, cache)
    return Generation(model, request, start=Start(trace.steps[:step], trace.steps[step], token_id, copied))


def with_settings(model: LoadedModel, trace: Trace, params: SamplingParams, cache: Cache | None = None) -> Generation:
    """The run that other settings make of the same prompt and the same uniform numbers.

    Where the run holds all logits, the steps before the texts part are shared (with what the new settings would have
    decided there), and the model runs from the step where they do; tokens put in by hand stay. Otherwise the prompt is
    run again.

    Args:
        params: the settings; what they leave open is off, whatever the checkpoint asks for. Their seed is not used.
        cache: as for `branch`.

    Raises:
        RequestError: the settings would have chosen the same tokens; there is nothing to run.
        TraceError: the run was made by another model, or holds tokens put in by hand but not all logits.
    """
    check_model(model, trace)
    found = choices(trace, params)
    at = parting(found)
    if at is None and all(choice.decision is not None for choice in found):
        raise RequestError(
            N_("With these settings the run chooses the same tokens at every step."), N_("Change a setting first.")
        )
    request = _request(trace, _explicit(params, model, trace.sampling.seed), trace.request.max_new_tokens)
    whole = all(step.logits is not None and step.logits.whole for step in trace.steps[: (at or 0) + 1])
    if at is None or not whole:
        if any(choice.forced for choice in found):
            trace.logits(0)
        return Generation(model, request)
    shared = zip(trace.steps[:at], found[:at], strict=True)
    steps = tuple(replace(step, decision=c.decision) for step, c in shared if c.decision is not None)
    return Generation(model, request, start=Start(steps, trace.steps[at], None, _copied(model, trace, at, cache)))


def _explicit(params: SamplingParams, model: LoadedModel, seed: int | None) -> SamplingParams:
    """The settings with nothing left open that the checkpoint would fill in."""
    off = {name: OFF[name] for name in model.generation_settings if getattr(params, name) is None and name in OFF}
    return replace(params, greedy=params.is_greedy, seed=seed, **off)


def _request(trace: Trace, sampling: SamplingParams, max_new_tokens: int) -> GenerationRequest:
    return replace(
        trace.request,
        prompt_ids=tuple(token.id for token in trace.prompt_tokens),
        max_new_tokens=max_new_tokens,
        sampling=sampling,
        ignore_eos=not trace.eos_ids,
    )


def _copied(model: LoadedModel, trace: Trace, step: int, cache: Cache | None) -> Cache | None:
    """The positions of a cache up to a step, as a cache of the new run's own."""
    return None if cache is None else cache_prefix(cache, model.forward.new_cache(), trace.n_prompt + step)


def _check(model: LoadedModel, trace: Trace, step: int, token_id: int, max_new_tokens: int) -> None:
    if not 0 <= step < len(trace.steps):
        raise RequestError(N_("There is no step {step}; the run has {n}."), step=step, n=len(trace.steps))
    if step >= max_new_tokens:
        raise RequestError(
            N_("Step {step} lies past the {n} new tokens that a run may have."),
            N_("Choose an earlier step, or allow more new tokens."),
            step=step,
            n=max_new_tokens,
        )
    if not 0 <= token_id < model.facts.vocab_size:
        raise RequestError(
            N_("There is no token {token_id}; the vocabulary ends at {last}."),
            token_id=token_id,
            last=model.facts.vocab_size - 1,
        )
    check_model(model, trace)
    trace.logits(step)


def find_token(model: LoadedModel, text: str) -> int:
    """The one token that spells `text`.

    Raises:
        RequestError: the tokenizer needs several tokens for it; the message names how many.
    """
    ids = np.array(model.tokenizer.encode_text(text))
    if len(ids) != 1:
        raise RequestError(
            N_("{text} is {n} tokens for this model; one is needed."),
            N_("Type less, or pick from the list."),
            text=text,
            n=len(ids),
        )
    return int(ids[0])
