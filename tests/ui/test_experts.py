"""The experts page as a script: the demo run has no experts, a run of the teaching model has."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from inference.catalogue import entries
from inference.engine import record
from inference.models import load_model
from inference.request import GenerationRequest, RecordOptions
from inference.sampling_params import SamplingParams
from inference.trace import Trace

ROOT = Path(__file__).resolve().parents[2]
LONG_S = 90


@cache
def taught(router: bool = True) -> Trace:
    request = GenerationRequest(
        prompt=entries()["experts"].example,
        max_new_tokens=6,
        sampling=SamplingParams(greedy=True),
        record=RecordOptions(router=router),
    )
    return record(load_model("experts", device="cpu"), request)


def opened(trace: Trace | None = None) -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60).run()
    if trace is not None:
        app.session_state["trace"] = trace
    app.switch_page("pages/experts_page.py").run()
    assert not app.exception
    return app


def texts(app: AppTest) -> str:
    return "\n".join(element.value for element in app.text)


def test_a_model_without_experts_says_so_and_offers_the_teaching_model() -> None:
    app = opened()
    assert "SmolLM2 135M Instruct has no experts" in texts(app)
    assert app.button(key="run experts").label == "Run the teaching model"


def test_a_run_that_left_its_router_out_is_not_said_to_have_no_experts() -> None:
    assert "has experts, but this run does not hold its router's choices" in texts(opened(taught(router=False)))


def test_a_run_of_the_teaching_model_shows_four_charts_of_the_layer_that_is_chosen() -> None:
    app = opened(taught())
    assert app.subheader[0].value == "Tokens and experts · layer 1"
    assert len(app.get("plotly_chart")) == 4
    app.selectbox(key="expert-layer").select(2).run()
    assert "Load · layer 2" in [title.value for title in app.subheader]
    assert not app.exception


def test_the_token_in_focus_is_the_last_of_the_prompt_until_another_is_chosen() -> None:
    app, trace = opened(taught()), taught()
    slider = app.slider(key="expert-position")
    assert (slider.value, slider.max) == (trace.n_prompt - 1, trace.n_prompt + len(trace.steps) - 2)
    slider.set_value(1).run()
    assert f"“{trace.tokens[1].display}” at position 1 goes to" in texts(app)


def test_lines_of_different_kinds_are_told_apart_and_kinds_of_token_can_be_compared() -> None:
    app = opened(taught())
    assert "“3+4=7” and “9-2=7” least" in texts(app)
    app.segmented_control(key="expert-groups-by").set_value("kind").run()
    assert "3+4=7" not in texts(app)
    assert "“special tokens” and “Chinese characters” differ most" in texts(app)


@pytest.mark.filterwarnings("default")
def test_the_button_runs_the_teaching_model_and_shows_its_experts() -> None:
    app = opened()
    app.button(key="run experts").click().run()
    ends = time.monotonic() + LONG_S
    while len(app.get("plotly_chart")) < 4 and time.monotonic() < ends:
        time.sleep(0.5)
        app.run()
    assert not app.exception
    assert "Tokens and experts · layer 1" in [title.value for title in app.subheader]
    assert app.session_state["trace"].model.name == "Experts (teaching model)"


def test_choosing_a_teaching_model_turns_chat_off_and_offers_its_own_example() -> None:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60).run()
    assert app.session_state["chat"]
    app.selectbox(key="model").select("kitten").run()
    assert not app.session_state["chat"]
    app.button(key="example model").click().run()
    assert app.session_state["prompt"] == "小猫跑了一天，它很"


def test_without_the_embedded_model_the_form_begins_with_the_kitten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inference.catalogue.Entry.wheel_file", None)
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60).run()
    state = app.session_state
    assert (state["model"], state["prompt"], state["chat"]) == ("kitten", "小猫跑了一天，它很", False)
