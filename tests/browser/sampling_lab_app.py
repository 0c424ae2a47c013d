"""The sampling lab on a page of its own: driven by test_sampling_lab.py and benchmarks/sampling_lab.py."""

from dataclasses import replace
from typing import Any

import numpy as np
import streamlit as st

import ui.components.sampling_lab as component
from inference.sampling import SamplerStage, SamplingParams, run_pipeline
from inference.sampling_steps import Context
from ui.components.sampling_lab import LabState, sampling_lab

st.set_page_config(layout="wide")
WORDS = {0: "·tired", 1: "·sleepy", 2: "·hungry", 3: "<b>x</b>", 4: "$y$"}
PROBS = (0.6, 0.2, 0.1, 0.06, 0.04)


def pipeline(logits: np.ndarray, params: SamplingParams, *context: Any) -> list[SamplerStage]:
    """The server's pipeline; with `?wrong` in the address one that computes something else."""
    return run_pipeline(logits, replace(params, top_k=1) if "wrong" in st.query_params else params, *context)


component.run_pipeline = pipeline


@st.cache_data
def logits_of(size: int) -> np.ndarray:
    """Five tokens with known probabilities, or a vocabulary of random logits; `nan` for a broken model."""
    if size == len(PROBS):
        return np.log(np.array(PROBS)).astype(np.float32)
    return np.random.default_rng(size).normal(0, 3, size).astype(np.float32)


def notes(state: LabState) -> dict[str, str]:
    """An explanation that holds a figure of the confirmed state."""
    return {"temperature": f"Confirmed: {state.params.temperature}", "random": "Drawn at random."}


@st.fragment
def lab() -> None:
    """The component, and what it returned."""
    size = int(st.query_params.get("size", len(PROBS)))
    logits = logits_of(size)
    if "nan" in st.query_params:
        logits = logits.copy()
        logits[1] = np.nan
    step = int(st.toggle("Next step"))
    state = sampling_lab(
        logits if not step else logits[::-1],
        lambda ids: [WORDS.get(i, f"·t{i}") for i in ids],
        context=Context(np.array([2, 0, 0], dtype=np.int64), 1, ()),
        start=SamplingParams(greedy=False, temperature=0.7),
        u=(0.7, 0.05)[step],
        recorded_id=0,
        notes=notes,
        t=str,
        key="lab",
    )
    st.text(f"T={state.params.temperature} k={state.params.top_k} order={state.params.order} u={state.u:.4f}")


lab()
