"""Playback: a recorded run, step by step, and the form that runs another one."""

from __future__ import annotations

from ui import frame, live, playback, run_form, session

trace = session.trace()
frame.title_row(trace)
run_form.run_form()
if session.job() is not None and not session.job().ended:
    live.follow(session.job())
else:
    live.outcome(session.job())
    playback.playback(trace)
