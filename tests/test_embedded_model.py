"""The embedded model answers for real, as transformers' own `generate` does from the GGUF file's weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from inference import GenerationRequest, RecordOptions, SamplingParams
from inference.branch import branch, find_token
from inference.conversion import converted
from inference.engine import generate, record
from inference.errors import RequestError, TraceError
from inference.head import with_lens
from inference.sources import find
from tests.embedded import MODEL_ID, embedded, gravity


@pytest.fixture(scope="module")
def reference():
    """The converted checkpoint, loaded by transformers alone."""
    folder = converted(find(MODEL_ID).path, lambda _: pytest.fail("it was converted when it was loaded"))
    embedded()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    return model.eval(), AutoTokenizer.from_pretrained(folder)


def test_it_answers_what_gravity_is_in_the_words_that_generate_gives() -> None:
    trace = gravity()
    assert trace.text == (
        "Gravity is a fundamental concept in physics that describes the curvature of spacetime caused by the presence"
        " of mass. It's a"
    )
    assert (trace.n_prompt, trace.finish.reason, trace.model.attention) == (34, "length", "recorded")


def test_its_greedy_tokens_logits_and_weights_equal_transformers(reference) -> None:
    model, _ = reference
    trace = gravity()
    ids = torch.tensor([[t.id for t in trace.prompt_tokens]])
    with torch.no_grad():
        expected = model.generate(
            ids, do_sample=False, max_new_tokens=24, output_logits=True, return_dict_in_generate=True
        )
        whole = model(expected.sequences[:, :-1], output_attentions=True)
    assert [t.id for t in trace.tokens] == expected.sequences[0].tolist()
    for step, logits in zip(trace.steps, expected.logits, strict=True):
        # float32, 30 layers, another attention kernel: rounding of logits up to about 25
        np.testing.assert_allclose(step.logits.values, logits[0].numpy(), atol=2e-3)
    for layer in (0, 13, 29):
        eager = whole.attentions[layer][0].numpy()
        np.testing.assert_allclose(trace.attention(0, layer), eager[:, :34, :34], atol=2e-5)
        np.testing.assert_allclose(trace.attention(20, layer)[:, 0], eager[:, 53, :54], atol=2e-5)


def test_its_prompt_is_what_the_chat_template_writes(reference) -> None:
    _, tokenizer = reference
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is gravity?"}], tokenize=False, add_generation_prompt=True
    )
    assert b"".join(t.data for t in gravity().prompt_tokens).decode() == text
    assert gravity().prompt_tokens[0].special


@pytest.mark.parametrize(
    "text",
    [
        "小猫跑了一天，它很",
        "def f(x):\n\treturn x**2\n",
        "👩‍👩‍👧 🙂",
        "مرحبا",
        "<b>x</b> $y$ *z* :smile: </script>",
        "a\x00b",
        "  in  1999, 12 ",
    ],
)
def test_the_bytes_of_its_tokens_join_to_the_text_as_typed(text: str) -> None:
    ids = embedded().tokenizer.encode_text(text)
    vocabulary = embedded().tokenizer.vocabulary
    assert b"".join(vocabulary.token(i).data for i in ids).decode() == text


def test_digits_are_single_tokens_as_the_models_own_tokenizer_splits_them() -> None:
    vocabulary = embedded().tokenizer.vocabulary
    assert [vocabulary.token(i).display for i in embedded().tokenizer.encode_text("1999")] == ["1", "9", "9", "9"]


def test_kv_bytes_follow_the_formula_at_every_step() -> None:
    per_position = 2 * 30 * 3 * 64 * 4
    totals = gravity().kv.nbytes.sum(axis=1)
    assert totals.tolist() == [per_position * (34 + n) for n in range(24)]


def test_a_branch_shares_what_came_before_and_its_later_steps_are_a_run_of_their_own() -> None:
    request = GenerationRequest(
        prompt="小猫跑了一天，它很", max_new_tokens=8, sampling=SamplingParams(seed=5, temperature=0.9)
    )
    with generate(embedded(), request) as run:
        list(run)
        trace, cache = run.trace(), run.cache
        other = int(trace.steps[3].logits.top(4)[0][3])
        with branch(embedded(), trace, 3, other, cache) as branched:
            new = list(branched)
            leaf = branched.trace()
    assert cache.get_seq_length() == trace.n_prompt + 7  # the run's own cache did not grow
    assert [s.index for s in new] == [3, 4, 5, 6, 7]
    assert all(a is b for a, b in zip(leaf.steps[:3], trace.steps[:3], strict=True))
    assert leaf.steps[3].decision.forced
    assert leaf.steps[3].token_id == other
    # fed from scratch, the same prefix gives the same continuation
    prefix = tuple(t.id for t in leaf.tokens[: leaf.n_prompt + 4])
    alone = record(
        embedded(), GenerationRequest(prompt_ids=prefix, max_new_tokens=1, sampling=SamplingParams(greedy=True))
    )
    np.testing.assert_allclose(leaf.steps[4].logits.values, alone.steps[0].logits.values, atol=2e-3)
    assert [s.decision.draw_u for s in leaf.steps[4:]] == [s.decision.draw_u for s in trace.steps[4:]]


def test_a_branch_with_the_same_token_is_the_same_run_with_and_without_the_cache() -> None:
    trace = gravity()
    with branch(embedded(), trace, 20, trace.steps[20].token_id) as run:
        list(run)
    assert run.trace().text == trace.text
    assert run.trace().kv.positions[-1].tolist() == trace.kv.positions[-1].tolist()


def test_a_branch_that_cannot_be_true_is_refused() -> None:
    trace = gravity()
    with pytest.raises(RequestError, match="no step 24; the run has 24"):
        branch(embedded(), trace, 24, 5)
    with pytest.raises(RequestError, match="vocabulary ends at 49151"):
        branch(embedded(), trace, 2, 49152)
    with pytest.raises(RequestError, match="Step 5 lies past the 5 new tokens"):
        branch(embedded(), trace, 5, 5, max_new_tokens=5)
    few = GenerationRequest(prompt="a", max_new_tokens=2, record=RecordOptions(logits=5))
    partial = record(embedded(), few)
    with pytest.raises(TraceError, match="does not hold the logits"):
        branch(embedded(), partial, 1, 5)
    assert find_token(embedded(), " cat") == embedded().tokenizer.encode_text(" cat")[0]
    with pytest.raises(RequestError, match="is 2 tokens for this model; one is needed"):
        find_token(embedded(), "two words")


def test_a_prompt_of_100_000_characters_is_refused_with_the_limit_in_tokens() -> None:
    with pytest.raises(RequestError, match="reads at most 8192"):
        generate(embedded(), GenerationRequest(prompt="word " * 20_000))


def test_loading_the_converted_model_twice_shares_no_state() -> None:
    assert embedded().facts.n_params == 134_515_008
    assert embedded().generation_settings == {}
    assert embedded().eos_ids == (2,)


def test_its_logit_lens_is_norm_and_head_on_the_hidden_states_that_transformers_gives(reference) -> None:
    model, _ = reference
    trace = gravity()
    steps = with_lens(embedded(), trace.steps)
    with torch.no_grad():
        hidden = model(torch.tensor([[t.id for t in trace.tokens[:-1]]]), output_hidden_states=True).hidden_states
        for step in (steps[0], steps[11], steps[23]):
            at = trace.n_prompt - 1 + step.index
            for layer in (0, 14, 28):
                logits = model.lm_head(model.model.norm(hidden[layer + 1][0, at])).double()
                probs, ids = logits.softmax(-1).sort(descending=True)
                np.testing.assert_allclose(step.lens.probs[layer], probs[:20].numpy(), rtol=5e-3)
                assert step.lens.ids[layer, 0] == ids[0]
                np.testing.assert_allclose(
                    step.lens.chosen_probs[layer], logits.softmax(-1)[step.token_id].numpy(), rtol=5e-3
                )
