"""Drawing a thousand times from the distribution that the settings leave."""

from __future__ import annotations

import streamlit as st

from charts.draws import draws_chart
from inference.draws import draw_many
from inference.sampling import SamplerStage
from ui import session
from ui.cards import chart_card
from ui.i18n import _
from ui.sampling.spot import Spot

N = 1000


def repeated(spot: Spot, last: SamplerStage) -> None:
    """The button, and once it was pressed the counts; each press takes the next seed."""
    if st.button(_("Draw {n:,} times", n=N), icon=":material/casino:", key="draw"):
        st.session_state["lab seed"] = st.session_state.get("lab seed", 0) + 1
    seed = st.session_state.get("lab seed")
    if seed:
        chart = draws_chart(draw_many(last, N, seed), spot.tokens, seed, palette=session.palette(), t=_)
        chart_card(chart, "draws", t=_)
