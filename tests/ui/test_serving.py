"""Batching and serving as a script: what must be measured first, the schedules as edited, and a real batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from inference.errors import RequestError
from inference.measured import Line, Place, Sweep
from inference.request import GenerationRequest
from inference.sampling_params import SamplingParams
from inference.serving import ServingRequest
from inference.trace import Trace
from tests.charts.test_serving_charts import LONG, SHORT, batch
from tests.scripted import tiny_model
from tests.ui.test_timing import errors, opened, texts
from ui import session
from ui.limits import Limits
from ui.timing import batched
from ui.timing.serving import PRESETS, requests_of
from ui.worker import Job

MODEL = Trace.load(Path(__file__).resolve().parents[2] / "assets" / "demo.safetensors").model.name
PLACE = Place("a machine", MODEL, "cpu", "float32")


def swept(kind: str, name: str, x: list[int], seconds: list[float], fixed: int = 0) -> Sweep:
    return Sweep(kind, PLACE, (Line(name, np.array(x), np.array([seconds])),), fixed)


# a prefill of 0.1 s and 0.01 s a token; a step of 0.1 s whatever its rows and context
SWEEPS = {
    "prefill": swept("prefill", "prefill", [16, 64, 256], [0.26, 0.74, 2.66]),
    "decode": swept("decode", "cached", [16, 256], [0.1, 0.1]),
    "batch": swept("batch", "batch", [1, 16], [0.1, 0.1], 64),
}


def with_sweeps(*names: str, **state: Any) -> AppTest:
    kept = {(f"sweep {name}", "smollm2-135m"): SWEEPS[name] for name in names}
    return opened("serving", measured=kept, **state)


def test_without_sweeps_nothing_is_scheduled_and_one_button_asks_for_all_that_are_missing(monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(session, "ask_model", lambda name, *rest: asked.append(name))
    app = with_sweeps("prefill")
    assert "“Decode step time” has not been measured for this model on this machine." in texts(app)
    assert "A simulation: no request is run" not in texts(app)
    (button,) = [button for button in app.button if button.label == "Measure what is missing"]
    button.click().run()
    assert not app.exception
    assert asked == ["sweep decode", "sweep batch"]


def test_a_sweep_measured_on_the_other_part_of_the_page_counts_here() -> None:
    done = {
        f"work sweep {name}": Job("me", "smollm2-135m", None, 1, state="done", result=SWEEPS[name]) for name in SWEEPS
    }
    app = opened("serving", **done)
    assert not app.exception
    assert "measured on a machine, " + MODEL in texts(app)


def test_the_schedules_say_that_they_are_simulated_and_follow_preset_and_slots() -> None:
    app = with_sweeps(*SWEEPS)
    assert not app.exception
    assert (
        f"A simulation: no request is run. The clock moves by the cost of each pass, measured on a machine, {MODEL}"
        in (texts(app))
    )
    app.selectbox(key="serving-preset").set_value("A long prompt arrives").run()
    # alone: three of 0.1 + 0.32 + 39 steps, and 0.1 + 2.56 + 11 steps
    assert "One at a time: done after 16.72 s" in texts(app)
    # static: 0.1 + 3 · 0.32 and 39 steps, then the fourth
    assert "Static batches: done after 8.72 s" in texts(app)
    app.slider(key="slots").set_value(1).run()
    assert "Static batches: done after 16.72 s" in texts(app)
    assert "Continuous batch: done after 16.72 s" in texts(app)


def test_chunks_are_a_fourth_policy() -> None:
    app = with_sweeps(*SWEEPS)
    assert "prefill in chunks" not in texts(app)
    app.selectbox(key="serving-chunk").set_value(32).run()
    assert "Continuous, prefill in chunks: done after" in texts(app)


def test_a_context_beyond_what_was_measured_is_said() -> None:
    app = with_sweeps(*SWEEPS)
    assert "follow the fit" not in texts(app)
    app.selectbox(key="serving-preset").set_value("A long prompt arrives").run()
    assert "Steps above 256 positions follow the fit beyond what was measured." in texts(app)
    assert "Prefills above" not in texts(app)


def test_a_row_without_a_number_is_named() -> None:
    rows = [(0.0, 10, 4), (0.5, None, 4)]
    edited = pd.DataFrame(rows, columns=["arrival", "prompt", "new"])
    assert requests_of(edited) == ([], "Row 2 lacks a number: fill it in, or remove the row.")
    assert requests_of(edited.iloc[:1]) == ([ServingRequest(0.0, 10, 4)], "")


def test_requests_that_cannot_be_scheduled_say_why_in_the_place_of_the_schedule(monkeypatch) -> None:
    monkeypatch.setitem(PRESETS, "All at once", [(0, 10, 4)] * 17)
    app = with_sweeps(*SWEEPS)
    assert errors(app) == "There are 17 requests; 1 to 16 can be scheduled."
    assert app.selectbox(key="serving-preset").value == "All at once"


def test_a_real_batch_is_shown_and_a_later_one_that_fails_leaves_it() -> None:
    found = batch(SHORT, LONG)
    found.place = PLACE
    done = Job("me", "smollm2-135m", None, 1, state="done", result=found)
    app = opened("serving", **{"work batched": done})
    assert not app.exception
    assert "Each of the 2 rows chose the same tokens in the batch as alone" in texts(app)
    assert "2 prompts were padded on the left to 4 positions" in texts(app)
    failed = Job("me", "smollm2-135m", None, 1, state="failed", error=RequestError("Too long."))
    app.session_state["work batched"] = failed
    app.run()
    assert errors(app) == "Too long."
    assert "Each of the 2 rows chose the same tokens" in texts(app)


def test_the_real_batch_keeps_to_the_servers_limits(monkeypatch) -> None:
    monkeypatch.setattr(session, "limits", lambda: Limits(prompt_tokens=3, new_tokens=2))
    greedy = SamplingParams(greedy=True)
    work = batched._work([GenerationRequest(prompt=text, sampling=greedy) for text in ("opera", "xyz")])
    found = work(tiny_model(), lambda share: None, lambda: False)
    assert [len(row.tokens) for row in found.rows] == [2, 2]
    with pytest.raises(RequestError, match="The prompt has 4 tokens; this server takes at most 3"):
        batched._work([GenerationRequest(prompt="wxyz")])(tiny_model(), lambda share: None, lambda: False)


def test_the_real_batch_asks_greedily_or_with_the_runs_settings_and_a_seed_a_row(monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(session, "ask_model", lambda name, trace, n, work: asked.append((name, n)))
    monkeypatch.setattr(batched, "_work", lambda requests: asked.append(requests))
    app = opened("serving")
    (requests,) = asked
    assert [request.sampling.is_greedy for request in requests] == [True] * 4
    assert [request.prompt for request in requests] == [prompt for prompt, _ in batched.PROMPTS]
    asked.clear()
    app.toggle(key="batched-drawn").set_value(True).run()
    (requests,) = asked
    trace = session.demo()
    assert [request.sampling for request in requests] == [
        replace(trace.sampling, seed=trace.sampling.seed + row) for row in range(4)
    ]
    assert all(request.chat == trace.request.chat for request in requests)
