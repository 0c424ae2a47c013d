"""Expert tokens: a router model whose next token says which model shall answer a request.

The router is run like any other model, one token long; what is here reads such a run. Its config names, under
`expert_models`, the model that each of these tokens stands for. The settings act on the whole vocabulary, as for any
token, so the choice may also fall on a token that stands for no model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from inference.errors import N_, ModelError, TraceError
from inference.request import GenerationRequest
from inference.sampling import SamplerStage, SamplingParams, decide, run_pipeline
from inference.sampling_steps import Context
from inference.tokens import Token, Vocabulary
from inference.trace import Floats, Trace

KEY = "expert_models"


@dataclass(frozen=True, slots=True)
class Expert:
    """A model that can be asked, by its catalogue id, and the router's token that stands for it."""

    token: Token
    model: str


@dataclass(frozen=True, slots=True)
class Span:
    """The part of [0, 1) in which a draw chooses an expert, or where that is `None`, one of the other tokens."""

    expert: Expert | None
    start: float
    end: float


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """A router's choice for one request.

    Attributes:
        experts: E of them, in the order of their token ids.
        stages: the distribution over the vocabulary, raw and after each setting; see `inference.sampling`.
        token: that was chosen.
        draw_u: the uniform number that it was drawn with; `None` where decoding was greedy.
    """

    experts: tuple[Expert, ...]
    stages: tuple[SamplerStage, ...]
    token: Token
    draw_u: float | None

    @property
    def chosen(self) -> Expert | None:
        """The expert whose token was chosen, or `None` where it is another token."""
        return next((expert for expert in self.experts if expert.token.id == self.token.id), None)

    @property
    def ids(self) -> NDArray[np.int64]:
        """[E] the experts' token ids."""
        return np.array([expert.token.id for expert in self.experts], dtype=np.int64)

    def shares(self, stage: int) -> Floats:
        """[E + 1] probabilities of the experts' tokens after a stage, then that of all other tokens together."""
        probs = self.stages[stage].probs
        others = np.delete(probs, self.ids).sum(dtype=np.float64)
        return np.append(probs[self.ids], np.float32(others)).astype(np.float32)

    def spans(self) -> tuple[Span, ...]:
        """[0, 1) cut in the order of probability, as `inference.sampling.choose` cuts it; others beside each other
        are one span."""
        probs, by_id = self.stages[-1].probs, {expert.token.id: expert for expert in self.experts}
        kept = np.flatnonzero(self.stages[-1].kept)
        order = kept[np.argsort(-probs[kept], kind="stable")]
        ends, found = np.cumsum(probs[order], dtype=np.float64), list[Span]()
        for token_id, start, end in zip(order.tolist(), [0.0, *ends[:-1].tolist()], ends.tolist(), strict=True):
            expert = by_id.get(token_id)
            if expert is None and found and found[-1].expert is None:
                start = found.pop().start
            found.append(Span(expert, start, end))
        return tuple(found)


def expert_models(folder: Path) -> Mapping[str, str]:
    """Catalogue ids by the text of the token that stands for each, from a router's `config.json`.

    Raises:
        ModelError: the model is no router.
    """
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    models = config.get(KEY)
    if not models:
        raise ModelError(N_("The config of {name} names no expert tokens, so it is no router."), name=folder.name)
    return {str(token): str(model) for token, model in models.items()}


def experts_of(models: Mapping[str, str], vocabulary: Vocabulary) -> tuple[Expert, ...]:
    """The experts whose tokens a vocabulary holds, in the order of their ids."""
    special = [vocabulary.token(token_id) for token_id in sorted(vocabulary.special)]
    return tuple(Expert(token, models[text]) for token in special if (text := token.data.decode()) in models)


def route_of(trace: Trace, models: Mapping[str, str], params: SamplingParams | None = None) -> Route:
    """What a router's run chose at its first step, and among what.

    Args:
        models: see `expert_models`.
        params: what these settings would choose with their seed, without running the model again; the run's own if
            `None`.

    Raises:
        TraceError: the run has no step, or does not hold its logits; or its vocabulary has none of the tokens.
        SamplingError: the settings leave no token.
    """
    if not trace.steps:
        raise TraceError(N_("This run was stopped before its first token, so no expert was chosen."))
    experts = experts_of(models, trace.vocabulary)
    if not experts:
        raise TraceError(N_("The vocabulary of {name} has no expert tokens."), name=trace.model.name)
    params, logits = params or trace.sampling, trace.logits(0).values
    context = Context(trace.context_ids(0), trace.n_prompt, trace.eos_ids)
    u = float(np.random.default_rng(params.seed).random())  # as the loop draws its first
    decision = decide(logits, params.steps(), context, u)
    found = run_pipeline(logits, params, context.ids.tolist(), context.n_prompt, context.eos_ids)
    stages = tuple(stage for stage in found if stage.name != "greedy")
    return Route(experts, stages, trace.vocabulary.token(decision.token_id), decision.draw_u)


def handed_over(trace: Trace, has_chat_template: bool, max_new_tokens: int) -> GenerationRequest:
    """The request of a router's run, as it is put to the model that was chosen."""
    prompt, options = trace.request.prompt, trace.request.record
    return GenerationRequest(prompt, chat=has_chat_template, max_new_tokens=max_new_tokens, record=options)
