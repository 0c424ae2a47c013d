"""Experts: where a mixture-of-experts model sent each token, how full its experts are, how kinds of text differ."""

from __future__ import annotations

from ui import frame, live, session
from ui.experts.explorer import explorer
from ui.i18n import _

trace = session.trace()
frame.title_row(trace, _("Experts"))
live.outcome(session.job())
if (followed := session.followed()) is not None:
    live.follow(followed)
explorer(trace)
