"""Teacher forcing and the logit lens as a reader works them: the queue, the answer, and what cannot be had."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import streamlit as st
import torch
from streamlit.testing.v1 import AppTest

from inference.forcing import force
from tests.scripted import CONTEXT, tiny_model

APP = Path(__file__).with_name("attention_app.py")


@pytest.fixture(autouse=True)
def own_server() -> Iterator[None]:
    """What the server shares is this page's own: its models are tiny ones."""
    st.cache_resource.clear()
    yield
    st.cache_resource.clear()


def opened(**query: str) -> AppTest:
    app = AppTest.from_file(str(APP), default_timeout=60)
    for name, value in query.items():
        app.query_params[name] = value
    return app.run()


def texts(app: AppTest) -> str:
    return "\n".join(element.value for element in app.text)


def finished(app: AppTest, name: str) -> AppTest:
    """The page once its work has ended."""
    job = app.session_state[f"work {name}"]
    for _ in range(1000):
        if job.ended:
            return app.run()
        time.sleep(0.02)
    pytest.fail("the work did not end in 20 s")


def loss_of(text: str) -> float:
    """What transformers computes from labels."""
    model = tiny_model()
    ids = torch.tensor([model.tokenizer.encode_text(text)])
    with torch.no_grad():
        return float(model.forward.model(ids, labels=ids).loss)


def test_a_text_of_ones_own_is_scored_with_the_loss_that_transformers_gives() -> None:
    app = opened()
    app.segmented_control(key="forcing source").set_value("own").run()
    app.text_area(key="forcing text").set_value("opera <b> $x$ :smile:").run()
    app.button(key="score").click().run()
    finished(app, "teacher forcing")
    assert not app.exception
    metrics = {metric.label: metric.value for metric in app.metric}
    loss = loss_of("opera <b> $x$ :smile:")
    assert metrics["Mean loss"] == f"{loss:.3f} nats"
    assert metrics["Perplexity"] == f"{math.exp(loss):,.2f}"
    assert "no token after a position exists yet" in texts(app)


def test_the_runs_own_text_is_compared_with_how_it_was_generated() -> None:
    app = opened()
    app.button(key="score").click().run()
    finished(app, "teacher forcing")
    assert not app.exception
    ids = [token.id for token in app.session_state["trace"].tokens]
    assert {m.label: m.value for m in app.metric}["Mean loss"] == f"{force(tiny_model(), ids).mean_loss:.3f} nats"
    said = texts(app)
    assert "Generating took 5 passes" in said
    assert float(said.split("largest difference ")[1].split(")")[0]) < 1e-5
    at = int(force(tiny_model(), ids).losses.argmax())  # where the reader begins
    assert f"Position {at} sees {at + 1} tokens; the causal mask hides the {len(ids) - at - 1} after it" in said


def test_what_was_scored_is_shown_under_its_own_source_alone() -> None:
    app = opened()
    app.button(key="score").click().run()
    finished(app, "teacher forcing")
    assert app.metric
    app.segmented_control(key="forcing source").set_value("own").run()
    assert not app.metric
    app.segmented_control(key="forcing source").set_value("run").run()
    assert app.metric


@pytest.mark.parametrize(
    ("text", "message"), [("", "has 0 tokens"), ("x" * (CONTEXT + 5), f"has {CONTEXT + 5} tokens; tiny can score")]
)
def test_a_text_that_cannot_be_scored_is_refused_in_place_and_stays_in_its_field(text: str, message: str) -> None:
    app = opened()
    app.segmented_control(key="forcing source").set_value("own").run()
    app.text_area(key="forcing text").set_value(text).run()
    app.button(key="score").click().run()
    finished(app, "teacher forcing")
    assert not app.exception
    assert message in app.error[0].value.replace("\\", "")
    assert app.text_area(key="forcing text").value == text


def test_a_run_without_its_lens_gets_it_from_its_hidden_states_and_keeps_it() -> None:
    app = opened(section="lens")
    assert "does not hold it yet" in texts(app)
    app.button(key="compute lens").click().run()
    finished(app, "logit lens")
    assert not app.exception
    trace = app.session_state["trace"]
    assert all(step.lens is not None for step in trace.steps)
    assert app.session_state["shown"].trace is trace
    assert "work logit lens" not in app.session_state  # what was computed is in the run, and nowhere else
    assert len(app.get("plotly_chart")) == 3
    assert "was chosen: rank" in texts(app)


def test_a_run_without_hidden_states_says_what_to_do_and_offers_no_button() -> None:
    app = opened(section="lens", without="hidden")
    assert "holds neither its logit lens nor the hidden states" in texts(app)
    assert not app.button


def test_a_run_of_a_model_that_is_not_known_here_says_so() -> None:
    app = opened(section="lens")
    app.session_state["shown"] = None
    app.run()
    app.button(key="compute lens").click().run()
    assert not app.exception
    assert "tiny is not in the catalogue" in app.error[0].value.replace("\\", "")
