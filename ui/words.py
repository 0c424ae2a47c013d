"""A step and a run in words: what was fed, what the cache holds, what was chosen, and why the run ended."""

from __future__ import annotations

from inference.trace import Trace
from ui.i18n import _, note_text, sentences


def step_words(trace: Trace, step: int) -> str:
    """One or two sentences about a step."""
    record = trace.steps[step]
    chosen, positions = trace.vocabulary.token(record.token_id), int(record.kv.positions.max(initial=0))
    if step == 0:
        fed = _("Prefill fed all {n} prompt tokens in one go", n=len(record.fed_ids))
    else:
        fed = _("Decode fed one token, {token}", token=trace.tokens[trace.n_prompt + step - 1].display)
    held = _("the cache now holds {n} positions", n=positions)
    took = _("{token} (id {id}) was chosen", token=chosen.display, id=chosen.id)
    if record.decision.forced:
        took = _("{token} (id {id}) was put in by you", token=chosen.display, id=chosen.id)
    last = step == len(trace.steps) - 1 and trace.finish.reason not in ("cancelled", "error")
    after = _("it is never fed.") if last else _("it is not in the cache yet: the next step writes it there.")
    return _("{fed}; {held}. {took}; {after}", fed=fed, held=held, took=took, after=after)


def step_table(trace: Trace, step: int) -> list[dict[str, object]]:
    """The prefill/decode table up to a step: a row a step, the last few only."""
    first = max(0, step - 7)
    return [_row(trace, index) for index in range(first, step + 1)]


def _row(trace: Trace, index: int) -> dict[str, object]:
    record = trace.steps[index]
    fed = (
        _("{n} prompt tokens", n=len(record.fed_ids))
        if index == 0
        else trace.tokens[trace.n_prompt + index - 1].display
    )
    return {
        _("step"): index,
        _("phase"): _("prefill") if index == 0 else _("decode"),
        _("fed to the model"): fed,
        _("positions in the cache after it"): int(record.kv.positions.max(initial=0)),
        _("dropped"): int(record.kv.dropped.max(initial=0)),
        _("chosen from its logits"): f"{trace.vocabulary.token(record.token_id).display} ({record.token_id})",
    }


def finish_words(trace: Trace) -> str:
    """Why a run ended, exactly, and what its record leaves out."""
    finish = trace.finish
    token = "" if finish.token_id is None else trace.vocabulary.token(finish.token_id).display
    reasons = {
        "eos": _("Ended by the end token {token} (id {id}).", token=token, id=finish.token_id),
        "stop_string": _("Ended by the stop string {stop!r} at character {at}.", stop=finish.text, at=finish.at),
        "length": _("Ended by the limit of {n} new tokens.", n=len(trace.steps)),
        "context": _("Ended because the model's context is full."),
        "cancelled": _("Cancelled after {n} tokens.", n=len(trace.steps)),
        "error": _("Ended by an error: {reason}", reason=finish.text),
    }
    eager = [_("Attention was run in eager mode: {why}.", why=_(trace.model.attention_note))]
    notes = [note_text(note) for note in trace.left_out] + eager * (trace.model.attention == "eager")
    return sentences([reasons[finish.reason], *notes])
