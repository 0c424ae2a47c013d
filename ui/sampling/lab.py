"""The Sampling lab: the live pipeline of one position, and what its settings mean for the curves and the whole run."""

from __future__ import annotations

import streamlit as st

from inference.errors import N_, InferenceError
from inference.position import settled
from inference.sampling_params import SamplingParams
from inference.trace import Trace
from ui.components.sampling_lab import LabState, sampling_lab
from ui.i18n import _, error_text
from ui.literal import literal
from ui.sampling.curves import curves
from ui.sampling.link import NAMES, from_query, to_query
from ui.sampling.notes import notes, stages
from ui.sampling.repeated import repeated
from ui.sampling.run import over_the_run, run_choices
from ui.sampling.spot import Spot, pick, run_spot, typed_spot

SOURCES = {"run": N_("A step of the run"), "typed": N_("Typed by hand")}


@st.fragment
def lab(trace: Trace) -> None:
    """Everything about one position; a slider or another step runs this part of the page alone."""
    source = pick(_("Distribution"), "source", SOURCES, label_visibility="collapsed")
    spot = typed_spot() if source == "typed" else run_spot(trace)
    if spot is None:
        return
    state = _live(spot)
    try:
        last = stages(spot, state.params)[-1]
        found = run_choices(trace, state.params) if spot.step >= 0 else []
    except InferenceError as error:
        st.error(literal(error_text(error)))
        return
    curves(spot, state, found)
    left, right = st.columns(2) if spot.step >= 0 else (st.container(), None)
    with left:
        repeated(spot, last)
    if right is not None:
        with right:
            over_the_run(trace, state.params, found)


def _live(spot: Spot) -> LabState:
    """The component, beginning with the settings of the link; the address follows what the reader sets."""
    state = sampling_lab(
        spot.position.logits,
        spot.tokens,
        context=spot.position.context,
        start=_begin(spot),
        u=spot.u,
        recorded_id=spot.recorded_id,
        notes=lambda now: notes(spot, now),
        t=_,
        key=f"lab-{spot.name}",
    )
    changed = to_query(spot.start, state.params)
    for name in NAMES:
        if name in changed:
            st.query_params[name] = changed[name]
        elif name in st.query_params:
            del st.query_params[name]
    if not _exact_or_refused(spot, state.params):
        said = _(
            "This run holds the {n:,} highest logits of each step, and these settings reach below them: what is shown "
            "here is not exact. It is with top-k on and below {n:,}, or after the prompt was run again.",
            n=spot.position.n_recorded,
        )
        st.info(literal(said))
    return state


def _exact_or_refused(spot: Spot, params: SamplingParams) -> bool:
    """Whether the settings' result is exact, or there is none."""
    try:
        return settled(spot.position, params)
    except InferenceError:
        return True


def _begin(spot: Spot) -> SamplingParams:
    """The spot's own settings, with those of the link on the first look at it; what the link has wrong is said once."""
    name = f"lab start {spot.name}"
    kept: tuple[SamplingParams, SamplingParams] | None = st.session_state.get(name)
    if kept is None:
        params, errors = from_query(spot.start, st.query_params.to_dict() if _first() else {})
        for error in errors:
            st.error(literal(error_text(error)))
        st.session_state[name] = (spot.start, params)
        return params
    if kept[0] != spot.start:  # another run
        st.session_state[name] = (spot.start, spot.start)
        return spot.start
    return kept[1]


def _first() -> bool:
    """True once a session: a link is for the lab that it opened."""
    first = "lab link" not in st.session_state
    st.session_state["lab link"] = True
    return first
