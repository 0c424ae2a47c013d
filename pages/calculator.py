"""Memory calculator: what the KV cache of any model takes, live, and what fits beside the weights."""

from __future__ import annotations

import streamlit as st

from ui import frame, session
from ui.calculator import calculator, lessons, published
from ui.i18n import _

frame.badge_row(_("Memory calculator"))
calculator.calculator(session.trace())
left, right = st.columns([1.3, 1])
with left:
    lessons.many_users()
with right:
    lessons.one_gibibyte()
    published.published()
