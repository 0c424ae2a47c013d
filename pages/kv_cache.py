"""KV cache: what the cache holds and saves, what dropping or shrinking it does, and how requests share it."""

from __future__ import annotations

import streamlit as st

from inference.errors import N_
from ui import frame, live, session
from ui.i18n import _
from ui.kv.blocks import blocks
from ui.kv.cleanup import cleanup
from ui.kv.growth import growth
from ui.kv.parity import parity
from ui.kv.quantised import quantised

PARTS = {
    "growth": (N_("Growth"), growth),
    "parity": (N_("With and without"), parity),
    "cleanup": (N_("Clean-up"), cleanup),
    "quantised": (N_("Quantised"), quantised),
    "blocks": (N_("Blocks and prefixes"), blocks),
}

trace = session.trace()
frame.title_row(trace, _("KV cache"))
part = st.segmented_control(
    _("Part of the page"),
    list(PARTS),
    format_func=lambda name: _(PARTS[name][0]),
    key="kv-part",
    default="growth",
    required=True,
    label_visibility="collapsed",
    persist_state="session",
)
if (followed := session.followed()) is not None:
    live.follow(followed)
PARTS[part][1](trace)
