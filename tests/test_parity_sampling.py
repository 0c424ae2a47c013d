"""The columns of the sampling lab against transformers' own `generate`: the same model, settings and contexts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from inference.conversion import converted
from inference.engine import record
from inference.models import LoadedModel
from inference.position import at_step
from inference.request import GenerationRequest
from inference.sampling import SamplingParams, run_pipeline
from inference.sources import find
from tests.embedded import MODEL_ID, embedded
from tests.tiny import PROMPT, build, loaded

N_NEW = 6
OFF = {"top_k": 0, "top_p": 1.0, "temperature": 1.0, "do_sample": True}
SETTINGS = [
    {"temperature": 0.7},
    {"top_k": 12, "temperature": 1.3},
    {"temperature": 0.8, "top_k": 50, "top_p": 0.9, "repetition_penalty": 1.3},
    {"min_p": 0.05, "typical_p": 0.8, "no_repeat_ngram_size": 2},
    {"epsilon_cutoff": 0.01, "eta_cutoff": 0.02, "temperature": 1.2},
]


def columns_and_scores(
    model: LoadedModel, theirs, prompt: tuple[int, ...], settings: dict, greedy: bool = False
) -> None:
    """Compare raw and final column of every step of what `generate` wrote, in the contexts that it wrote."""
    asked = {**OFF, **settings} if not greedy else {"do_sample": False, **settings}
    torch.manual_seed(3)
    out = theirs.generate(
        torch.tensor([prompt]), max_new_tokens=N_NEW, return_dict_in_generate=True, output_scores=True,
        output_logits=True, **asked,
    )  # fmt: skip
    params = SamplingParams(greedy=greedy, **settings)
    for step, (raw, scores) in enumerate(zip(out.logits, out.scores, strict=True)):
        context = out.sequences[0, : len(prompt) + step].tolist()
        stages = run_pipeline(raw[0].numpy(), params, context, len(prompt), model.eos_ids)
        last = stages[-2] if greedy else stages[-1]  # generate takes the highest score only after its scores
        np.testing.assert_array_equal(stages[0].logits, raw[0].numpy())
        np.testing.assert_array_equal(last.kept, np.isfinite(scores[0].numpy()))
        np.testing.assert_allclose(last.logits[last.kept], scores[0].numpy()[last.kept], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(last.probs, scores[0].softmax(-1).numpy(), atol=1e-6)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2"])
def test_the_columns_of_tiny_models_are_the_logits_and_scores_of_generate(name: str, settings: dict) -> None:
    columns_and_scores(loaded(name), build(name), PROMPT, settings)


def test_a_penalty_acts_on_greedy_scores_as_in_generate() -> None:
    columns_and_scores(loaded("llama"), build("llama"), PROMPT, {"repetition_penalty": 1.5}, greedy=True)


@pytest.mark.parametrize("settings", SETTINGS[:3], ids=str)
def test_the_columns_of_the_embedded_model_are_the_logits_and_scores_of_generate(settings: dict) -> None:
    trace = record(embedded(), GenerationRequest(prompt="What is gravity?", chat=True, max_new_tokens=1))
    folder = converted(find(MODEL_ID).path, lambda _: pytest.fail("it was converted when it was loaded"))
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    prompt = tuple(token.id for token in trace.prompt_tokens)
    columns_and_scores(embedded(), theirs, prompt, settings)
    # and what the page shows at the run's own step starts from the very logits that generate gives
    with torch.no_grad():
        logits = theirs(torch.tensor([prompt])).logits[0, -1].numpy()
    np.testing.assert_allclose(at_step(trace, 0).logits, logits, atol=2e-4)
