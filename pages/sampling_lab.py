"""Sampling lab: every setting live on a recorded step, and what it would have changed over the whole run."""

from __future__ import annotations

from ui import frame, live, session
from ui.i18n import _
from ui.sampling.lab import lab

trace = session.trace()
frame.title_row(trace, _("Sampling lab"))
if (followed := session.followed()) is not None:
    live.follow(followed)
else:
    live.outcome(session.job())
    lab(trace)
