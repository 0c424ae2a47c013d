"""The sampling lab: the whole pipeline recomputed in the browser while a slider moves, and confirmed by the server.

The logits go to the browser once, as bytes, through an instance of the component that holds nothing else: its message
never changes, so Streamlit does not send it again. What the reader sets comes back on release; the server computes the
same with `run_pipeline`, and the browser compares the two. Settings that the page asks for carry a serial number, so
that they can be told from those that the reader has made since.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from typing import Any

import numpy as np
import streamlit as st
from numpy.typing import NDArray

from charts.base import Translate
from inference.errors import InferenceError, SamplingError
from inference.sampling import choose, run_pipeline
from inference.sampling_params import RANGES, SamplingParams
from inference.sampling_steps import ORDERS, Context, leading
from ui.components.lab_words import lab_words
from ui.components.mount import mount

LABELLED = 200  # tokens of the highest logits, and as many of the context's latest, whose texts are sent
COMPARED = 14  # final probabilities that the browser compares with its own

# setting -> smallest and largest value of its slider, step of the slider, value that is off (None: left out)
SLIDERS: Mapping[str, tuple[float, float, float, float | None]] = {
    "temperature": (0, 2, 0.05, 1),
    "top_k": (0, 100, 1, 0),
    "top_p": (0, 1, 0.01, 1),
    "min_p": (0, 1, 0.01, 0),
    "repetition_penalty": (0.5, 2, 0.05, 1),
    "presence_penalty": (-2, 2, 0.1, 0),
    "frequency_penalty": (-2, 2, 0.1, 0),
    "typical_p": (0, 1, 0.01, 1),
    "top_h": (0, 1, 0.01, None),
    "epsilon_cutoff": (0, 0.1, 0.001, 0),
    "eta_cutoff": (0, 0.1, 0.001, 0),
    "no_repeat_ngram_size": (0, 6, 1, 0),
    "min_new_tokens": (0, 50, 1, 0),
}
N_VISIBLE = 7  # the others stand behind "More settings"

_LAB = mount(
    "sampling_lab",
    "elements",
    "pipeline",
    "sampling_controls",
    "sampling_columns",
    "sampling_needle",
    styles=("slider",),
)


@dataclass(frozen=True)
class LabState:
    """What the reader has set, as the server has confirmed it.

    Attributes:
        params: the settings, the order of steps included.
        u: the uniform number that chooses the token, in [0, 1).
    """

    params: SamplingParams
    u: float


@dataclass
class _Memory:
    """What the server knows of one lab between reruns.

    Attributes:
        run: names the logits and the context.
        passed: what the page gave last.
        asked: what the browser was told to show last, and `serial` the number of that.
        told: what was returned last.
        labels: JSON of the texts of tokens by id.
        n: the number of the browser's latest report.
    """

    run: str
    passed: LabState
    asked: LabState
    told: LabState
    labels: str
    serial: int = 0
    n: int = 0
    refusal: InferenceError | None = field(default=None)

    def ask(self, state: LabState) -> None:
        """Note that the browser is to show a state; what it reported before no longer counts."""
        self.serial, self.n, self.asked, self.told, self.refusal = self.serial + 1, 0, state, state, None


def sampling_lab(
    logits: NDArray[np.float32],
    tokens: Callable[[Sequence[int]], list[str]],
    *,
    context: Context,
    start: SamplingParams,
    u: float,
    recorded_id: int | None,
    notes: Callable[[LabState], Mapping[str, str]],
    t: Translate,
    key: str,
) -> LabState:
    """Draw the controls, the columns of the pipeline and the bar with the needle; return what the reader has set.

    Args:
        logits: [V] raw logits of the step; -inf marks a token that cannot be chosen.
        tokens: readable texts of token ids.
        context: the ids written so far, how many of them are prompt, and the end tokens.
        start: the settings to begin with. The reader's own stay until another `start` is given; giving back what was
            returned leaves the reader alone.
        u: the uniform number recorded at this step.
        recorded_id: the token that the run took here, if there was one.
        notes: short explanations by name of setting (`"greedy"`, `"random"`, `"temperature"`, …) for a confirmed state,
            so that they can hold its figures.
    """
    logits = np.ascontiguousarray(logits, dtype=np.float32)
    run = _name(logits, context)
    memory = _remember(key, run, LabState(start, u), lambda: _labels(logits, context, recorded_id, tokens))
    _hear(key, memory)
    answer = _answer(logits, context, memory, tokens, t)
    state = memory.told
    data = {
        "run": run,
        "labels": memory.labels,
        "context": {"ids": context.ids.tolist(), "nPrompt": context.n_prompt, "eosIds": list(context.eos_ids)},
        "goto": {"serial": memory.serial, "settings": asdict(memory.asked.params), "u": memory.asked.u},
        "recorded": {"id": recorded_id, "u": u},
        "orders": ORDERS,
        "ranges": RANGES,
        "sliders": [[name, *values] for name, values in SLIDERS.items()],
        "n_visible": N_VISIBLE,
        "notes": dict(notes(state)),
        "answer": answer,
        "words": lab_words(t),
    }
    with st.container(gap=None):
        _LAB(key=f"{key}-logits", data=run.encode() + logits.tobytes())
        _LAB(key=key, data=data, on_set_change=_ignore)
    return state


def _ignore() -> None:
    """A change of state needs a callback to be reported; the value is read on the next run of the page."""


def _name(logits: NDArray[np.float32], context: Context) -> str:
    """32 characters that name the logits and the context for the browser."""
    digest = blake2b(logits.tobytes(), digest_size=16)
    digest.update(repr((context.ids.tolist(), context.n_prompt, context.eos_ids)).encode())
    return digest.hexdigest()


def _remember(key: str, run: str, given: LabState, labels: Callable[[], str]) -> _Memory:
    """The lab's memory; the reader's settings stay at another step, where the number `u` is another."""
    name = f"_sampling_lab_{key}"
    memory: _Memory | None = st.session_state.get(name)
    if memory is None:
        memory = st.session_state[name] = _Memory(run, given, given, given, labels())
        return memory
    before, told = memory.passed, memory.told
    params = told.params if given.params in (before.params, told.params) else given.params
    u = told.u if run == memory.run and given.u in (before.u, told.u) else given.u
    if run != memory.run:
        memory.run, memory.labels = run, labels()
        memory.ask(LabState(params, u))
    elif LabState(params, u) != told:
        memory.ask(LabState(params, u))
    memory.passed = given
    return memory


def _hear(key: str, memory: _Memory) -> None:
    """Take what the browser reported since the page's last wish; settings that are refused leave the last good ones."""
    state: Mapping[str, Any] = st.session_state.get(key) or {}
    said = state.get("set")
    if not isinstance(said, Mapping) or (said.get("run"), said.get("serial")) != (memory.run, memory.serial):
        if memory.told != memory.asked:  # the browser has lost it: another page was shown in between
            memory.ask(memory.told)
        return
    if said.get("n") == memory.n:
        return
    memory.n, memory.refusal = int(said["n"]), None
    try:
        memory.told = _state_of(said, memory.asked.params)
    except SamplingError as error:
        memory.refusal = error


def _state_of(said: Mapping[str, Any], params: SamplingParams) -> LabState:
    order = said["settings"]["order"]
    named = {name: said["settings"].get(name) for name in ("greedy", *SLIDERS)}
    u = min(max(float(said["u"]), 0.0), float(np.nextafter(1, 0)))
    return LabState(replace(params, **named, order=order if isinstance(order, str) else tuple(order)), u)


def _answer(
    logits: NDArray[np.float32],
    context: Context,
    memory: _Memory,
    tokens: Callable[[Sequence[int]], list[str]],
    t: Translate,
) -> dict[str, Any]:
    """What the server computed for the latest report: each stage's count and sum of ids, and the leading tokens."""
    try:
        if memory.refusal is not None:
            raise memory.refusal
        params = memory.told.params
        stages = run_pipeline(logits, params, context.ids.tolist(), context.n_prompt, context.eos_ids)
    except InferenceError as error:
        return {"n": memory.n, "error": error.text(t)}
    kept = [np.flatnonzero(stage.kept) for stage in stages]
    final = stages[-1].probs
    ids = kept[-1][leading(final[kept[-1]], COMPARED)[:COMPARED]]
    chosen = choose(stages, memory.told.u)
    return {
        "n": memory.n,
        "stages": [[stage.name, len(k), int(k.sum())] for stage, k in zip(stages, kept, strict=True)],
        "ids": ids.tolist(),
        "probs": final[ids].tolist(),
        "chosen": chosen,
        "labels": dict(zip(map(str, (*ids.tolist(), chosen)), tokens([*ids.tolist(), chosen]), strict=True)),
    }


def _labels(
    logits: NDArray[np.float32],
    context: Context,
    recorded_id: int | None,
    tokens: Callable[[Sequence[int]], list[str]],
) -> str:
    """JSON of the texts of the tokens that are likely to be shown."""
    n = min(LABELLED, len(logits))
    highest = np.argpartition(-np.nan_to_num(logits, nan=-np.inf), n - 1)[:n].tolist()
    recent = [int(i) for i in context.ids[-LABELLED:] if i < len(logits)]
    ids = sorted({*highest, *recent} | ({recorded_id} if recorded_id is not None else set()))
    return json.dumps(dict(zip(map(str, ids), tokens(ids), strict=True)), ensure_ascii=False)
