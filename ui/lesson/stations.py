"""The stations in order; the last one is an extra."""

from __future__ import annotations

from ui.lesson.cost import CACHE, EXPERTS, FORMULA, TIME
from ui.lesson.reading import LOGITS, PREFILL, PROMPT, TOKENS
from ui.lesson.station import Station
from ui.lesson.writing import CHOOSING, LOOP, STOPPING

STATIONS: tuple[Station, ...] = (
    PROMPT, TOKENS, PREFILL, LOGITS, CHOOSING, LOOP, CACHE, FORMULA, STOPPING, TIME, EXPERTS,
)  # fmt: skip
