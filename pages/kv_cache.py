"""KV cache: what the cache holds and saves, what dropping or shrinking it does, and how requests share it."""

from __future__ import annotations

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
part = frame.part("kv-part", {name: label for name, (label, _draw) in PARTS.items()})
if (followed := session.followed()) is not None:
    live.follow(followed)
PARTS[part][1](trace)
