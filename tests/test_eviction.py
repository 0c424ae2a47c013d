"""Dropping positions, against one full pass whose mask hides what had been dropped: transformers' own numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from inference.engine import record
from inference.errors import RequestError
from inference.eviction import Rule, run_policies
from inference.sampling import SamplingParams
from tests.tiny import N_NEW, PROMPT, ask, build, greedy, loaded

P = len(PROMPT)
FAMILIES = ["llama", "qwen3", "gpt2", "gpt_bigcode", "gpt_neox", "gptj", "granite", "mixtral", "olmo2", "opt", "phi"]
FAMILIES += ["smollm3", "stablelm", "deepseek_v3"]


def held_after(rule: Rule, n_steps: int) -> list[set[int]]:
    """Positions that are held after each step's pass and the drop, by the policies' definitions."""
    held, found = set(range(P)), []
    for step in range(n_steps):
        if step:
            held = held | {P + step - 1}
        if len(held) > rule.limit:
            newest = sorted(held)
            if rule.policy == "window":
                held = set(newest[-rule.limit :])
            elif rule.policy == "sinks":
                held = set(range(rule.sinks)) | set(newest[-(rule.limit - rule.sinks) :])
            elif rule.policy == "clear":
                held = set()
        found.append(held)
    return found


def masked_logprobs(name: str, rule: Rule, ids: list[int]) -> np.ndarray:
    """Log-probabilities [N] of the new tokens in one uncached pass with original positions: a prompt row is causal,
    the row of a new token sees what was held when it was fed, and itself."""
    fed = ids[:-1]
    visible = np.tri(len(fed), dtype=bool)
    for step, held in enumerate(held_after(rule, len(ids) - P)[:-1], start=1):
        visible[P + step - 1] = [at in held or at == P + step - 1 for at in range(len(fed))]
    mask = torch.where(torch.tensor(visible), 0.0, torch.finfo(torch.float32).min)[None, None]
    positions = torch.arange(len(fed))[None]
    with torch.no_grad():
        logits = build(name)(torch.tensor([fed]), attention_mask=mask, use_cache=False, position_ids=positions).logits[
            0
        ]
    logprobs = logits.double().log_softmax(dim=-1)[P - 1 :]
    return logprobs.gather(1, torch.tensor(ids[P:])[:, None])[:, 0].numpy()


RULES = [Rule("window", 9), Rule("sinks", 9, sinks=3), Rule("clear", 6)]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.policy)
def test_logprobs_are_those_of_a_full_pass_that_hides_what_was_dropped(name: str, rule: Rule) -> None:
    trace = greedy(name)
    found = run_policies(loaded(name), trace, [rule], N_NEW)
    assert found is not None
    expected = masked_logprobs(name, rule, [token.id for token in trace.tokens])
    np.testing.assert_allclose(found.runs[0].logprobs, expected, rtol=0, atol=5e-4)
    unlimited = np.array([step.decision.raw_logprob for step in trace.steps])
    np.testing.assert_allclose(found.unlimited.logprobs, unlimited, rtol=0, atol=1e-4)
    assert np.abs(found.runs[0].logprobs - unlimited).max() > 0.05  # what was dropped mattered


def test_places_that_stay_by_hand() -> None:
    assert Rule("window", 3).places(5).tolist() == [2, 3, 4]
    assert Rule("sinks", 3, sinks=1).places(5).tolist() == [0, 3, 4]
    assert Rule("sinks", 3, sinks=9).places(5).tolist() == [0, 1, 2]
    assert Rule("clear", 3).places(4).tolist() == []
    assert Rule("window", 3).places(3) is None
    assert Rule("none", 3).places(9) is None
    assert Rule("stop", 3).places(9) is None


def test_sizes_over_time_are_a_plateau_a_saw_tooth_and_an_early_end() -> None:
    rules = [Rule("window", 15), Rule("clear", 15), Rule("stop", 15)]
    found = run_policies(loaded("llama"), greedy("llama"), rules, 8)
    assert found is not None
    window, clear, stop = found.runs
    assert found.unlimited.positions.tolist() == [13, 14, 15, 16, 17, 18, 19, 20]
    assert window.positions.tolist() == [13, 14, 15, 15, 15, 15, 15, 15]
    assert window.dropped.tolist() == [0, 0, 0, 1, 1, 1, 1, 1]
    assert clear.positions.tolist() == [13, 14, 15, 0, 1, 2, 3, 4]
    assert clear.dropped.tolist() == [0, 0, 0, 16, 0, 0, 0, 0]
    assert stop.positions.tolist() == [13, 14, 15, 16]
    assert (stop.finish, len(stop.token_ids), stop.parted) == ("full", 4, None)
    assert np.isfinite(stop.logprobs[:4]).all()
    assert np.isnan(stop.logprobs[4:]).all()
    # 3 layers · 2 · 2 KV heads · 8 numbers · 4 bytes
    assert window.nbytes.tolist() == [held * 3 * 2 * 2 * 8 * 4 for held in window.positions]


def test_a_limit_that_is_never_reached_changes_nothing() -> None:
    trace = greedy("llama")
    found = run_policies(loaded("llama"), trace, [Rule("window", 100), Rule("stop", 100)], N_NEW)
    assert found is not None
    for run in (found.unlimited, *found.runs):
        assert list(run.token_ids) == [step.token_id for step in trace.steps]
        assert (run.parted, run.finish, run.text) == (None, "length", found.unlimited.text)


def test_a_drawn_run_is_repeated_with_its_own_numbers_until_dropping_parts_it() -> None:
    trace = record(loaded("llama"), ask(sampling=SamplingParams(temperature=1.5, seed=5)))
    chosen = [step.token_id for step in trace.steps]
    found = run_policies(loaded("llama"), trace, [Rule("sinks", 6, sinks=2)], N_NEW)
    assert found is not None
    run = found.runs[0]
    assert list(found.unlimited.token_ids) == chosen
    assert run.parted is not None
    assert list(run.token_ids[: run.parted]) == chosen[: run.parted]
    assert run.token_ids[run.parted] != chosen[run.parted]
    assert len(run.token_ids) == len(run.positions) == N_NEW


def test_the_way_of_its_own_is_what_a_run_that_only_goes_that_way_chooses() -> None:
    """Greedy: after the parting, each token is the likeliest of a full pass over this run's own tokens."""
    rule = Rule("window", 6)
    found = run_policies(loaded("llama"), greedy("llama"), [rule], N_NEW)
    assert found is not None
    run = found.runs[0]
    assert run.parted is not None
    ids = [*PROMPT, *run.token_ids]
    own = masked_logprobs("llama", rule, ids)
    for step in range(run.parted, N_NEW):
        others = masked_logprobs("llama", rule, [*ids[: P + step], (ids[P + step] + 1) % 250])
        assert own[step] > others[step]


@pytest.mark.parametrize("name", ["gemma2", "mistral", "qwen3_next", "bloom", "falcon_alibi"])
def test_a_cache_that_positions_cannot_be_dropped_from_is_refused_in_words(name: str) -> None:
    with pytest.raises(RequestError, match=f"Positions cannot be dropped from the cache of {name}"):
        run_policies(loaded(name), greedy(name), [Rule("window", 9)], 4)


def test_it_stops_between_passes_when_it_is_cancelled() -> None:
    assert run_policies(loaded("llama"), greedy("llama"), [Rule("window", 9)], 8, cancelled=lambda: True) is None
