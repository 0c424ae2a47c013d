"""The lesson's figures: each is computed a second time, by hand or by transformers' own forward pass."""

from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from inference.lesson import big, looked, paces, pipeline, raised, sent, values, written
from inference.metrics import parse_times
from inference.sampling_params import SamplingParams
from inference.trace import Trace
from scripts.record_lesson import recorded
from scripts.translations import LANGUAGES, extract, po_file, read
from ui.lesson.stations import STATIONS

ASSETS = Path(__file__).resolve().parent.parent / "assets"
PROMPT = [1, 10, 11, 12, 13, 14, 15, 16]  # <bos> 小猫 跑 了 一天 ， 它 很
TIRED, FULL_STOP, END = 17, 18, 2
KEYS = {"kitten": "lesson-kitten", "experts": "lesson-experts", "chat": "demo"}


@cache
def trace(name: str) -> Trace:
    return Trace.load(ASSETS / f"{KEYS[name]}.safetensors")


@cache
def stated() -> dict[str, dict[str, Any]]:
    return values(trace("kitten"), trace("chat"), trace("experts"))


@cache
def kitten() -> tuple[np.ndarray, np.ndarray]:
    """Logits [T, V] and attention weights [L, H, T, T] of the whole text, by transformers' eager attention."""
    model = AutoModelForCausalLM.from_pretrained(ASSETS / "models" / "kitten", attn_implementation="eager")
    with torch.no_grad():
        out = model(torch.tensor([[*PROMPT, TIRED, FULL_STOP]]), output_attentions=True)
    return out.logits[0].double().numpy(), torch.cat(out.attentions).numpy()


@cache
def experts() -> list[np.ndarray]:
    """Router logits [T, E] of every layer over all tokens that the run fed, by transformers."""
    model = AutoModelForCausalLM.from_pretrained(ASSETS / "models" / "experts", attn_implementation="eager")
    ids = [token.id for token in trace("experts").tokens[:-1]]
    with torch.no_grad():
        out = model(torch.tensor([ids]), output_router_logits=True)
    return [layer.double().numpy() for layer in out.router_logits]


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def of_attention() -> dict[str, Any]:
    """The sharpest head of the prompt's last position, of all layers and heads."""
    last = kitten()[1][:, :, 7, :8]
    layer, head, read = np.unravel_index(last.argmax(), last.shape)
    return {"layer": layer, "head": head, "weight": last.max(), "position": 7, "n_visible": 8, "_read": read}


def of_choosing() -> dict[str, Any]:
    probs = np.sort(softmax(kitten()[0][7]))[::-1]
    return {
        "k": 2, "k_a": probs[0] / probs[:2].sum(), "k_b": probs[1] / probs[:2].sum(), "p": 0.8, "off": 1,
        "cold": 0.5, "cold_a": probs[0] ** 2 / (probs**2).sum(),
        "hot": 2, "hot_a": probs[0] ** 0.5 / (probs**0.5).sum(),
    }  # fmt: skip


def of_loop() -> dict[str, Any]:
    chosen = zip(kitten()[0][7:], (TIRED, FULL_STOP, END), strict=True)
    shares = [softmax(logits)[token] for logits, token in chosen]
    return {"n": 3, "loss": -sum(math.log(share) for share in shares), "p_total": math.prod(shares)}


def of_time() -> dict[str, Any]:
    first, second, third = (step.timing.at_s for step in trace("kitten").steps)
    gap = ((second - first) + (third - second)) / 2
    return {
        "ttft_ms": first * 1000, "tpot_ms": gap * 1000, "decode_tok_s": 1 / gap, "request_tok_s": 3 / third,
        "n_prompt": 8, "n_in": 100, "n_out": 500, "passes": 500, "decodes": 499,
    }  # fmt: skip


def of_experts() -> dict[str, Any]:
    chosen = np.argsort(-experts()[2], axis=1)[:, :2]
    load = np.bincount(chosen.ravel(), minlength=8)
    return {
        "n_experts": 8, "k": 2, "n_layers": 3, "n_fed": 50, "layer": 2,
        "busiest": load.argmax(), "times": load.max() / (100 / 8),
    }  # fmt: skip


def expected() -> dict[str, dict[str, Any]]:
    """Every number of the sentences by station."""
    logits = kitten()[0][7]
    probs = softmax(logits)
    return {
        "prompt": {"n": 8, "n_written": 7, "chat_n": 40, "chat_written": 10, "chat_added": 30},
        "tokens": {"n_characters": 9, "n_tokens": 7, "id": 10, "n_vocabulary": 32, "chat_vocabulary": 49152},
        "prefill": {"n": 8, "n_pairs": 64, "n_seen": 36, "n_layers": 3, "n_cached": 8, **of_attention()},
        "logits": {
            "n_vocabulary": 32, "total": 1, "logit": logits[17], "p_a": probs[17], "p_b": probs[19],
            "p_c": probs[20], "p_rest": 1 - probs[17] - probs[19] - probs[20],
        },
        "choosing": of_choosing(),
        "loop": of_loop(),
        "cache": {
            "projected": 10, "repeated": 8 + 9 + 10, "n_long": 1000,
            "long_projected": 1000, "long_repeated": 500_500, "long_dots": 500_500,
        },
        "formula": {
            "positions": 10, "nbytes": 2 * 3 * 1 * 10 * 2 * 16 * 4, "measured": 7680, "token_bytes": 768,
            "heads": 4, "kv_heads": 2, "mha_bytes": 15_360, "ratio": 2,
            "big_kv_heads": 8, "big_head_dim": 128, "big_element_bytes": 2,
        },
        "stopping": {"end_id": 2, "limit": 2},
        "time": of_time(),
        "experts": of_experts(),
    }  # fmt: skip


WORDS = {
    "prompt": {"prompt": "小猫跑了一天，它很", "added": ("<bos>",), "chat_model": "SmolLM2 135M Instruct"},
    "tokens": {"token": "小猫", "chat_model": "SmolLM2 135M Instruct"},
    "prefill": {"token": "很", "read": "跑", "next": "累"},
    "logits": {"last": "很", "a": "累", "b": "困", "c": "饿"},
    "choosing": {"a": "累", "b": "困", "p_kept": ("累", "困")},
    "loop": {"first": "累", "last": "<eos>"},
    "cache": {"held": "8 → 9 → 10", "end": "<eos>"},
    "formula": {"formula": "2 · 3 · 1 · 10 · 2 · 16 · 4 = 7,680"},
    "stopping": {"end": "<eos>", "text": "累。", "before": "。"},
    "time": {"machine": trace("kitten").versions["machine"]},
    "experts": {"token": "total", "chosen": ""},
}


def fields(text: str) -> set[str]:
    return {name for _literal, name, _spec, _conversion in Formatter().parse(text) if name}


@pytest.mark.parametrize("station", STATIONS, ids=lambda station: station.name)
def test_every_figure_that_a_station_states_is_right(station: Any) -> None:
    numbers, words = expected()[station.name], WORDS[station.name]
    for name in set().union(*map(fields, station.texts)):
        assert name in numbers or name in words, f"nothing here recomputes {name}"
    found = stated()[station.name]
    for name, value in numbers.items():
        if not name.startswith("_"):
            assert found[name] == pytest.approx(value, rel=2e-4, abs=1e-7), name
    for name, word in words.items():
        assert found[name] == word or not word, name


def test_the_figures_are_those_that_the_lesson_is_built_on() -> None:
    first, choosing = stated()["logits"], stated()["choosing"]
    for name, share in {"p_a": 0.60, "p_b": 0.20, "p_c": 0.10, "p_rest": 0.10}.items():
        assert first[name] == pytest.approx(share, abs=0.01)
    assert (choosing["k_a"], choosing["k_b"]) == (pytest.approx(0.75, abs=0.01), pytest.approx(0.25, abs=0.01))
    assert choosing["p_kept"] == ("累", "困")
    assert [token.id for token in trace("kitten").prompt_tokens] == PROMPT
    assert [step.token_id for step in trace("kitten").steps] == [TIRED, FULL_STOP, END]
    assert trace("kitten").tokens[of_attention()["_read"]].display == stated()["prefill"]["read"]


def test_the_token_of_the_station_on_experts_goes_where_transformers_sends_it() -> None:
    found = stated()["experts"]
    logits = experts()[2][found["position"]]
    a, b = np.argsort(-logits)[:2]
    weight = 1 / (1 + math.exp(logits[b] - logits[a]))  # softmax over all, then over the two chosen: their own softmax
    assert found["chosen"] == f"{a} ({weight:.2f}) + {b} ({1 - weight:.2f})"
    assert sent(trace("experts"), 0, 1)["first"] == experts()[0][1].argmax()


@pytest.mark.parametrize("language", ["en", *LANGUAGES])
def test_every_station_says_what_it_says_in_two_or_three_sentences(language: str) -> None:
    catalogue = None if language == "en" else read(po_file(language))
    for station in STATIONS:
        assert 2 <= len(station.sentences) <= 3
        for text in station.sentences:
            said = literals(text if catalogue is None else str(catalogue.get(text).string))
            assert len(re.findall(r"[.!?。！？]|…", said)) == 1, said


def literals(text: str) -> str:
    return "".join(literal for literal, _name, _spec, _conversion in Formatter().parse(text))


@pytest.mark.parametrize("language", ["en", *LANGUAGES])
def test_no_text_of_the_lesson_has_a_digit_of_its_own(language: str) -> None:
    mine = [text for text, files in extract().items() if any(file.startswith("ui/lesson/") for file in files)]
    assert len(mine) > 100
    catalogue = None if language == "en" else read(po_file(language))
    for text in mine:
        said = text if catalogue is None else str(catalogue.get(text).string)
        assert said, f"{text!r} is not translated"
        assert not any(c.isdigit() for c in literals(said)), said


def test_raising_a_logit_by_one_multiplies_its_odds_by_e() -> None:
    found = raised(trace("kitten"), 20, 1.0)
    p = softmax(kitten()[0][7])[20]
    after = math.e * p / (math.e * p + 1 - p)
    assert found["factor"] == pytest.approx(2.718282, abs=1e-6)
    assert (found["before"], found["after"]) == (pytest.approx(p, abs=1e-6), pytest.approx(after, abs=1e-6))


def test_what_can_be_tried_gives_the_figures_worked_out_by_hand() -> None:
    assert written(1) == {"n_long": 1, "long_projected": 1, "long_repeated": 1, "long_dots": 1}
    assert written(4)["long_repeated"] == 1 + 2 + 3 + 4
    assert big(32, 8192)["nbytes"] == 1_073_741_824 == 2 * 32 * 1 * 8192 * 8 * 128 * 2
    assert big(32, 8192)["formula"] == "2 · 32 · 1 · 8192 · 8 · 128 · 2 = 1,073,741,824"
    assert big(32, 1)["nbytes"] == big(32, 8192)["token_bytes"] == 131_072
    assert paces(parse_times("0.20 0.25")) == pytest.approx(
        {"ttft_ms": 200, "tpot_ms": 50, "decode_tok_s": 20, "request_tok_s": 8}
    )
    assert paces(parse_times("0.2"))["tpot_ms"] is None
    comma = looked(trace("kitten"), 1, 1, 5)  # ， is followed by the pronoun, which depends on who
    assert (comma["token"], comma["n_visible"], comma["read"]) == ("，", 6, "小猫")
    assert comma["weight"] == pytest.approx(kitten()[1][1, 1, 5, 1], abs=1e-6)


def test_a_colder_draw_keeps_the_order() -> None:
    for temperature in (0.1, 0.5, 2.0, 3.0):
        stage = pipeline(trace("kitten"), SamplingParams(greedy=False, temperature=temperature))[-1]
        assert (np.argsort(-stage.probs)[:5] == np.argsort(-kitten()[0][7])[:5]).all()


@pytest.mark.parametrize("name", ["kitten", "experts"])
def test_the_shipped_runs_are_what_the_models_do(name: str) -> None:
    shipped, again = trace(name), recorded(name)
    assert [token.id for token in shipped.tokens] == [token.id for token in again.tokens]
    assert shipped.finish == again.finish
    assert all(step.logits is not None and step.logits.whole for step in shipped.steps)
    for step in range(len(shipped.steps)):
        np.testing.assert_allclose(shipped.logits(step).values, again.logits(step).values, atol=1e-4)
        for layer in range(shipped.model.n_layers):
            np.testing.assert_allclose(shipped.attention(step, layer), again.attention(step, layer), atol=1e-5)


def test_the_shipped_runs_are_small() -> None:
    assert (ASSETS / "lesson-kitten.safetensors").stat().st_size < 32 * 1024
    assert (ASSETS / "lesson-experts.safetensors").stat().st_size < 160 * 1024
