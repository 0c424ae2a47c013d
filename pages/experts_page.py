"""Experts: where a mixture-of-experts model sent each token, how full its experts are, how kinds of text differ."""

from __future__ import annotations

from ui import frame, live, session
from ui.experts.explorer import explorer
from ui.i18n import _

trace = session.trace()
frame.title_row(trace, _("Experts"))
live.outcome(session.job())
if session.job() is not None and not session.job().ended:
    live.follow(session.job())
explorer(trace)
