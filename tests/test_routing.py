"""The router model and its choices: unseen requests, settings against arithmetic by hand, and who is asked."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from inference.catalogue import ASSETS, entries
from inference.engine import record
from inference.errors import ModelError, SamplingError, TraceError
from inference.models import LoadedModel, load_model
from inference.request import GenerationRequest, RecordOptions
from inference.routing import Route, expert_models, handed_over, route_of
from inference.sampling import SamplingParams, choose
from inference.trace import Trace
from scripts import train_router
from scripts.router_requests import KINDS
from scripts.teaching import fit, save, seeded

FOLDER = ASSETS / "models" / "router"
MODELS = {"<|kitten|>": "kitten", "<|experts|>": "experts", "<|smollm2-135m|>": "smollm2-135m"}
# written by hand; nothing here was seen in training
REQUESTS = {
    "kitten": ("小猫跑了一天，它很", "小鸟跑了一会儿，它", "男孩吃了一天", "女孩睡了一天，她很饿。"),
    "experts": (
        "7+5=", "9-2=7\n3*4=", "12+7=", "def area(width, height):\n    return", "import numpy as np\n",
        "squares = [i * i for i in range(10)]", "今天爷爷在图书馆看书",
    ),
    "smollm2-135m": (
        "Who wrote Hamlet?", "Please tell me a joke", "How do airplanes fly?", "Should I learn French this year?",
        "I feel sad today.", "Proofread this sentence: he go to school.", "In 1969, who walked on the moon?",
    ),
}  # fmt: skip
UNKNOWN_SCRIPTS = ("สวัสดีครับ", "안녕하세요 오늘 날씨", "Καλημέρα σας")  # Thai, Korean, Greek: not among the scribbles
IDS = {"<|kitten|>": 4, "<|experts|>": 5, "<|smollm2-135m|>": 6}


@cache
def router() -> LoadedModel:
    return load_model("router", device="cpu")


def ask(text: str, **settings: object) -> Trace:
    sampling = SamplingParams(**{"greedy": True, **settings})  # type: ignore[arg-type]
    return record(router(), GenerationRequest(prompt=text, max_new_tokens=1, sampling=sampling))


def routed(text: str, **settings: object) -> Route:
    return route_of(ask(text, **settings), expert_models(FOLDER))


def softmax(values: np.ndarray) -> np.ndarray:
    powers = np.exp(values.astype(np.float64) - values.max())
    return powers / powers.sum()


def test_the_tokens_and_their_models_come_from_the_routers_own_config_and_vocabulary() -> None:
    assert expert_models(FOLDER) == MODELS
    assert {expert.token.data.decode(): expert.token.id for expert in routed("7+5=").experts} == IDS
    assert [expert.model for expert in routed("7+5=").experts] == list(MODELS.values())
    assert set(MODELS.values()) <= entries().keys()


def test_a_model_without_expert_tokens_is_no_router() -> None:
    with pytest.raises(ModelError, match="kitten names no expert tokens"):
        expert_models(ASSETS / "models" / "kitten")


def test_no_request_for_training_holds_what_is_held_out_and_every_unseen_one_does() -> None:
    rng = random.Random(3)
    for kind in KINDS:
        assert not any(part in kind.request(rng) for _ in range(500) for part in kind.held_out)
        assert all(any(p in text for p in kind.held_out) for text in (kind.request(rng, True) for _ in range(50)))


def test_unseen_requests_go_to_the_model_that_can_answer_them() -> None:
    """By transformers' own forward pass, not by this engine."""
    tokenizer, model = PreTrainedTokenizerFast.from_pretrained(FOLDER), AutoModelForCausalLM.from_pretrained(FOLDER)
    rng = random.Random(77)
    for at, kind in enumerate(KINDS):
        texts = [kind.request(rng, unseen=True) for _ in range(100)]
        with torch.no_grad():
            best = [int(model(tokenizer(text, return_tensors="pt").input_ids).logits[0, -1].argmax()) for text in texts]
        assert np.mean(np.array(best) == list(IDS.values())[at]) >= 0.95


@pytest.mark.parametrize(("model", "text"), [(model, text) for model, texts in REQUESTS.items() for text in texts])
def test_a_request_written_by_hand_goes_to_the_right_model(model: str, text: str) -> None:
    chosen = routed(text).chosen
    assert chosen is not None
    assert chosen.model == model


@pytest.mark.parametrize("text", UNKNOWN_SCRIPTS)
def test_a_script_that_was_never_seen_leaves_the_router_less_sure(text: str) -> None:
    assert routed(text).shares(0).max() < 0.75
    assert min(routed(seen).shares(0).max() for seen in ("小猫跑了一天，它很", "7+5=", "What is gravity?")) > 0.9


@pytest.mark.parametrize("text", ["Bonjour, comment allez-vous ?", "Wie spät ist es?", "¿Dónde está la biblioteca?"])
def test_other_languages_in_latin_letters_are_taken_for_english(text: str) -> None:
    chosen = routed(text).chosen
    assert chosen is not None
    assert chosen.model == "smollm2-135m"


def test_the_raw_shares_are_the_softmax_of_the_recorded_logits_and_the_rest_is_what_is_missing() -> None:
    trace = ask("Who wrote Hamlet?")
    expected = softmax(trace.logits(0).values)
    shares = route_of(trace, MODELS).shares(0)
    np.testing.assert_allclose(shares[:3], expected[4:7], rtol=1e-5)
    assert shares[3] == pytest.approx(1 - expected[4:7].sum(), abs=1e-6)
    assert 0 < shares[3] < 0.01


def test_temperature_and_top_k_act_on_the_routing_as_on_any_token() -> None:
    trace = ask("Привет, как дела?", greedy=False, temperature=0.5, top_k=2, seed=4)
    scaled = trace.logits(0).values / 0.5
    two = np.argsort(-scaled)[:2]
    by_hand = softmax(scaled[two])
    shares = dict(zip(IDS.values(), route_of(trace, MODELS).shares(-1)[:3].tolist(), strict=True))
    for token_id, prob in zip(two.tolist(), by_hand.tolist(), strict=True):
        assert shares.pop(token_id) == pytest.approx(prob, rel=1e-5)
    assert list(shares.values()) == [0]
    u = np.random.default_rng(4).random()
    assert trace.steps[0].token_id == two[int(u >= by_hand[0])]


def test_a_high_temperature_gives_the_other_tokens_a_part_and_top_k_takes_it_away() -> None:
    hot = routed("7+5=", greedy=False, temperature=4.0, seed=0).shares(-1)
    assert hot[3] > 0.5
    assert routed("7+5=", greedy=False, temperature=4.0, top_k=3, seed=0).shares(-1)[3] == 0


def test_when_another_token_is_drawn_no_model_is_chosen() -> None:
    found = [routed("7+5=", greedy=False, temperature=8.0, seed=seed) for seed in range(4)]
    none = [route for route in found if route.chosen is None]
    assert none
    assert all(route.token.id not in IDS.values() for route in none)


def test_other_settings_on_a_recorded_run_choose_what_a_run_with_them_chooses() -> None:
    trace = ask("안녕하세요 오늘 날씨", greedy=False, seed=0)
    for seed in range(8):
        settings = SamplingParams(greedy=False, temperature=1.5, top_k=3, seed=seed)
        again = ask("안녕하세요 오늘 날씨", greedy=False, temperature=1.5, top_k=3, seed=seed)
        expected = again.steps[0].decision
        assert (route_of(trace, MODELS, settings).token.id, route_of(trace, MODELS, settings).draw_u) == (
            expected.token_id,
            expected.draw_u,
        )


def test_the_spans_fill_the_line_and_the_draw_lies_in_the_span_of_the_chosen() -> None:
    for seed in range(20):
        route = routed("안녕하세요 오늘 날씨", greedy=False, temperature=3.0, seed=seed)
        spans = route.spans()
        assert (spans[0].start, spans[-1].end) == (0, pytest.approx(1, abs=1e-5))
        assert all(a.end == b.start for a, b in pairwise(spans))
        assert route.draw_u is not None
        hit = next(span for span in spans if span.start <= route.draw_u < span.end)
        assert hit.expert == route.chosen
        assert choose(route.stages, route.draw_u) == route.token.id


def test_greedy_routing_needs_no_draw() -> None:
    route = routed("7+5=", greedy=None, temperature=0.0)
    assert (route.draw_u, len(route.stages)) == (None, 1)
    assert route.chosen is not None


def test_settings_that_leave_nothing_are_refused() -> None:
    trace = ask("7+5=")
    with pytest.raises(SamplingError):
        route_of(trace, MODELS, SamplingParams(greedy=False, suppress_tokens=tuple(range(512)), seed=1))


def test_a_run_that_is_no_routers_says_so() -> None:
    kitten = load_model("kitten", device="cpu")
    trace = record(kitten, GenerationRequest(prompt="小猫", max_new_tokens=1))
    with pytest.raises(TraceError, match="has no expert tokens"):
        route_of(trace, MODELS)
    with pytest.raises(TraceError, match="before its first token"):
        route_of(replace(ask("7+5="), steps=()), MODELS)
    few = RecordOptions(logits=False)
    with pytest.raises(TraceError, match="does not hold the logits"):
        route_of(record(router(), GenerationRequest("7+5=", max_new_tokens=1, record=few)), MODELS)


def test_the_chosen_model_is_asked_the_same_request_and_the_sum_is_right() -> None:
    trace = ask("7+5=")
    chosen = route_of(trace, MODELS).chosen
    assert chosen is not None
    expert = load_model(chosen.model, device="cpu")
    answer = record(expert, handed_over(trace, expert.tokenizer.has_chat_template, 3))
    assert (chosen.model, answer.request.prompt, answer.text) == ("experts", "7+5=", "12\n")


def test_after_its_expert_token_the_router_ends() -> None:
    trace = record(router(), GenerationRequest(prompt="7+5=", max_new_tokens=5, sampling=SamplingParams(greedy=True)))
    assert [step.token_id for step in trace.steps] == [IDS["<|experts|>"], 2]
    assert (trace.finish.reason, trace.text) == ("eos", "")


def trained(folder: Path) -> tuple[float, float, dict[str, str]]:
    """A few steps of the router's script: its loss before and after on one batch, and the files' checksums."""
    seeded(3)
    rng = random.Random(3)
    tokenizer, model = train_router.build_tokenizer(3), train_router.build_model()
    check = train_router.batch(tokenizer, train_router.rows(random.Random(9)))
    before = train_router.routing_loss(model, check).item()
    fit(
        model,
        lambda _: train_router.routing_loss(model, train_router.batch(tokenizer, train_router.rows(rng))),
        4,
        3e-3,
    )
    after = train_router.routing_loss(model, check).item()
    save(model, tokenizer, folder, "test")
    return before, after, json.loads((folder / "made.json").read_text(encoding="utf-8"))["sha256"]


def test_the_same_seed_trains_the_same_router_and_training_lowers_the_loss(tmp_path: Path) -> None:
    first, second = trained(tmp_path / "a"), trained(tmp_path / "b")
    assert first == second
    assert first[1] < first[0]
    assert (
        first[2]["model.safetensors"] == hashlib.sha256((tmp_path / "b" / "model.safetensors").read_bytes()).hexdigest()
    )
