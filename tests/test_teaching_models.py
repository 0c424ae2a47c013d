"""The teaching models that come with the app: what they say, and what their gates have learnt."""

from __future__ import annotations

import hashlib
import json
import random
import subprocess
import sys
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from inference.catalogue import ASSETS, default, entries
from inference.engine import record
from inference.models import LoadedModel, load_model
from inference.request import GenerationRequest
from inference.sampling import SamplingParams
from inference.trace import Trace
from scripts import train_experts, train_kitten
from scripts.teaching import fit, save, seeded

PROMPT = "小猫跑了一天，它很"
LESSON = {"累": 0.6, "困": 0.2, "饿": 0.1}
IDS = {"<unk>": 0, "<bos>": 1, "<eos>": 2, "小猫": 10, "跑": 11, "了": 12, "一天": 13, "，": 14, "它": 15, "很": 16,
       "累": 17, "。": 18, "困": 19, "饿": 20}  # fmt: skip
MODELS = ("kitten", "experts", "router")


@cache
def loaded(name: str) -> LoadedModel:
    return load_model(name, device="cpu")


def run(name: str, prompt: str, n: int = 12, **settings: object) -> Trace:
    sampling = SamplingParams(**{"greedy": True, **settings})  # type: ignore[arg-type]
    return record(loaded(name), GenerationRequest(prompt=prompt, max_new_tokens=n, sampling=sampling))


def share(trace: Trace, step: int, word: str) -> float:
    return float(trace.probs(step)[IDS[word]])


def test_the_kitten_gives_the_three_states_their_shares_at_the_first_step() -> None:
    trace = run("kitten", PROMPT)
    for word, expected in LESSON.items():
        assert share(trace, 0, word) == pytest.approx(expected, abs=0.01)
    assert 1 - sum(share(trace, 0, word) for word in LESSON) == pytest.approx(0.1, abs=0.01)


def test_the_kitten_is_tired_then_stops_with_ten_positions_in_the_cache() -> None:
    trace = run("kitten", PROMPT)
    assert [t.id for t in trace.prompt_tokens] == [1, 10, 11, 12, 13, 14, 15, 16]
    assert [step.token_id for step in trace.steps] == [17, 18, 2]
    assert trace.kv.positions.max(axis=1).tolist() == [8, 9, 10]
    assert (trace.text, trace.finish.reason, trace.finish.token_id) == ("累。", "eos", 2)


def test_with_two_new_tokens_the_full_stop_does_not_end_the_text_but_the_limit_does() -> None:
    trace = run("kitten", PROMPT, n=2)
    assert (trace.text, trace.finish.reason) == ("累。", "length")


def test_top_k_two_leaves_three_quarters_and_one_quarter() -> None:
    decision = run("kitten", PROMPT, greedy=False, top_k=2, temperature=1.0, seed=1).steps[0].decision
    assert decision.n_kept == 2
    expected = {17: 0.75, 19: 0.25}
    assert decision.prob == pytest.approx(expected[decision.token_id], abs=0.02)


def test_after_sleepy_every_later_distribution_is_another() -> None:
    tired, sleepy = run("kitten", PROMPT + "累"), run("kitten", PROMPT + "困")
    assert (tired.text, sleepy.text) == ("。", "，它要睡。")
    assert np.abs(tired.probs(0) - sleepy.probs(0)).sum() > 1


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("女孩玩了一会儿，", "她很开心。"),
        ("小狗睡了一天，它很", "饿，它要吃东西。"),
        ("男孩吃了一天，他很", "饱。"),
        ("小鸟睡了一会儿，", "它很精神。"),
    ],
)
def test_other_sentences_of_the_grammar_go_on_sensibly(prompt: str, text: str) -> None:
    assert run("kitten", prompt).text == text


def test_all_sentences_of_the_grammar_add_up_to_one() -> None:
    assert sum(weight for _, weight in train_kitten.grammar()) == pytest.approx(1)


def test_a_head_reads_the_verb_where_the_state_is_chosen() -> None:
    """What is done decides the state, so somewhere the last token must read it: a head that a teacher can point at."""
    trace = run("kitten", PROMPT)
    verb = [t.id for t in trace.prompt_tokens].index(IDS["跑"])
    on_verb = [trace.attention(0, layer)[:, -1, verb].max() for layer in range(trace.model.n_layers)]
    assert max(on_verb) > 0.5


@pytest.mark.parametrize("name", MODELS)
def test_the_vocabulary_is_read_as_the_tokenizer_spells_it(name: str) -> None:
    model = loaded(name)
    text = entries()[name].example
    ids = model.tokenizer.encode_text(text)
    assert b"".join(model.tokenizer.vocabulary.token(i).data for i in ids).decode() == text


def test_the_kitten_has_the_vocabulary_of_the_lesson() -> None:
    names = loaded("kitten").tokenizer.hf.convert_ids_to_tokens(list(range(32)))
    assert {word: names.index(word) for word in IDS} == IDS
    assert loaded("kitten").facts.n_kv_heads < loaded("kitten").facts.n_heads


@pytest.mark.parametrize("name", MODELS)
def test_the_engine_says_what_generate_says(name: str) -> None:
    folder, prompt = ASSETS / "models" / name, entries()[name].example
    ids = PreTrainedTokenizerFast.from_pretrained(folder)(prompt, return_tensors="pt").input_ids
    model = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        out = model.generate(ids, do_sample=False, max_new_tokens=12)[0, ids.shape[1] :]
    assert [step.token_id for step in run(name, prompt).steps] == out.tolist()


@pytest.mark.parametrize("name", MODELS)
def test_a_teaching_model_is_small_and_is_what_its_script_wrote(name: str) -> None:
    folder = ASSETS / "models" / name
    files = [path for path in folder.iterdir() if path.name != "made.json"]
    assert sum(path.stat().st_size for path in files) < 6_000_000
    made = json.loads((folder / "made.json").read_text(encoding="utf-8"))
    assert made["sha256"] == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    assert made["command"].startswith(f"python -m scripts.train_{name} ")
    n_params = sum(tensor.numel() for tensor in load_file(folder / "model.safetensors").values())
    assert entries()[name].n_params == n_params


def test_without_the_embedded_model_the_kitten_is_the_one_to_begin_with(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default().id == "smollm2-135m"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert default().id == "kitten"


def expert_loads() -> np.ndarray:
    """[kinds, L, E] share of the choices by transformers' own router logits, on texts from another seed."""
    folder = ASSETS / "models" / "experts"
    tokenizer, model = PreTrainedTokenizerFast.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    rng, by_kind = random.Random(1234), []
    for kind in train_experts.KINDS.values():
        text = "".join(kind(rng) for _ in range(20))
        ids = tokenizer(text, return_tensors="pt").input_ids[:, :200]
        with torch.no_grad():
            logits = model(ids, output_router_logits=True).router_logits
        picked = [torch.topk(layer[1:], 2).indices.flatten().numpy() for layer in logits]
        by_kind.append([np.bincount(p, minlength=8) / len(p) for p in picked])
    return np.array(by_kind)


def test_the_gates_of_the_experts_tell_the_kinds_of_text_apart() -> None:
    loads = expert_loads()
    apart = np.array([np.abs(a - b).sum(-1) / 2 for a, b in combinations(loads, 2)])  # [pairs, L], 0 same to 1 disjoint
    assert apart.mean(0).min() > 0.6
    assert apart.mean(0).max() > 0.8


def test_no_expert_of_the_experts_is_without_work() -> None:
    assert expert_loads().mean(0).min() > 0.02


def test_the_experts_record_two_distinct_experts_a_token_with_weights_that_sum_to_one() -> None:
    trace = run("experts", entries()["experts"].example, n=5)
    assert (trace.model.n_experts, len(trace.steps[0].router)) == (8, trace.model.n_layers)
    for step in trace.steps:
        for choice in step.router:
            assert choice.experts.shape == (len(step.fed_ids), 2)
            assert (choice.experts[:, 0] != choice.experts[:, 1]).all()
            gates = np.exp(choice.logits) / np.exp(choice.logits).sum(1, keepdims=True)
            two = np.take_along_axis(gates, choice.experts, 1)
            np.testing.assert_allclose(choice.weights, two / two.sum(1, keepdims=True), atol=1e-6)


def trained(folder: Path) -> tuple[float, float, dict[str, str]]:
    """A few steps of the kitten's script: the loss before, the loss at the last step, and the files' checksums."""
    seeded(3)
    tokenizer, model = train_kitten.build_tokenizer(), train_kitten.build_model()
    data = train_kitten.tensors(tokenizer)
    before = train_kitten.grammar_loss(model, *data).item()
    after = fit(model, lambda _: train_kitten.grammar_loss(model, *data), 6, 1e-3)
    save(model, tokenizer, folder, "test")
    return before, after, json.loads((folder / "made.json").read_text(encoding="utf-8"))["sha256"]


def test_the_same_seed_trains_the_same_weights_and_training_lowers_the_loss(tmp_path: Path) -> None:
    first, second = trained(tmp_path / "a"), trained(tmp_path / "b")
    assert first == second
    assert first[1] < first[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_training_script_writes_a_model_that_loads_like_any_other(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", f"scripts.train_{name}", "--steps", "2", "--seed", "5", "--out", str(tmp_path)]
    subprocess.run(command, cwd=ASSETS.parent, check=True, capture_output=True, timeout=600)
    made = json.loads((tmp_path / "made.json").read_text(encoding="utf-8"))
    assert made["command"] == f"python -m scripts.train_{name} --steps 2 --seed 5"
    for file, checksum in made["sha256"].items():
        assert hashlib.sha256((tmp_path / file).read_bytes()).hexdigest() == checksum
    prompt = GenerationRequest(prompt=entries()[name].example, max_new_tokens=2, ignore_eos=True)
    assert len(record(load_model(str(tmp_path), device="cpu"), prompt).steps) == 2


def test_a_few_steps_teach_the_experts_something_and_what_they_reach_is_a_share_a_layer() -> None:
    seeded(3)
    rng = random.Random(3)
    tokenizer, model = train_experts.build_tokenizer(3), train_experts.build_model()
    before = train_experts.batch_loss(model, tokenizer, random.Random(9)).item()
    fit(model, lambda step: train_experts.batch_loss(model, tokenizer, rng), 8, 3e-3)
    assert train_experts.batch_loss(model, tokenizer, random.Random(9)).item() < before
    reached = train_experts.specialisation(model, tokenizer, 4)
    assert reached.shape == (3,)
    assert ((reached >= 0) & (reached <= 1)).all()


def test_the_shipped_experts_reach_what_the_script_prints() -> None:
    """The script's own figure on the shipped weights agrees with one from transformers' router logits."""
    folder = ASSETS / "models" / "experts"
    model = AutoModelForCausalLM.from_pretrained(folder)
    reached = train_experts.specialisation(model, loaded("experts").tokenizer.hf.backend_tokenizer, 1)
    loads = expert_loads()
    apart = np.array([np.abs(a - b).sum(-1) / 2 for a, b in combinations(loads, 2)]).mean(0)
    np.testing.assert_allclose(reached.numpy(), apart, atol=0.1)
    assert reached.min() > 0.8
