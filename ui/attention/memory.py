"""What the page has computed for the run on show: kept for the session, bounded, forgotten with the run."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import streamlit as st

from inference.trace import Trace

T = TypeVar("T")

MOST = 24  # a pooled matrix takes 256 KiB, a layer's rows a few MiB at 4,000 positions


@dataclass
class _Memory:
    trace: weakref.ref[Trace]
    found: OrderedDict[Hashable, Any] = field(default_factory=OrderedDict)


def known(trace: Trace, key: Hashable) -> bool:
    """Whether it need not be made for this run."""
    memory: _Memory | None = st.session_state.get("_attention")
    return memory is not None and memory.trace() is trace and key in memory.found


def remembered(trace: Trace, key: Hashable, make: Callable[[], T], most: int = MOST) -> T:
    """What `make` gives for this run and key, made once while it is among the latest."""
    memory: _Memory | None = st.session_state.get("_attention")
    if memory is None or memory.trace() is not trace:
        memory = st.session_state["_attention"] = _Memory(weakref.ref(trace))
    if key not in memory.found:
        memory.found[key] = make()
    memory.found.move_to_end(key)
    while len(memory.found) > most:
        memory.found.popitem(last=False)
    found: T = memory.found[key]
    return found
