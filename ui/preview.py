"""Before a run: the prompt as the model will see it, the settings in effect and their origin, and the record's size."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import streamlit as st
from numpy.typing import NDArray

from inference.budget import plan
from inference.errors import LIST, N_, InferenceError
from inference.request import GenerationRequest
from inference.sampling_params import SamplingParams, resolve
from inference.tokens import written_by
from ui import session
from ui.asked import PARTS, Asked
from ui.i18n import _, error_text, note_text
from ui.model_key import model_key

if TYPE_CHECKING:
    from inference.models import LoadedModel

ORIGINS = {"yours": N_("yours"), "checkpoint": N_("checkpoint"), "default": N_("default")}


def preview(asked: Asked) -> None:
    """The three tables, or a sentence where the model is not loaded yet."""
    model = session.models().loaded(model_key(asked.model, asked.element))
    if model is None:
        st.text(_("The model is not loaded yet; it is loaded by the first run."))
        return
    try:
        request = asked.request(session.limits().trace_bytes)
        ids = model.tokenizer.encode(request)
        session.limits().check_prompt(len(ids))
        left, right = st.columns([3, 2])
        with left:
            _prompt(model, request, ids)
        with right:
            _cost(model, request, len(ids))
            _settings(model, request)
    except InferenceError as error:
        st.text(error_text(error))


def _prompt(model: LoadedModel, request: GenerationRequest, ids: NDArray[np.int64]) -> None:
    tokens = [model.tokenizer.vocabulary.token(int(i)) for i in ids]
    yours = written_by([token.data for token in tokens], request.texts)
    frame = pd.DataFrame(
        {
            _("position"): range(len(tokens)),
            _("token"): [token.display for token in tokens],
            _("id"): [token.id for token in tokens],
            _("from"): [_("you") if mine else _("template") for mine in yours],
        }
    )
    st.text(
        _("{n} tokens, {added} of them added by the template or the tokenizer", n=len(ids), added=yours.count(False))
    )
    st.dataframe(frame, hide_index=True, height=260)


def _cost(model: LoadedModel, request: GenerationRequest, n_prompt: int) -> None:
    planned = plan(model.footprint, request.record, n_prompt, request.max_new_tokens)
    parts = tuple(f"{_(PARTS[name])} {nbytes / 2**20:.1f}" for name, nbytes in planned.nbytes.items() if nbytes)
    st.text(_("The record takes at most {mib:.1f} MiB ({parts}).", mib=planned.total_bytes / 2**20, parts=parts))
    for note in planned.left_out:
        st.text(note_text(note))


def _settings(model: LoadedModel, request: GenerationRequest) -> None:
    params, origins = resolve(request.sampling, model.generation_settings)
    always = ("temperature", "top_k", "top_p", "repetition_penalty", *(() if params.is_greedy else ("seed",)))
    rows = []
    for field in fields(SamplingParams):
        value = getattr(params, field.name)
        if value not in (None, ()) or field.name in always:
            origin = _(ORIGINS[origins[field.name]])
            rows.append({_("setting"): field.name, _("value"): _shown(field.name, value), _("origin"): origin})
    eos = _(LIST).join(f"{model.tokenizer.vocabulary.token(i).display} ({i})" for i in model.eos_ids) or _("none")
    rows.append({_("setting"): "eos_token_id", _("value"): eos, _("origin"): _(ORIGINS["checkpoint"])})
    st.dataframe(pd.DataFrame(rows), hide_index=True, height=210)


def _shown(name: str, value: Any) -> str:
    if value in (None, ()):
        return _("drawn anew") if name == "seed" else _("off")
    return " → ".join(value) if isinstance(value, tuple) else str(value)
