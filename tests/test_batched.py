"""A batch padded on the left, for real: each row against its run alone and against transformers' own `generate`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from inference.batched import BatchedRun, batched_run, left_padded
from inference.engine import record
from inference.errors import RequestError
from inference.forward import Forward
from inference.models import LoadedModel
from inference.request import GenerationRequest
from inference.sampling import SamplingParams
from tests.embedded import embedded
from tests.scripted import CONTEXT, tiny_model
from tests.tiny import N_NEW, NAMES, PROMPT, ask, build, loaded

PROMPTS = (PROMPT, PROMPT[3:8], tuple((53 * i + 7) % 250 for i in range(9)))
# Its indexer picks the highest-scored keys before padding is masked, so that padding takes places of real keys.
COUNTS_PADDING = {"deepseek_v32"}


def in_batch(found: BatchedRun) -> list[list[int]]:
    return [[token.id for token in row.tokens] for row in found.rows]


def alone(model: LoadedModel, requests: list[GenerationRequest]) -> list[list[int]]:
    """What the engine chooses for each request in a run of its own."""
    return [[step.token_id for step in record(model, one).steps] for one in requests]


def generated(name: str) -> list[list[int]]:
    """The new tokens of transformers' own `generate` on the batch, padded on the left with token 0."""
    longest = max(len(prompt) for prompt in PROMPTS)
    padded = [[0] * (longest - len(prompt)) + list(prompt) for prompt in PROMPTS]
    mask = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in PROMPTS]
    settings = {"max_new_tokens": N_NEW, "do_sample": False, "pad_token_id": 0}
    ids = build(name).generate(torch.tensor(padded), attention_mask=torch.tensor(mask), **settings)
    return ids[:, longest:].tolist()


@pytest.mark.parametrize("name", sorted(set(NAMES) - COUNTS_PADDING))
def test_every_row_says_what_it_says_alone_and_what_generate_says(name: str) -> None:
    requests = [ask(prompt) for prompt in PROMPTS]
    found = batched_run(loaded(name), requests)
    assert found is not None
    assert in_batch(found) == alone(loaded(name), requests) == generated(name)
    assert [row.parting for row in found.rows] == [None] * 3
    # another order of adding up; a position fault moves logits by 0.1 and more. gpt-oss loses digits in its experts
    assert max(row.difference for row in found.rows) < 1e-3
    assert (found.length, len(found.seconds)) == (13, N_NEW)


@pytest.mark.parametrize("name", COUNTS_PADDING)
def test_a_model_that_counts_padding_gives_what_generate_gives_and_its_rows_say_where_they_part(name: str) -> None:
    found = batched_run(loaded(name), [ask(prompt) for prompt in PROMPTS])
    assert found is not None
    assert in_batch(found) == generated(name)
    assert found.rows[0].parting is None  # the longest has no padding
    for row in found.rows[1:]:
        assert row.parting is not None
        at = row.parting.step
        assert row.tokens[:at] == row.alone[:at]
        assert row.tokens[at] != row.alone[at]
        assert row.difference >= row.parting.difference > 0.1


def test_each_row_draws_with_its_own_seed() -> None:
    requests = [ask(p, sampling=SamplingParams(temperature=1.5, top_k=40, seed=i)) for i, p in enumerate(PROMPTS)]
    found = batched_run(loaded("gpt2"), requests)
    assert found is not None
    assert in_batch(found) == alone(loaded("gpt2"), requests)
    assert in_batch(found) != generated("gpt2")


def test_rows_end_when_they_would_alone_and_the_batch_when_the_last_has() -> None:
    requests = [ask(prompt, max_new_tokens=n) for prompt, n in zip(PROMPTS, (6, 12, 9), strict=True)]
    model = loaded("llama")
    end = alone(model, requests)[1][4]
    model = replace(model, eos_ids=(end,))
    expected = alone(model, requests)
    assert expected[1][-1] == end
    assert len(expected[1]) <= 5
    found = batched_run(model, requests)
    assert found is not None
    assert in_batch(found) == expected
    assert len(found.seconds) == max(len(row) for row in expected)


class Nudged(Forward):
    """Adds 100 to the logit of token 7 of the second row of a batch, at its third pass."""

    def __init__(self, real: Forward) -> None:
        super().__init__(real.model, real.eager_weights)
        self.passes = 0

    def rows(self, ids, cache, seen=None) -> torch.Tensor:
        logits = super().rows(ids, cache, seen).clone()
        logits[1, 7] += 100.0 if self.passes == 2 else 0.0
        self.passes += 1
        return logits


def test_a_row_that_parts_says_where_how_far_and_how_close_the_two_tokens_were() -> None:
    model = replace(loaded("llama"), forward=Nudged(loaded("llama").forward))
    requests = [ask(prompt) for prompt in PROMPTS]
    found = batched_run(model, requests)
    assert found is not None
    parting = found.rows[1].parting
    assert parting is not None
    assert parting.step == 2
    assert found.rows[1].tokens[2].id == 7
    logits = record(loaded("llama"), requests[1]).steps[2].logits.values
    assert parting.gap == pytest.approx(float(logits.max() - logits[7]), abs=1e-4)
    assert parting.difference == pytest.approx(100, abs=1e-3)
    assert [row.parting for row in (found.rows[0], found.rows[2])] == [None, None]
    assert [token.id for token in found.rows[1].alone] == alone(loaded("llama"), requests)[1]  # goes its own way


def test_padding_stands_on_the_left_and_is_not_seen() -> None:
    ids, seen = left_padded([np.array([5, 6, 7]), np.array([9])])
    assert ids[0].tolist() == [5, 6, 7]
    assert ids[1, -1] == 9
    assert seen.tolist() == [[True, True, True], [False, False, True]]


def test_the_times_are_those_of_the_batchs_passes() -> None:
    ticks = iter(np.arange(0.0, 100.0, 0.5))
    shares: list[float] = []
    requests = [ask(PROMPT[:4], max_new_tokens=2), ask(PROMPT[:2], max_new_tokens=4)]
    found = batched_run(tiny_model(), requests, shares.append, clock=lambda: float(next(ticks)))
    assert found is not None
    assert found.seconds == (0.5,) * 4
    assert shares == [0.25, 0.5, 0.75, 1.0]
    assert [len(row.alone_s) for row in found.rows] == [2, 4]
    assert found.place.model == "tiny"


def test_a_batch_stops_before_its_next_pass_when_it_is_cancelled() -> None:
    shares: list[float] = []
    assert batched_run(tiny_model(), [ask(PROMPT[:4])], shares.append, lambda: len(shares) == 2) is None
    assert len(shares) == 2


@pytest.mark.parametrize(
    ("requests", "said"),
    [
        ([], "There are 0 requests; a batch takes 1 to 16."),
        ([ask(PROMPT)] * 17, "There are 17 requests"),
        ([ask(PROMPT, stop_strings=("x",))], "Stop strings are not looked for in a batch."),
        ([ask(())], "The prompt is empty."),
        (
            [ask(tuple(range(60)), max_new_tokens=2), ask(PROMPT, max_new_tokens=20)],
            f"Padded to the longest prompt, the batch needs 80 positions; tiny reads at most {CONTEXT}.",
        ),
    ],
)
def test_what_cannot_be_batched_is_refused_before_the_model_is_called(requests, said) -> None:
    with pytest.raises(RequestError, match=said):
        batched_run(tiny_model(), requests)


def test_the_embedded_models_rows_say_what_they_say_alone() -> None:
    prompts = ("What is gravity?", "Name three colours of the rainbow, please.", "Hi")
    requests = [
        GenerationRequest(prompt=p, chat=True, max_new_tokens=12, sampling=SamplingParams(greedy=True)) for p in prompts
    ]
    found = batched_run(embedded(), requests)
    assert found is not None
    assert in_batch(found) == alone(embedded(), requests)
    assert len({len(row.prompt) for row in found.rows}) == 3
    assert max(row.difference for row in found.rows) < 2e-3
