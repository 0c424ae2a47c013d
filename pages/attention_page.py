"""Attention: every head of every layer of a recorded run, the masks, and what follows from them."""

from __future__ import annotations

from ui import frame, live, session
from ui.attention.explorer import explorer
from ui.i18n import _

trace = session.trace()
frame.title_row(trace, _("Attention"))
if (followed := session.followed()) is not None:
    live.follow(followed)
explorer(trace)
