"""Playback: a recorded run, step by step, and the form that runs another one."""

from __future__ import annotations

from ui import frame, live, playback, run_form, session
from ui.i18n import _

trace = session.trace()
frame.title_row(trace, _("Playback"))
run_form.run_form()
if (followed := session.followed()) is not None:
    live.follow(followed)
else:
    live.outcome(session.job())
    playback.playback(trace)
