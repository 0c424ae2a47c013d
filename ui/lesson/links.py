"""From a station into the full page, which then shows the same run in the same state."""

from __future__ import annotations

import secrets
from typing import Any

import streamlit as st

from inference.sampling_params import SamplingParams
from inference.trace import Trace
from ui.attention.memory import remembered
from ui.calculator.controls import put
from ui.calculator.plan import Plan
from ui.components.head_view import Place
from ui.lesson import runs
from ui.lesson.station import Scene

Target = tuple[str, dict[str, str]]


def to_playback(run: Trace, step: int) -> Target:
    """A step of a run in Playback."""
    runs.put_on_show(run, step)
    return "pages/playback.py", {}


def to_form(scene: Scene, text: str) -> Target:
    """Playback with the text in its form, and the preview of its tokens."""
    runs.put_on_show(scene.run, 0)
    st.session_state["preview"] = True
    if "prompt" not in st.session_state:  # the form takes its first values from the address
        return "pages/playback.py", {"model": runs.MODEL, "prompt": text, "chat": "false"}
    st.session_state.update({"model": runs.MODEL, "prompt": text, "chat": False})
    return "pages/playback.py", {}


def to_attention(run: Trace, layer: int, head: int, position: int) -> Target:
    """One token of the prompt in one head."""
    runs.put_on_show(run, 0)
    st.session_state.pop("_attention", None)  # where the reader was before, under a name that the browser still knows
    name: str = remembered(run, "name", lambda: secrets.token_hex(4))
    places: dict[str, Place] = remembered(run, "places", dict)
    whole = (0, len(run.tokens) - 1)
    places["start"] = places["now"] = Place(f"{name}-0", position, "reads", whole, whole)
    return "pages/attention_page.py", {"layer": str(layer), "head": str(head), "step": "0"}


def to_sampling(run: Trace, params: SamplingParams) -> Target:
    """The first step in the lab, with these settings."""
    runs.put_on_show(run, 0)
    st.session_state.pop("_sampling_lab_lab-run", None)  # else the lab would keep the settings of its last look
    st.session_state.update(
        {"lab start run": (run.sampling, params), "lab link": True, "lab step": "", "source": "run"}
    )
    return "pages/sampling_lab.py", {"step": "0"}


def to_cache(run: Trace, step: int) -> Target:
    """The cache as it grew up to a step."""
    runs.put_on_show(run, step)
    st.session_state["kv-part"] = "growth"
    return "pages/kv_cache.py", {}


def to_calculator(**figures: Any) -> Target:
    """The calculator with these figures of its sliders."""
    put(Plan(**figures))
    return "pages/calculator.py", {}


def to_timing(run: Trace, times: str) -> Target:
    """The run's times, and these typed ones."""
    runs.put_on_show(run, 0)
    st.session_state.update({"timing-part": "request", "typed-times": times})
    return "pages/timing.py", {}


def to_experts(routed: Trace, layer: int, position: int) -> Target:
    """One token's experts in one layer."""
    runs.put_on_show(routed, 0, model="experts")
    st.session_state.update({"expert-layer": layer, "expert-position": position})
    return "pages/experts_page.py", {}
