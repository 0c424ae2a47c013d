"""Experts: where a mixture-of-experts model sent each token; and a router whose tokens stand for whole models."""

from __future__ import annotations

from inference.errors import N_
from ui import frame, live, session
from ui.experts.explorer import explorer
from ui.experts.tokens import tokens
from ui.i18n import _

PARTS = {"layers": N_("Experts in a layer"), "tokens": N_("Expert tokens")}

trace = session.trace()
frame.title_row(trace, _("Experts"))
if frame.part("experts-part", PARTS) == "tokens":
    tokens()
else:
    live.outcome(session.job())
    if (followed := session.followed()) is not None:
        live.follow(followed)
    explorer(trace)
