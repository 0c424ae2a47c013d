"""The standalone file: complete, escaped, and closed to everything but its own scripts."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from charts.attention import attention_map
from charts.base import Palette
from charts.distribution import distribution
from charts.export import lesson_html
from charts.kv_growth import kv_growth
from inference.stopping import Finish
from inference.trace import Trace
from tests.charts.runs import logits_of, run


class Outline(HTMLParser):
    """Tags with their attributes, and the text inside each kind of tag."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[self._open[-1]][-1] += data


def awkward() -> Trace:
    """A run of pieces and markup, from a model with an awkward name, ended by an awkward error."""
    trace = run(
        prompt=(2, 12, 13, 5), chosen=(9, 10, 11, 14, 0, 15, 17), finish=Finish("error", text="<i>bad</i> & worse")
    )
    steps = tuple(
        replace(step, text=text)
        for step, text in zip(trace.steps, ["", "", "😀", "<br>\x00", "", "$y$", "مرحبا"], strict=True)
    )
    return replace(
        trace, model=replace(trace.model, name="<script>alert(1)</script>"), steps=steps, origin={"greedy": "yours"}
    )


@pytest.fixture(scope="module")
def page() -> str:
    trace, light = awkward(), Palette.light()
    charts = [
        distribution(run(keep=0), 0, palette=light, t=str),  # not recorded: a sentence without a figure
        distribution(trace, 2, palette=light, t=str),
        attention_map(trace, 2, 0, 0, palette=light, t=str),
        kv_growth(trace, 2, palette=light, t=str),
    ]
    return lesson_html(trace, charts, t=str, palette=light)


@pytest.fixture(scope="module")
def outline(page: str) -> Outline:
    parsed = Outline()
    parsed.feed(page)
    return parsed


def test_every_tag_that_is_opened_is_closed(outline: Outline) -> None:
    assert outline._open == []
    assert [tag for tag, _ in outline.tags][:2] == ["html", "head"]


def test_no_text_of_the_run_becomes_markup(page: str, outline: Outline) -> None:
    assert {tag for tag, _ in outline.tags} & {"b", "i", "br", "a", "img", "iframe", "link"} == set()
    assert outline.texts["title"] == ["A run of <script>alert(1)</script>, step by step"]
    assert "The run ended with an error: <i>bad</i> & worse" in outline.texts["dd"]
    chips = [
        text
        for (tag, attributes), text in zip(_spans(outline), outline.texts["span"], strict=True)
        if "chip" in str(attributes)
    ]
    assert chips == ["The", "<b>x</b>", "&lt;", "↵", "⟨F0 9F⟩", "⟨98⟩", "⟨80⟩", "<br>", "<|end|>", "$y$", "مرحبا"]
    assert outline.texts["pre"] == ["😀<br>⟨U+0000⟩$y$مرحبا"]
    assert "\x00" not in page


def _spans(outline: Outline) -> list[tuple[str, dict[str, str | None]]]:
    return [(tag, attributes) for tag, attributes in outline.tags if tag == "span"]


def test_the_pieces_of_a_character_stand_under_it(outline: Outline) -> None:
    assert "😀" in outline.texts["span"]
    kinds = [str(attributes.get("class")) for _, attributes in _spans(outline)]
    at = kinds.index("joined")
    assert kinds[at : at + 3] == ["joined", "glyph", "pieces"]
    assert all(kind.startswith("chip level-") for kind in kinds[at + 3 : at + 6])


def test_the_policy_allows_exactly_the_scripts_and_the_style_of_the_file(page: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy
    rules = dict(rule.split(" ", 1) for rule in policy[1].split("; "))
    assert rules["default-src"] == "'none'"
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 2
    assert rules["script-src"].split() == [f"'sha256-{sha256(script)}'" for script in scripts]
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    assert rules["style-src-elem"].split() == [f"'sha256-{sha256(style)}'", f"'sha256-{sha256('')}'"]
    assert "unsafe-inline" not in rules["script-src"]
    assert not re.search(r"\son\w+=", page.split("<script", 1)[0])


def sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_nothing_is_loaded_from_elsewhere(outline: Outline) -> None:
    for tag, attributes in outline.tags:
        assert not {"src", "href"} & set(attributes), (tag, attributes)


def test_plotly_is_in_the_file_once(page: str) -> None:
    assert page.count("plotly.js v") == 1


def test_the_figures_are_those_of_the_charts_and_stand_beside_their_sentence(page: str, outline: Outline) -> None:
    places = [attributes["id"] for tag, attributes in outline.tags if attributes.get("class") == "figure"]
    assert places == ["figure-1", "figure-2", "figure-3"]
    raw = re.search(r'id="figures">(.*?)</script>', page, re.DOTALL)
    assert raw
    assert not set(raw[1]) & set("<>&\u2028\u2029")
    figures = json.loads(raw[1])
    assert list(figures) == places
    assert [figures[place]["data"][0]["type"] for place in places] == ["bar", "heatmap", "scatter"]
    assert "This run holds no logits, so there is no distribution to draw." in outline.texts["p"]


def test_each_chart_has_its_table_with_every_value_drawn(outline: Outline) -> None:
    trace = awkward()
    expected = distribution(trace, 2, palette=Palette.light(), t=str).table
    cells = outline.texts["td"]
    for share in expected["raw probability"]:
        assert f"{share:.6g}" in cells
    assert outline.texts["summary"] == ["Table", "Table", "Table", "All steps"]


def test_the_colours_are_those_of_the_palette() -> None:
    dark = lesson_html(run(), [], t=str, palette=Palette.dark())
    assert f"--background: {Palette.dark().background}" in dark
    assert "color-scheme: dark" in dark


def test_the_settings_say_where_they_came_from(outline: Outline) -> None:
    assert any("greedy = False (yours)" in text for text in outline.texts["dd"])


def test_a_run_without_steps_is_written_too() -> None:
    trace = replace(run(logits=logits_of(3)), steps=(), finish=Finish("cancelled"))
    assert "The run was cancelled after 0 tokens." in lesson_html(trace, [], t=str, palette=Palette.light())
