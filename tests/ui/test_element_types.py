"""The element type as a choice: in the form, its link, the loaded models and their queues; and both types compared."""

from __future__ import annotations

import time
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from inference.errors import MemoryLimitError
from inference.measured import Line, Place, Sweep
from inference.trace import Trace
from tests.charts.test_element_types import FOUND
from ui import model_key, run_form, session
from ui.asked import Asked, from_link, link
from ui.model_key import parted
from ui.models import ModelStore
from ui.timing import element_types
from ui.worker import Job

ROOT = Path(__file__).resolve().parents[2]
COARSE = "smollm2-135m|bfloat16"
NAME = "work element types"


def demo() -> Trace:
    return Trace.load(ROOT / "assets" / "demo.safetensors")


def in_bfloat16() -> Trace:
    return replace(demo(), model=replace(demo().model, dtype="bfloat16"))


def texts(app: AppTest) -> str:
    return "\n".join(element.value for element in app.text)


def errors(app: AppTest) -> str:
    return "\n".join(element.value.replace("\\", "") for element in app.error)


@pytest.fixture
def able(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor with the instructions, whatever this one has."""
    choose(monkeypatch, "", ("AVX512-BF16",))


def choose(monkeypatch: pytest.MonkeyPatch, reason: str, instructions: tuple[str, ...] = ()) -> None:
    for module in (run_form, element_types):
        monkeypatch.setattr(module, "why_not", lambda: reason)
    for module in (session, element_types):
        monkeypatch.setattr(module, "instructions", lambda: instructions)


def started(**query: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    for name, value in query.items():
        app.query_params[name] = value
    return app.run()


def compared(**state: object) -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    app.session_state["timing-part"] = "types"
    for name, value in state.items():
        app.session_state[name] = value
    return app.run().switch_page("pages/timing.py").run()


def with_work(job: Job) -> AppTest:
    trace = demo()
    job.about = weakref.ref(trace)
    return compared(**{"trace": trace, NAME: job})


def done() -> Job:
    return Job("me", "smollm2-135m", None, 1, state="done", result=FOUND)


def test_a_key_is_the_name_in_float32_and_names_the_type_else() -> None:
    assert model_key.model_key("owner/model") == "owner/model"
    assert model_key.model_key("owner/model", "bfloat16") == "owner/model|bfloat16"
    for name in ("owner/model", "/a folder|with a bar/x.gguf"):
        for element in model_key.ELEMENTS:
            assert parted(model_key.model_key(name, element)) == (name, element)


def test_a_model_is_loaded_in_the_type_of_its_key_and_both_stay_loaded() -> None:
    store = ModelStore()
    models = [store.get(key, lambda _: None) for key in ("kitten", "kitten|bfloat16")]
    assert [model.element for model in models] == ["float32", "bfloat16"]
    assert [store.loaded(key) for key in ("kitten", "kitten|bfloat16")] == models


def test_the_type_travels_with_a_link_and_a_wrong_one_does_not() -> None:
    assert link(Asked(element="bfloat16")) == "?element=bfloat16"
    assert from_link({"element": "bfloat16"}) == {"element": "bfloat16"}
    assert from_link({"element": "int3"}) == {}


@pytest.mark.usefixtures("able")
def test_a_run_is_queued_for_the_model_in_the_chosen_type(monkeypatch: pytest.MonkeyPatch) -> None:
    queued: list[Job] = []
    monkeypatch.setattr(session, "submit", queued.append)
    app = started(element="bfloat16")
    assert app.session_state["element"] == "bfloat16"
    app.button(key="start").click().run()
    app.session_state["element"] = "float32"
    app.run()
    app.button(key="start").click().run()
    assert [job.model_name for job in queued] == [COARSE, "smollm2-135m"]


def test_without_the_instructions_the_form_says_why_and_a_link_that_asks_for_them_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    choose(monkeypatch, "This processor has no instructions for bfloat16, so models run in float32.")
    app = started(element="bfloat16")
    assert app.session_state["element"] == "float32"
    assert "This processor has no instructions for bfloat16" in errors(app)
    assert "This processor has no instructions for bfloat16" in texts(app)


def test_why_not_follows_the_device_and_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_key, "runs_on_cpu", lambda: False)
    assert "GPU" in model_key.why_not()
    monkeypatch.setattr(model_key, "runs_on_cpu", lambda: True)
    monkeypatch.setattr(model_key, "instructions", lambda: ())
    assert "no instructions" in model_key.why_not()
    monkeypatch.setattr(model_key, "instructions", lambda: ("AMX-BF16",))
    assert model_key.why_not() == ""


@pytest.mark.usefixtures("able")
def test_what_a_bfloat16_run_asks_of_its_model_is_asked_of_it_in_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Job("me", COARSE, None, 1, state="done", trace=in_bfloat16())
    monkeypatch.setattr(session, "shown", lambda: made)
    assert session.model_name(made.trace) == COARSE
    monkeypatch.setattr(session, "shown", lambda: None)  # a file, or the demo
    assert session.model_name(in_bfloat16()) == COARSE
    assert session.model_name(demo()) == "smollm2-135m"


def test_a_run_file_in_bfloat16_goes_on_in_float32_where_the_processor_has_no_instructions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    choose(monkeypatch, "no")
    monkeypatch.setattr(session, "shown", lambda: None)
    assert session.model_name(in_bfloat16()) == "smollm2-135m"


def test_the_title_names_the_type_only_where_it_is_not_float32() -> None:
    def badges(trace: Trace) -> str:
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
        app.session_state["trace"] = trace
        return " ".join(element.value for element in app.run().markdown)

    assert "bfloat16" in badges(in_bfloat16())
    assert "float32" not in badges(demo())


@pytest.mark.usefixtures("able")
def test_both_types_are_shown_with_speed_effect_and_parting() -> None:
    app = with_work(done())
    assert not app.exception
    assert "float32 decodes 25.0 tok/s and bfloat16 40.0, 1.60 × as fast" in texts(app)
    assert "the likeliest token is the same at 3 of 4 positions" in texts(app)
    assert "they part at step 2" in texts(app)


@pytest.mark.usefixtures("able")
def test_a_comparison_that_failed_or_belongs_to_another_run_is_not_shown_as_this_ones() -> None:
    error = MemoryLimitError("Too large.")
    assert errors(with_work(Job("me", "smollm2-135m", None, 1, state="failed", error=error))) == "Too large."
    assert "Cancelled" in texts(with_work(Job("me", "smollm2-135m", None, 1, state="cancelled")))
    other, job = demo(), done()
    job.about = weakref.ref(other)
    app = compared(**{"trace": demo(), NAME: job})
    assert "tok/s" not in texts(app)


@pytest.mark.usefixtures("able")
def test_what_was_measured_in_float32_is_not_shown_for_a_run_in_bfloat16() -> None:
    place = Place("a machine", demo().model.name, "cpu", "float32")
    sweep = Sweep("prefill", place, (Line("prefill", np.array([16, 32, 64]), np.array([[0.1, 0.2, 0.4]] * 3)),))
    kept = {("sweep prefill", "smollm2-135m"): sweep}
    for trace, shown in ((demo(), True), (in_bfloat16(), False)):
        app = compared(**{"trace": trace, "timing-part": "sweeps", "measured": kept})
        assert ("64 tokens took 400.0 ms" in texts(app)) == shown


def test_without_the_instructions_the_page_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, "This processor has no instructions for bfloat16, so models run in float32.")
    app = compared()
    assert not app.exception
    assert "This processor has no instructions" in texts(app)
    assert not app.button


@pytest.mark.usefixtures("able")
def test_the_button_loads_both_types_and_runs_them() -> None:
    trace = Trace.load(ROOT / "assets" / "lesson-kitten.safetensors")
    app = compared(trace=trace)
    app.number_input(key="type-steps").set_value(4).run()
    app.button(key="start element types").click().run()
    job = app.session_state[NAME]
    for _ in range(600):
        if job.ended:
            break
        session.worker().beat(job)
        time.sleep(0.1)
    assert (job.state, str(job.error)) == ("done", "None")
    assert [side.element for side in job.result.sides] == ["float32", "bfloat16"]
    assert job.result.tokens == trace.tokens
    app.run()
    assert "bfloat16" in texts(app)
    assert "Fed the same" in texts(app)
