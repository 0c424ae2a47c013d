"""Masks: the one that the layer really used, those of other architectures, and the softmax by hand."""

from __future__ import annotations

import streamlit as st

from charts.masks import compared_masks, example_chart, used_mask
from inference.attention_rows import recorded_layers
from inference.errors import InferenceError
from inference.masks import parse_scores, softmax_with_mask
from inference.trace import Trace
from ui import session
from ui.attention.heads import layer_choice
from ui.cards import chart_card
from ui.i18n import _, error_text
from ui.literal import literal

COMPARED = 8  # positions of the masks that are compared


def masks(trace: Trace, step: int) -> None:
    """The three cards."""
    left, right = st.columns([5, 6])
    with left:
        _used(trace, step)
    with right:
        _compared()
    _by_hand()


def _used(trace: Trace, step: int) -> None:
    layers = recorded_layers(trace)
    if not layers:
        st.text(_("This run holds no attention, so the masks that its layers used are not known."))
        return
    layer = layer_choice(layers)
    visible, spec = trace.visible(step, layer), trace.layers[layer] if trace.layers else None
    chart = used_mask(
        visible,
        trace.first_position(step),
        trace.tokens[: visible.shape[1]],
        None if spec is None else spec.window,
        layer=layer,
        palette=session.palette(),
        t=_,
    )
    chart_card(chart, "used-mask", t=_)


def _compared() -> None:
    with st.container(horizontal=True):
        window = st.slider(_("Window"), 1, COMPARED, 3, key="mask-window")
        n_prefix = st.slider(_("Prefix"), 0, COMPARED, 4, key="mask-prefix")
    chart_card(compared_masks(COMPARED, window, n_prefix, palette=session.palette(), t=_), "compared-masks", t=_)


def _by_hand() -> None:
    """Scores that the reader types; what cannot be read is said in place, and stays in its field."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        text = st.text_input(_("Scores"), "2, 1, 5", key="mask-scores", max_chars=200)
        try:
            scores = parse_scores(text)
        except InferenceError as error:
            st.error(literal(error_text(error)))
            return
        hidden = st.pills(
            _("Hidden positions"), range(len(scores)), selection_mode="multi", default=[min(2, len(scores) - 1)],
            key=f"mask-hidden-{len(scores)}",
        )  # fmt: skip
    example = softmax_with_mask(scores, hidden)
    chart_card(example_chart(example, palette=session.palette(), t=_), "softmax-by-hand", t=_)
