"""The two sections on a page of their own, with the tiny model in the place of the embedded one."""

import streamlit as st

from inference.engine import record
from inference.request import GenerationRequest, RecordOptions
from inference.sampling_params import SamplingParams
from inference.trace import Trace
from tests.scripted import tiny_model
from ui import session
from ui.attention.forcing import teacher_forcing
from ui.attention.lens import logit_lens
from ui.worker import Job


@st.cache_resource
def recorded(hidden: bool) -> Trace:
    """A run of the tiny model under the embedded model's name."""
    request = GenerationRequest(
        prompt="abc",
        max_new_tokens=5,
        sampling=SamplingParams(greedy=True),
        ignore_eos=True,
        record=RecordOptions(hidden=hidden),
    )
    return record(tiny_model(), request)


session.models()._load = lambda name, progress: tiny_model()
if "trace" not in st.session_state:
    trace = recorded("without" not in st.query_params)
    made = Job(session.session_id(), "smollm2-135m", None, 5, state="done", trace=trace)
    session.shelf().put(made)
    session.put_on_show(made)
trace = session.trace()
if st.query_params.get("section") == "lens":
    logit_lens(trace, 2)
else:
    teacher_forcing(trace)
