"""Lesson: a whole generation in short stations, on a recorded run of the teaching model."""

from __future__ import annotations

from ui import frame
from ui.i18n import _
from ui.lesson.frame import lesson
from ui.lesson.runs import kitten

frame.title_row(kitten(), _("Lesson"))
lesson()
