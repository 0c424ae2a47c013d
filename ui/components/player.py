"""The token strip and its transport: plays in the browser, and tells the server which step the reader is on.

The tokens go to the browser once. What the reader does there costs no message but the step; the strip is sent again
only when the run, the language or the page's own wish for a step changes. A step that the page asks for carries a
serial number, so that it can be told from one that the reader has left since.
"""

from __future__ import annotations

import json
import secrets
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import streamlit as st

from charts.base import Translate, percent
from charts.labels import in_context, pending
from charts.metrics import step_seconds
from charts.strip import Strip, glyphs, stop_words, strip, surprise_levels
from inference.tokens import Token
from inference.trace import Trace
from ui.components.mount import mount

ALTERNATIVES = 5

_PLAYER = mount("player", "elements", "player_card", styles=("slider",))


@dataclass
class _Memory:
    """What the server knows of one player between reruns.

    Attributes:
        columns: JSON of the trace's strip, made once.
        asked: the step that the page wished for last, and `serial` the number of that wish.
        told: the step that was returned last.
        run: names the trace for the browser; another trace gets another name.
    """

    trace: weakref.ref[Trace]
    columns: str
    asked: int
    told: int
    serial: int = 0
    run: str = field(default_factory=lambda: secrets.token_hex(8))

    def ask(self, step: int) -> None:
        """Note that the browser is to go to a step; what it reported before no longer counts."""
        self.serial, self.asked, self.told = self.serial + 1, step, step


def player(trace: Trace, step: int, *, t: Translate, key: str, height: int | None = None) -> int:
    """Draw the strip and the transport of a finished run; return the step that the reader is on.

    Args:
        step: where the reader should be. Give back what was returned before to leave the reader alone; any other
            step moves the strip there.
        height: of the strip in pixels; what is longer scrolls.
    """
    if not trace.steps:  # stopped before the first token
        live_strip(trace.tokens, t=t, key=key, n_prompt=trace.n_prompt, height=height)
        return 0
    step = min(max(step, 0), len(trace.steps) - 1)
    memory = _remember(trace, step, key)
    reported = _reported(key, memory)
    if step != memory.told:
        memory.ask(step)
    elif reported is not None:
        memory.told = reported
    elif memory.told != memory.asked:  # the browser has lost what it reported: another page was shown in between
        memory.ask(memory.told)
    goto = {"serial": memory.serial, "step": memory.asked}
    stop = stop_words(trace, t)
    data = {
        "strip": memory.columns,
        "words": _words(t),
        "stop": stop,
        "run": memory.run,
        "goto": goto,
        "height": height,
    }
    _PLAYER(key=key, data=data, on_at_change=_ignore)
    return memory.told


def live_strip(
    tokens: Sequence[Token],
    *,
    t: Translate,
    key: str,
    n_prompt: int = 0,
    logprobs: Sequence[float] = (),
    height: int | None = None,
) -> None:
    """Draw the tokens of a run that is still going on; the newest stays in view.

    Args:
        n_prompt: how many of the tokens are prompt.
        logprobs: raw log-probability of each generated token, for its tint; none are tinted without.
    """
    levels = surprise_levels(logprobs) if len(logprobs) else np.zeros(len(tokens) - n_prompt, dtype=np.uint8)
    shown = Strip(tuple(tokens), n_prompt, levels, glyphs(tokens), None)
    columns = _json(_strip_columns(shown))
    data = {"strip": columns, "live": True, "words": _words(t), "run": "live", "height": height}
    _PLAYER(key=key, data=data, on_at_change=_ignore)


def _remember(trace: Trace, step: int, key: str) -> _Memory:
    """The player's memory; a new one for another trace."""
    name = f"_player_{key}"
    memory: _Memory | None = st.session_state.get(name)
    if memory is None or memory.trace() is not trace:
        memory = _Memory(weakref.ref(trace), _json(_columns(trace)), asked=step, told=step)
        st.session_state[name] = memory
    return memory


def _reported(key: str, memory: _Memory) -> int | None:
    """The step that the browser reported since the page's last wish, or `None`."""
    state: Mapping[str, Any] = st.session_state.get(key) or {}
    at = state.get("at")
    trace = memory.trace()
    if trace is None or not isinstance(at, Mapping) or (at.get("run"), at.get("serial")) != (memory.run, memory.serial):
        return None
    return min(max(int(at["step"]), 0), len(trace.steps) - 1)


def _ignore() -> None:
    """A change of state needs a callback to be reported; the value is read on the next run of the page."""


def _json(columns: dict[str, Any]) -> str:
    """One string: Streamlit then has no thousands of values to walk through on every rerun."""
    return json.dumps(columns, ensure_ascii=False, separators=(",", ":"))


def _columns(trace: Trace) -> dict[str, Any]:
    decisions = [step.decision for step in trace.steps]
    return {
        **_strip_columns(strip(trace)),
        "bytes": [token.data.hex(" ").upper() for token in trace.tokens],
        "raw": [percent(d.raw_prob) for d in decisions],
        "prob": [percent(d.prob) for d in decisions],
        "rank": [d.rank for d in decisions],
        "entropy": [round(d.raw_entropy, 2) for d in decisions],
        "forced": [i for i, d in enumerate(decisions) if d.forced],
        "ends": np.cumsum([step_seconds(step) for step in trace.steps]).round(4).tolist(),
        **_alternatives(trace),
    }


def _strip_columns(shown: Strip) -> dict[str, Any]:
    return {
        "n_prompt": shown.n_prompt,
        "ids": [token.id for token in shown.tokens],
        "texts": [token.display for token in shown.tokens],
        "special": [at for at, token in enumerate(shown.tokens) if token.special],
        "levels": shown.levels.tolist(),
        "glyphs": [[glyph.start, glyph.stop, glyph.text] for glyph in shown.glyphs],
        "cut": shown.cut,
    }


def _alternatives(trace: Trace) -> dict[str, Any]:
    """The likeliest tokens of each step before the settings: their texts once, and which of them at each step."""
    texts: dict[str, int] = {}
    chosen, shares = [], []
    for at, step in enumerate(trace.steps):
        if step.logits is None:
            return {"alternative_texts": [], "alternatives": [], "alternative_shares": []}
        ids, probs = step.logits.top(ALTERNATIVES)
        before = pending(trace.tokens[max(0, trace.n_prompt + at - 8) : trace.n_prompt + at])
        words = [in_context(trace.vocabulary.token(int(i)), before) for i in ids]
        chosen.append([texts.setdefault(word, len(texts)) for word in words])
        shares.append([round(float(p), 4) for p in probs])
    return {"alternative_texts": list(texts), "alternatives": chosen, "alternative_shares": shares}


def _words(t: Translate) -> dict[str, str]:
    """The component's texts; `{…}` is filled in by its script."""
    return {
        "player": t("Token strip"),
        "tokens": t("Tokens of the run; arrow keys step, Space plays, Enter shows details"),
        "live": t("Tokens so far"),
        "transport": t("Transport"),
        "back": t("Step back"),
        "play": t("Play"),
        "pause": t("Pause"),
        "on": t("Step forward"),
        "slider": t("Step"),
        "speed": t("Speed"),
        "own": t("own tempo"),
        "own_help": t("As fast as the run itself was"),
        "step": t("step {step} of {last}"),
        "prefill": t("prefill"),
        "decode": t("decode"),
        "prompt_token": t("prompt token at position {at}: fed in the prefill, not chosen"),
        "generated": t("{token}, probability {raw}, rank {rank}"),
        "id": t("id"),
        "bytes": t("bytes"),
        "raw": t("raw probability"),
        "prob": t("after settings"),
        "rank": t("rank"),
        "entropy": t("entropy"),
        "nats": t("{value} nats"),
        "alternatives": t("likeliest before the settings"),
        "forced": t("put in by hand"),
        "part_of": t("part of {text}"),
        "expected": t("expected"),
        "surprising": t("surprising"),
        "surprise": t("Surprise: the thicker the bar, the less likely the token was"),
        "keys": t("← → step · Space play · Enter details"),
    }
