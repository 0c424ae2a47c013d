"""Inferoscope: navigation and the frame of every page."""

from __future__ import annotations

import streamlit as st

from ui.components.tab import tab
from ui.i18n import _, spoken
from ui.live import heartbeat
from ui.session import address, attend, warm_up

st.set_page_config(
    page_title="Inferoscope", page_icon="static/icon.svg", layout="wide", menu_items={"About": "Inferoscope"}
)
attend()
page = st.navigation(
    [
        st.Page("pages/playback.py", title=_("Playback"), icon=":material/play_circle:", url_path="run", default=True),
        st.Page("pages/lesson_page.py", title=_("Lesson"), icon=":material/school:", url_path="lesson"),
        st.Page("pages/sampling_lab.py", title=_("Sampling lab"), icon=":material/tune:", url_path="sampling"),
        st.Page("pages/attention_page.py", title=_("Attention"), icon=":material/grid_on:", url_path="attention"),
        st.Page("pages/experts_page.py", title=_("Experts"), icon=":material/hub:", url_path="experts"),
        st.Page("pages/timing.py", title=_("Prefill and decode"), icon=":material/timer:", url_path="prefill"),
        st.Page("pages/kv_cache.py", title=_("KV cache"), icon=":material/memory:", url_path="kv"),
        st.Page("pages/calculator.py", title=_("Memory calculator"), icon=":material/calculate:", url_path="memory"),
    ],
    position="top",
)
page.run()
heartbeat()
tab({**address(), **spoken()}, page=page.url_path)
warm_up()
