"""The components on a page of their own, with hand-made runs: what tests/browser/test_components.py drives."""

from dataclasses import replace

import streamlit as st

from charts.attention import attention_map
from charts.base import Palette
from charts.distribution import distribution
from charts.kv_growth import kv_growth
from inference.sampling import SamplingParams
from inference.stopping import Finish
from inference.trace import Trace
from tests.charts.runs import logits_of, run
from ui.cards import chart_card, metric_row
from ui.components.player import live_strip, player

st.set_page_config(layout="wide")


@st.cache_resource
def recorded(name: str) -> Trace:
    """The runs by name; built once, because the player tells runs apart by identity."""
    if name == "pieces":  # an emoji of three tokens, markup, a stop string that begins inside a token
        finish = Finish("stop_string", text="t on", at=5)
        logits = logits_of(9)
        logits[:, [12, 13, 14]] += 8  # markup among the likeliest
        return run(prompt=(2, 12, 5, 15), chosen=(9, 10, 11, 14, 0, 8, 4, 6, 17), logits=logits, finish=finish)
    if name == "long":
        return run(prompt=[i % 19 for i in range(400)], chosen=[i * 7 % 20 for i in range(3600)])
    settings = SamplingParams(temperature=0.8, top_k=6, top_p=0.9)
    trace = run(chosen=[3, 7, 19, 2, 1, 4, 6, 3, 7, 19, 16, 13], sampling=settings)
    # its own tempo: 50 ms a step, but for one that takes a second
    timings = [replace(s.timing, forward_s=1.0 if s.index == 6 else 0.05, sampling_s=0.0) for s in trace.steps]
    return replace(trace, steps=tuple(replace(s, timing=w) for s, w in zip(trace.steps, timings, strict=True)))


def spanish(text: str) -> str:
    """A language of one word, to see the strip follow it."""
    return {"Play": "Reproducir"}.get(text, text)


@st.fragment
def stage() -> None:
    """The player, the figures and the charts, as a page would place them."""
    trace = recorded(st.query_params.get("run", "short"))
    t = spanish if st.toggle("Spanish") else str
    palette = Palette.dark() if st.context.theme.type == "dark" else Palette.light()
    if st.button("Go to 5"):
        st.session_state.step = 5
    step = st.session_state.step = player(trace, st.session_state.get("step", 1), t=t, key="player")
    st.text(f"server at {step}")
    if "charts" in st.query_params:
        metric_row(trace, step, t=t, palette=palette)
        columns = st.columns(3)
        for column, chart in zip(columns, (distribution, kv_growth), strict=False):
            with column:
                chart_card(chart(trace, step, palette=palette, t=t), chart.__name__)
        with columns[2]:
            chart_card(attention_map(trace, step, 1, 2, palette=palette, t=t), "attention")


@st.fragment
def going_on() -> None:
    """A live run: each click brings the next token."""
    trace = recorded("pieces")
    n = st.session_state.setdefault("n", len(trace.prompt_tokens))
    if st.button("Next token"):
        n = st.session_state.n = n + 1
    logprobs = [step.decision.raw_logprob for step in trace.steps][: n - trace.n_prompt]
    live_strip(trace.tokens[:n], t=str, key="live", n_prompt=trace.n_prompt, logprobs=logprobs)


if "live" in st.query_params:
    going_on()
elif st.toggle("Show the player", value=True):
    stage()
