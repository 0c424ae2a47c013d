"""The Sampling lab as a script: links, typed distributions and settings of any kind, each with its sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from inference.counterfactual import choices, parting
from inference.sampling import SamplingParams
from inference.trace import Trace
from tests.ui.fresh import runs_without_torch
from ui.components.sampling_lab import LabState
from ui.sampling.link import from_query, to_query
from ui.sampling.notes import notes
from ui.sampling.spot import Spot

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
from ui.sampling.lab import lab
from ui import session
lab(session.trace())
"""
TITLES = ["Probability against temperature", "Entropy against temperature", "Candidates against top_p",
          "Candidates against top_k"]  # fmt: skip


def opened(**query: str) -> AppTest:
    app = AppTest.from_string(SCRIPT, default_timeout=60)
    for name, value in query.items():
        app.query_params[name] = value
    return app.run()


def demo() -> Trace:
    return Trace.load(ROOT / "assets" / "demo.safetensors")


def errors(app: AppTest) -> list[str]:
    return [element.value.replace("\\", "") for element in app.error]


def titles(app: AppTest) -> list[str]:
    return [element.value for element in app.subheader]


def test_the_page_opens_on_the_demo_run_without_importing_torch() -> None:
    runs_without_torch(
        f"app = AppTest.from_string({SCRIPT!r}, default_timeout=60).run(); assert not app.exception, app.exception\n"
        "assert len(app.get('plotly_chart')) == 5"
    )


def test_a_link_brings_its_step_and_settings_and_the_address_keeps_them() -> None:
    app = opened(step="9", temperature="1.4", top_k="off", order="vllm")
    assert not app.exception
    assert errors(app) == []
    assert app.session_state["step"] == 9
    kept = {name: app.query_params[name] for name in ("step", "temperature", "top_k", "order")}
    assert kept == {"step": "9", "temperature": "1.4", "top_k": "off", "order": "vllm"}
    assert "top_p" not in app.query_params


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"temperature": "-1"}, "temperature must be a number of at least 0, not -1."),
        ({"temperature": "NaN"}, "temperature must be a number of at least 0, not nan."),
        ({"temperature": "hot"}, "temperature must be a number of at least 0, not 'hot'."),
        ({"top_k": "-3"}, "top_k must be a whole number of at least 0, not -3."),
        ({"top_p": "7"}, "top_p must be a number from 0 to 1, not 7."),
        ({"order": "mine"}, "There is no order of steps called mine."),
    ],
    ids=str,
)
def test_a_setting_that_makes_no_sense_is_said_and_the_runs_own_stays(query: dict[str, str], said: str) -> None:
    app = opened(**query)
    assert not app.exception
    assert errors(app)[0].startswith(said)
    assert titles(app)[:4] == TITLES


@pytest.mark.parametrize(
    "query",
    [{"temperature": "0"}, {"top_p": "0"}, {"top_k": "999999999"}, {"greedy": "true"}, {"step": "99999999999999"}],
    ids=str,
)
def test_settings_at_their_edge_are_taken(query: dict[str, str]) -> None:
    app = opened(**query)
    assert not app.exception
    assert errors(app) == []
    assert titles(app)[:4] == TITLES


def test_settings_that_reach_below_the_recorded_logits_are_said_not_to_be_exact() -> None:
    assert not opened(step="9").info
    info = opened(step="9", top_k="0", top_p="1").info
    assert "This run holds the 512 highest logits" in info[0].value.replace("\\", "")


def test_where_the_texts_part_is_said_with_both_tokens() -> None:
    app, trace = opened(temperature="1.4"), demo()
    found = choices(trace, SamplingParams(temperature=1.4, top_k=50, top_p=0.95))
    at = parting(found)
    assert at is not None
    new, old = (trace.vocabulary.token(i).display for i in (found[at].decision.token_id, found[at].recorded_id))
    said = [text.value for text in app.text if text.value.startswith("With the same numbers u")]
    assert f"part at step {at}: “{new}” instead of “{old}”" in said[0]
    assert not app.button(key="run branch").disabled


def test_the_runs_own_settings_have_nothing_to_run() -> None:
    assert opened().button(key="run branch").disabled


def test_a_thousand_draws_come_at_a_click_and_others_at_the_next() -> None:
    app = opened(step="9")
    first = app.button(key="draw").click().run()
    said = [text.value for text in first.text if text.value.startswith("1,000 draws with seed 1")]
    assert len(said) == 1
    second = app.button(key="draw").click().run()
    assert any(text.value.startswith("1,000 draws with seed 2") for text in second.text)


def test_the_kitten_is_typed_and_top_p_keeps_two() -> None:
    app = opened(source="typed", top_p="0.8")
    assert not app.exception
    assert titles(app) == TITLES
    app.button(key="draw").click().run()
    assert any("“累” came 7" in text.value for text in app.text)  # 0.75 of 1,000


@pytest.mark.parametrize(
    ("typed", "kind", "said"),
    [
        ("累 0.6, 困 x", "probs", "Entry 2: x is not a number."),
        ("累 0.9, 困 0.2", "probs", "The probabilities add up to 1.1"),
        ("累 2, 困 nan", "logits", "Entry 2: a logit is a number of any size, or -inf, not nan."),
        ("累 -inf", "logits", "Every logit is -inf"),
        ("<b>x</b> $y$", "probs", "Entry 1: $y$ is not a number."),
    ],
)
def test_the_entry_that_is_wrong_is_named_and_nothing_is_lost(typed: str, kind: str, said: str) -> None:
    app = opened(source="typed", typed=typed, kind=kind)
    assert not app.exception
    assert errors(app)[0].startswith(said)
    assert app.text_input(key="typed").value == typed


def test_a_link_is_what_differs_and_is_read_back() -> None:
    start = SamplingParams(greedy=False, temperature=0.8, top_k=50)
    params = SamplingParams(
        greedy=False, temperature=1.2, top_k=None, min_p=0.1, order=("min_p", "temperature", "top_k")
    )
    query = to_query(start, params)
    assert query == {"temperature": "1.2", "top_k": "off", "min_p": "0.1", "order": "min_p,temperature,top_k"}
    assert from_query(start, query) == (params, [])


def test_the_explanations_hold_the_kittens_numbers() -> None:
    from inference.position import Position
    from inference.sampling_steps import Context

    position = Position(
        np.log(np.array([0.6, 0.2, 0.1, 0.1])).astype(np.float32), Context(np.zeros(0, dtype=np.int64), 0, ())
    )
    spot = Spot("typed", position, lambda ids: ["累困饿…"[i] for i in ids], SamplingParams(), 0.7)
    said = notes(spot, LabState(SamplingParams(greedy=False, temperature=0.5, top_k=2, top_p=0.8), 0.7))
    assert said["greedy"].endswith("Here that is “累”, with a raw probability of 60.0%.")
    assert "keeps 2 here" in said["top_p"]
    assert said["top_k"].endswith("The 2 highest here hold 80.0% of the raw probability.")
    # at 0.5 the shares are 0.36 : 0.04; top-p 0.8 then keeps the first alone, at 1 it keeps both: 0.75
    assert said["temperature"].endswith("the share of “累” goes from 75.0% to 100.0%.")
    assert said["random"].endswith("Here u = 0.700 falls on “累”, whose share is 100.0%.")
