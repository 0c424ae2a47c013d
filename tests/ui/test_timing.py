"""The page on prefill and decode as a script: every part opens on the demo run, without torch; typed times; sweeps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from streamlit.testing.v1 import AppTest

from inference.errors import MemoryLimitError
from inference.measured import Line, Place, Sweep
from inference.trace import Trace
from tests.ui.fresh import every_part_opens_without_torch
from ui.timing.sweeps import lengths
from ui.worker import Job

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("request", "sweeps", "types", "serving", "roof")


def opened(part: str = "request", **state: object) -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    app.session_state["timing-part"] = part
    for name, value in state.items():
        app.session_state[name] = value
    return app.run().switch_page("pages/timing.py").run()


def texts(app: AppTest) -> str:
    return "\n".join(element.value for element in app.text)


def errors(app: AppTest) -> str:
    """Error texts without the escapes that keep them literal."""
    return "\n".join(element.value.replace("\\", "") for element in app.error)


def sweep(model: str) -> Sweep:
    place = Place("a machine", model, "cpu", "float32")
    return Sweep("prefill", place, (Line("prefill", np.array([16, 32, 64]), np.array([[0.1, 0.2, 0.4]] * 3)),))


def test_every_part_opens_without_importing_torch() -> None:
    every_part_opens_without_torch("pages/timing.py", "timing-part", PARTS, "Prefill and decode")


def test_the_demos_speed_is_that_of_its_recorded_times() -> None:
    trace = Trace.load(ROOT / "assets" / "demo.safetensors")
    at_s = trace.timing.at_s
    tpot = (at_s[-1] - at_s[0]) / (len(at_s) - 1)
    said = f"After the first token {1 / tpot:.1f} tok/s; over the whole request {len(at_s) / at_s[-1]:.1f}"
    assert said in texts(opened())


def test_typed_times_answer_and_a_wrong_one_is_named_in_place() -> None:
    app = opened()
    assert "After the first token 20.0 tok/s; over the whole request 8.0" in texts(app)
    app.text_input(key="typed-times").set_value("0.2 0.3 0.1").run()
    assert "Time 3 is 0.1 s and does not come after the one before it, 0.3 s." in errors(app)
    app.text_input(key="typed-times").set_value("0.2 0.4").run()
    assert not app.error
    assert "After the first token 5.0 tok/s" in texts(app)


def test_a_run_that_was_stopped_before_its_first_token_is_said() -> None:
    trace = replace(Trace.load(ROOT / "assets" / "demo.safetensors"), steps=())
    app = opened(trace=trace)
    assert not app.exception
    assert "This run has no token whose time can be counted." in texts(app)


def test_a_sweep_that_was_cancelled_or_failed_leaves_the_earlier_one() -> None:
    model = Trace.load(ROOT / "assets" / "demo.safetensors").model.name
    done = Job("me", "smollm2-135m", None, 1, state="done", result=sweep(model))
    app = opened("sweeps", **{"work sweep prefill": done})
    assert "64 tokens took 400.0 ms, 160 tok/s" in texts(app)
    app.session_state["work sweep prefill"] = Job("me", "smollm2-135m", None, 1, state="cancelled")
    app.run()
    assert "Cancelled; what was measured before is kept." in texts(app)
    assert "64 tokens took 400.0 ms, 160 tok/s" in texts(app)
    failed = Job("me", "smollm2-135m", None, 1, state="failed", error=MemoryLimitError("Too large."))
    app.session_state["work sweep prefill"] = failed
    app.run()
    assert errors(app) == "Too large."
    assert "64 tokens took 400.0 ms, 160 tok/s" in texts(app)


def test_another_models_sweep_is_not_shown_for_this_run() -> None:
    done = Job("me", "other", None, 1, state="done", result=sweep("another model"))
    assert "64 tokens took" not in texts(opened("sweeps", **{"work sweep prefill": done}))


def test_lengths_are_powers_of_two_up_to_the_longest() -> None:
    assert lengths(128) == [16, 32, 64, 128]
    assert lengths(200) == [16, 32, 64, 128]
    assert lengths(8) == []


def test_other_devices_follow_the_model_and_the_context() -> None:
    app = opened("roof")
    assert "for Llama 3.1 8B after 4,096 positions" in texts(app)
    # 8e12 bytes a second ÷ (2 · 8,030,261,248 weights + 4,096 · 131,072 of cache) = 482.0
    assert "At most 482 tok/s a sequence on NVIDIA B200." in texts(app)
    app.number_input(key="roof-context").set_value(1).run()
    assert "At most 498 tok/s a sequence on NVIDIA B200." in texts(app)


def test_a_run_of_a_model_that_is_not_here_says_so_once_in_the_place_of_the_buttons() -> None:
    trace = Trace.load(ROOT / "assets" / "demo.safetensors")
    foreign = replace(trace, model=replace(trace.model, name="made elsewhere"))
    for part in ("sweeps", "serving", "roof"):
        app = opened(part, trace=foreign)
        assert not app.exception
        assert texts(app).count("made elsewhere is not in the catalogue, so it cannot be run here.") == 1
        assert not [button for button in app.button if button.label.startswith(("Measure", "Run the"))]
