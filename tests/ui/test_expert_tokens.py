"""The expert tokens' part of the experts page as a script: a request, its routing, and the run that answers it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from inference.catalogue import Entry
from ui import session
from ui.limits import Limits
from ui.worker import Job

ROOT = Path(__file__).resolve().parents[2]
LONG_S = 90


def opened() -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60).run()
    app.switch_page("pages/experts_page.py").run()
    app.segmented_control(key="experts-part").set_value("tokens").run()
    assert not app.exception
    return app


def texts(app: AppTest) -> str:
    return "\n".join(element.value for element in (*app.text, *app.code))


def until(app: AppTest, there: Callable[[], bool]) -> None:
    ends = time.monotonic() + LONG_S
    while not there() and time.monotonic() < ends:
        time.sleep(0.2)
        app.run()
    assert not app.exception
    assert there()


def routed(request: str, temperature: float = 0.0, tokens: int = 3) -> AppTest:
    """The page after a request was routed, greedily by default."""
    app = opened()
    app.text_area(key="route request").set_value(request)
    app.number_input(key="route temperature").set_value(temperature)
    app.number_input(key="route tokens").set_value(tokens)
    app.button(key="route").click().run()
    until(app, lambda: len(app.get("plotly_chart")) == 2)
    return app


def headings(app: AppTest) -> list[str]:
    return [title.value for title in app.subheader]


def test_before_a_request_nothing_is_drawn_and_the_models_that_can_be_asked_are_named() -> None:
    app = opened()
    assert not app.get("plotly_chart")
    assert "<|kitten|>  →  Kitten (teaching model)" in texts(app)
    assert "<|smollm2-135m|>  →  SmolLM2 135M Instruct" in texts(app)


def test_a_sum_goes_to_the_experts_model_whose_answer_is_a_run_that_playback_opens() -> None:
    app = routed("7+5=")
    until(app, lambda: "12" in texts(app))
    assert "Greedy decoding took <|experts|>, the likeliest" in texts(app)
    assert app.code[0].value.startswith("12")
    assert "The request: 7+5=" in texts(app)
    assert "It has no chat template" in texts(app)
    app.button(key="open answer").click().run()
    assert not app.exception
    assert app.title[0].value == "Playback"
    assert app.session_state["trace"].model.name == "Experts (teaching model)"
    assert app.session_state["trace"].request.prompt == "7+5="


def test_the_sentence_of_the_lesson_goes_to_the_kitten() -> None:
    app = routed("小猫跑了一天，它很")
    until(app, lambda: "累。" in texts(app))
    assert any("Kitten" in heading for heading in headings(app))


def test_settings_act_at_once_and_say_when_they_would_choose_another() -> None:
    app = routed("안녕하세요 오늘 날씨")
    assert "These settings choose" not in texts(app)
    app.number_input(key="route temperature").set_value(1.0)
    chosen = set()
    for seed in range(12):  # greedy took the likeliest; a draw takes another about one time in three
        app.number_input(key="route seed").set_value(seed).run()
        said = texts(app)
        other = "These settings choose" in said
        assert other == ("<|experts|> was drawn" not in said) == ("Route again to let it answer" in said)
        chosen.add(other)
    assert chosen == {True, False}
    app.number_input(key="route top_k").set_value(1).run()
    assert "These settings choose" not in texts(app)


def test_a_draw_on_a_token_that_stands_for_no_model_asks_nobody() -> None:
    app = routed("7+5=", temperature=100.0)
    assert "No model was asked" in headings(app)
    assert "which stands for no model" in texts(app)


def test_an_empty_request_is_refused_in_place() -> None:
    app = opened()
    app.text_area(key="route request").set_value("  ")
    app.button(key="route").click().run()
    assert "prompt is empty" in app.error[0].value
    assert not app.get("plotly_chart")


def test_a_routing_that_was_cancelled_says_so() -> None:
    app = opened()
    app.session_state["work route"] = Job("nobody", "router", None, 1, state="cancelled")
    app.run()
    assert not app.exception
    assert "Cancelled; nothing was kept of it." in texts(app)


def test_without_the_embedded_model_the_routing_is_shown_and_the_remedy_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Entry, "wheel_file", None)
    app = routed("What is gravity?")
    assert "is not installed" in app.error[0].value
    assert "requirements" in app.error[0].value
    assert any("SmolLM2" in heading for heading in headings(app))
    assert len(app.get("plotly_chart")) == 2


def test_a_model_that_the_server_does_not_run_is_named_and_the_routing_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "limits", lambda: Limits(models=("router", "kitten")))
    app = routed("7+5=")
    assert "This server does not run experts" in app.error[0].value
    assert len(app.get("plotly_chart")) == 2
