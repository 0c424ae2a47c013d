"""The frame of the lesson: the way from station to station, one station, and all of them for paper."""

from __future__ import annotations

import streamlit as st

from ui.components.mount import ASSETS
from ui.i18n import _, language
from ui.lesson import runs
from ui.lesson.station import KEEP, Scene, Station
from ui.lesson.stations import STATIONS
from ui.literal import literal

NUMBERS = [str(at) for at in range(1, len(STATIONS) + 1)]
AT = "lesson-station"


def lesson() -> None:
    """One station with the way to the others, or the whole lesson for paper."""
    st.html(ASSETS / "lesson_page.css")
    if st.query_params.get("print") == "1":
        _paper()
        return
    number = _steps()
    _station(STATIONS[number - 1], number)
    _onward(number)


def _steps() -> int:
    """The row of stations; which one is open stands in the address."""
    if AT not in st.session_state:
        asked = st.query_params.get("station", "")
        st.session_state[AT] = asked if asked in NUMBERS else NUMBERS[0]
    with st.container(key="lesson-steps"):
        chosen = st.segmented_control(
            _("Stations of the lesson"), NUMBERS, format_func=_name, key=AT, required=True,
            label_visibility="collapsed", **KEEP,
        )  # fmt: skip
    st.query_params["station"] = chosen
    return int(chosen)


def _name(number: str) -> str:
    return f"{number} {_(STATIONS[int(number) - 1].title)}"


def _station(station: Station, number: int) -> None:
    """Sentences on the left; the live view, what can be tried, and the question on the right."""
    scene = runs.scene(station.name)
    with st.container(key="lesson-station-body"):
        left, right = st.columns([4, 7], gap="medium")
    with left:
        _told(station, number, scene)
        _link(station, scene)
    with right:
        station.view(scene)
        _attempt(station, scene)
        with st.expander(literal(scene.say(station.question)), key=f"lesson-answer-{station.name}"):
            st.text(scene.say(station.answer))


def _told(station: Station, number: int, scene: Scene) -> None:
    with st.container(key=f"lesson-told-{station.name}"):
        st.header(f"{number} · {_(station.title)}", anchor=False)
        for sentence in station.sentences:
            st.text(scene.say(sentence))


def _attempt(station: Station, scene: Scene) -> None:
    with st.container(border=True, key=f"lesson-try-{station.name}"):
        with st.container(key=f"lesson-trying-{station.name}"):
            st.text(_("Try it: {what}", what=scene.say(station.trying)))
        station.attempt(scene)


def _link(station: Station, scene: Scene) -> None:
    """The way into the full page, which opens on what this station shows."""
    label = _("Open in {page}", page=_(station.page))
    if st.button(label, key=f"lesson-open-{station.name}", icon=":material/open_in_new:", type="tertiary"):
        path, query = station.open(scene)
        st.switch_page(path, query_params=query | {"lang": language()})


def _onward(number: int) -> None:
    """Back, on, and the lesson for paper."""
    first, last = number == 1, number == len(STATIONS)
    with st.container(horizontal=True, horizontal_alignment="distribute", key="lesson-onward"):
        st.button(_("Back"), icon=":material/arrow_back:", shortcut="P", disabled=first, key="lesson-back",
                  on_click=_go, args=(number - 1,))  # fmt: skip
        st.button(_("The whole lesson, for print"), icon=":material/print:", type="tertiary", key="lesson-print",
                  on_click=_print, args=(True,))  # fmt: skip
        st.button(_("Next"), icon=":material/arrow_forward:", icon_position="right", shortcut="N", disabled=last,
                  type="primary", key="lesson-on", on_click=_go, args=(number + 1,))  # fmt: skip


def _go(number: int) -> None:
    st.session_state[AT] = str(number)


def _print(on: bool) -> None:
    if on:
        st.query_params["print"] = "1"
    else:
        st.query_params.pop("print", None)


def _paper() -> None:
    """All stations below each other in light colours, and the answers at the end."""
    with st.container(horizontal=True, vertical_alignment="center", key="lesson-paper-bar"):
        st.button(_("Back to the stations"), icon=":material/arrow_back:", on_click=_print, args=(False,))
        st.text(_("Print this page with your browser's own command."))
    with st.container(key="lesson-paper"):
        scenes = [runs.scene(station.name, printed=True) for station in STATIONS]
        for number, (station, scene) in enumerate(zip(STATIONS, scenes, strict=True), 1):
            _sheet(station, number, scene)
        with st.container(key="lesson-answers"):
            st.header(_("Answers"), anchor=False)
            for number, (station, scene) in enumerate(zip(STATIONS, scenes, strict=True), 1):
                st.text(f"{number} · {scene.say(station.answer)}")


def _sheet(station: Station, number: int, scene: Scene) -> None:
    """One station on paper; it is not divided between two pages."""
    with st.container(key=f"lesson-sheet-{station.name}"):
        left, right = st.columns([4, 7], gap="medium")
    with left:
        _told(station, number, scene)
        with st.container(key=f"lesson-question-{station.name}"):
            st.text(_("Question: {question}", question=scene.say(station.question)))
    with right:
        station.view(scene)
        _attempt(station, scene)
