"""Teacher forcing against transformers' own loss, and against figures worked out by hand."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from inference import forcing
from inference.conversion import converted
from inference.errors import NumericalError, RequestError
from inference.forcing import force, text_ids
from inference.sources import find
from tests.embedded import MODEL_ID, embedded
from tests.scripted import CONTEXT, scripted, tiny_model
from tests.tiny import NAMES, WHOLE, build, loaded, own_attention

TEXT = tuple((53 * i + 7) % 250 for i in range(23))  # longer than two windows
SPARSE = {"deepseek_v32"}  # the keys it attends to are the best of many equal scores, and which of them is left open


@cache
def from_transformers(name: str) -> tuple[float, np.ndarray]:
    """The loss and the logits [T, V] that a never wrapped model gives for `TEXT` as its own labels."""
    ids = torch.tensor([TEXT])
    with torch.no_grad():
        out = build(name, own_attention(name))(ids, labels=ids, use_cache=False)
    return float(out.loss), out.logits[0].float().numpy()


@pytest.mark.parametrize("name", NAMES)
def test_the_mean_loss_is_the_one_that_transformers_computes_from_labels(name: str) -> None:
    loss, logits = from_transformers(name)
    found = force(loaded(name), TEXT)
    assert found.mean_loss == pytest.approx(loss, rel=2e-5)
    assert found.perplexity == pytest.approx(math.exp(loss), rel=1e-4)
    each = torch.nn.functional.cross_entropy(torch.from_numpy(logits[:-1]), torch.tensor(TEXT[1:]), reduction="none")
    np.testing.assert_allclose(found.losses, each.numpy(), atol=2e-4)  # logits of about 10 through other kernels


@pytest.mark.parametrize("name", sorted(set(NAMES) - WHOLE - SPARSE))
def test_the_text_is_fed_in_parts_and_the_parts_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = force(loaded(name), TEXT)
    monkeypatch.setattr(forcing, "CHUNK", 5)
    shares: list[float] = []
    parts = force(loaded(name), TEXT, shares.append)
    assert shares == pytest.approx([5 / 23, 10 / 23, 15 / 23, 20 / 23, 1])
    np.testing.assert_allclose(parts.losses, whole.losses, atol=2e-4)
    np.testing.assert_allclose(parts.entropy, whole.entropy, atol=2e-4)
    assert parts.top_ids[:, 0].tolist() == whole.top_ids[:, 0].tolist()


@pytest.mark.parametrize("name", ["gemma2", "gpt2", "llama", "mixtral"])
def test_ranks_alternatives_and_entropies_are_those_of_the_sorted_logits(name: str) -> None:
    _, logits = from_transformers(name)
    found = force(loaded(name), TEXT)
    order = np.argsort(-logits, axis=1)
    assert found.ranks.tolist() == [1 + order[t].tolist().index(TEXT[t + 1]) for t in range(22)]
    assert found.top_ids.tolist() == order[:, :5].tolist()
    spread = torch.distributions.Categorical(logits=torch.from_numpy(logits))
    np.testing.assert_allclose(found.entropy, spread.entropy().numpy(), atol=2e-4)
    best = np.take_along_axis(spread.probs.numpy(), found.top_ids, axis=1)
    np.testing.assert_allclose(found.top_probs, best, rtol=5e-4)


def test_figures_by_hand() -> None:
    with np.errstate(divide="ignore"):
        logits = np.log(np.array([[0.5, 0.25, 0.25, 0], [0.1, 0.2, 0.3, 0.4], [0.25, 0.25, 0.25, 0.25]])).astype("f4")
    logprobs, ranks, entropy, top, probs = forcing._score(logits, np.array([2, 0]), 0)
    np.testing.assert_allclose(np.exp(logprobs), [0.25, 0.1], rtol=1e-6)
    assert ranks.tolist() == [3, 4]  # equal ones stand in id order: 1 before 2
    np.testing.assert_allclose(entropy, [1.5 * math.log(2), 1.2798542, math.log(4)], rtol=1e-6)
    assert top.tolist() == [[0, 1, 2, 3], [3, 2, 1, 0], [0, 1, 2, 3]]
    np.testing.assert_allclose(probs, [[0.5, 0.25, 0.25, 0], [0.4, 0.3, 0.2, 0.1], [0.25] * 4], rtol=1e-6)


def test_a_model_that_guesses_evenly_is_as_perplexed_as_its_vocabulary_is_large() -> None:
    found = force(scripted(lambda call, logits: torch.zeros_like(logits)), TEXT)
    assert found.perplexity == pytest.approx(264, rel=1e-6)
    assert found.ranks.tolist() == [i + 1 for i in TEXT[1:]]


def test_a_later_token_changes_no_earlier_position() -> None:
    one, other = force(tiny_model(), TEXT), force(tiny_model(), (*TEXT[:12], 3, *TEXT[13:]))
    np.testing.assert_allclose(one.losses[:11], other.losses[:11], atol=1e-5)
    np.testing.assert_allclose(one.top_probs[:12], other.top_probs[:12], rtol=1e-4)
    assert np.abs(one.losses[12:] - other.losses[12:]).min() > 1e-4


def test_it_stops_between_parts_when_it_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forcing, "CHUNK", 5)
    shares: list[float] = []
    assert force(tiny_model(), TEXT, shares.append, lambda: len(shares) == 2) is None
    assert shares == pytest.approx([5 / 23, 10 / 23])


def test_the_logits_of_one_part_at_a_time_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forcing, "CHUNK_BYTES", 4 * 264 * 7)
    shapes = []
    force(scripted(lambda call, logits: shapes.append(tuple(logits.shape)) or logits), TEXT)
    assert shapes == [(7, 264), (7, 264), (7, 264), (2, 264)]


@pytest.mark.parametrize(("n", "message"), [(0, "has 0 tokens"), (1, "has 1 tokens; scoring needs at least 2")])
def test_a_text_of_fewer_than_two_tokens_is_refused(n: int, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        force(tiny_model(), TEXT[:n])


def test_a_text_past_the_context_is_refused_with_both_numbers() -> None:
    with pytest.raises(
        RequestError, match=rf"has {CONTEXT + 3} tokens; tiny can score at most {CONTEXT}.* by 3 tokens"
    ):
        force(tiny_model(), [1] * (CONTEXT + 3))
    assert len(force(tiny_model(), [1] * CONTEXT).losses) == CONTEXT - 1


def test_a_model_that_must_read_a_text_whole_refuses_one_whose_logits_would_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forcing, "WHOLE_BYTES", 4 * 264 * 20)
    with pytest.raises(RequestError, match="can score at most 20"):
        force(loaded("jamba"), TEXT)
    assert len(force(loaded("jamba"), TEXT[:20]).losses) == 19


def test_logits_that_are_no_numbers_are_named_by_their_position(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forcing, "CHUNK", 5)

    def script(call: int, logits: torch.Tensor) -> torch.Tensor:
        logits = logits.clone()
        logits[3 if call == 2 else 0] *= float("nan") if call == 2 else 1
        return logits

    with pytest.raises(NumericalError, match="position 13 "):
        force(scripted(script), TEXT)


def test_the_embedded_model_scores_a_text_as_transformers_does() -> None:
    model = embedded()
    ids = text_ids(model, "The cat sat on the mat. 小猫 <b>&amp;</b> $x$ 👩‍🚀\n" * 3)
    plain = AutoModelForCausalLM.from_pretrained(
        converted(find(MODEL_ID).path, lambda _: pytest.fail("it was converted when it was loaded")),
        dtype=torch.float32,
    ).eval()
    with torch.no_grad():
        loss = float(plain(torch.tensor([ids]), labels=torch.tensor([ids])).loss)
    found = force(model, ids)
    assert found.mean_loss == pytest.approx(loss, rel=1e-4)
    n = len(ids) // 3
    assert found.losses[2 * n :].mean() < found.losses[:n].mean() / 2  # by the third time it knows what comes
