"""The step table: one row a step, and its CSV and Parquet exports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from inference.trace import StepRecord, Trace

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def table(trace: Trace) -> pd.DataFrame:
    """One row a step; probabilities raw and after the settings, entropies in nats, times in seconds, sizes in bytes.

    `token` is readable with visible spaces, `token_bytes` is exact (hexadecimal); `logprob_sum` is the running
    log-probability of the generated tokens (chain rule).
    """
    frame = pd.DataFrame([_row(trace, step) for step in trace.steps])
    if len(frame):
        frame.insert(frame.columns.get_loc("raw_logprob") + 1, "logprob_sum", np.cumsum(frame["raw_logprob"]))
    return frame


def write(trace: Trace, path: str | Path) -> None:
    """Write the step table as `.csv` or `.parquet`, by the path's ending."""
    path = Path(path)
    if path.suffix == ".parquet":
        table(trace).to_parquet(path, index=False)
    else:
        path.write_text(to_csv(trace), encoding="utf-8")


def to_csv(trace: Trace) -> str:
    """The step table as CSV; a cell that a spreadsheet would run as a formula gets a leading apostrophe."""
    frame = table(trace)
    for name in ("token", "text", "removed"):
        if name in frame:
            frame[name] = [f"'{cell}" if cell.startswith(FORMULA_STARTS) else cell for cell in frame[name]]
    return str(frame.to_csv(index=False))


def _row(trace: Trace, step: StepRecord) -> dict[str, object]:
    token, decision = trace.vocabulary.token(step.token_id), step.decision
    return {
        "step": step.index,
        "phase": step.phase,
        "n_fed": len(step.fed_ids),
        "token_id": token.id,
        "token": token.display,
        "token_bytes": token.data.hex(" "),
        "text": step.text,
        "raw_prob": decision.raw_prob,
        "raw_logprob": decision.raw_logprob,
        "prob": decision.prob,
        "rank": decision.rank,
        "draw_u": decision.draw_u,
        "raw_entropy": decision.raw_entropy,
        "entropy": decision.entropy,
        "n_kept": decision.n_kept,
        "removed": ", ".join(f"{name} {count}" for name, count in decision.removed),
        "kv_positions": int(step.kv.positions.max(initial=0)),
        "kv_bytes": int(step.kv.nbytes.sum()),
        "forward_s": step.timing.forward_s,
        "sampling_s": step.timing.sampling_s,
        "recording_s": step.timing.recording_s,
        "at_s": step.timing.at_s,
    }
