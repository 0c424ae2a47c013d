"""Prefill and decode: where a run's time goes, how it grows, measured here, and what the hardware allows."""

from __future__ import annotations

from inference.errors import N_
from ui import frame, live, session
from ui.i18n import _
from ui.timing.element_types import element_types
from ui.timing.request import request
from ui.timing.roof import roof
from ui.timing.serving import serving
from ui.timing.sweeps import sweeps

PARTS = {
    "request": (N_("This run"), request),
    "sweeps": (N_("On this machine"), sweeps),
    "types": (N_("Element types"), element_types),
    "serving": (N_("Batching and serving"), serving),
    "roof": (N_("Roofline"), roof),
}

trace = session.trace()
frame.title_row(trace, _("Prefill and decode"))
part = frame.part("timing-part", {name: label for name, (label, _draw) in PARTS.items()})
if (followed := session.followed()) is not None:
    live.follow(followed)
PARTS[part][1](trace)
