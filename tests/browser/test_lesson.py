"""The whole lesson in a real browser, in all three languages, without a network; every try is used once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Request, Route, expect

from ui.lesson.stations import STATIONS

LONG = 60_000  # the first try that runs the model loads it
FIRST = {"en": "1 · Prompt", "zh-Hans": "1 · 提示词", "zh-Hant": "1 · 提示詞"}
SOME = {  # a sentence with figures of each language
    "en": "累 0.60, 困 0.20, 饿 0.10, all the others together 0.10.",
    "zh-Hans": "“累” 0.60，“困” 0.20，“饿” 0.10，其余合计 0.10。",
    "zh-Hant": "「累」 0.60，「困」 0.20，「饿」 0.10，其餘合計 0.10。",
}


class Reader:
    """A page that can reach nothing but the app; what it tried to reach is kept."""

    def __init__(self, page: Page, address: str) -> None:
        self.page, self.address = page, address
        self.strange: list[str] = []
        self.errors: list[str] = []
        page.context.route("**/*", self._only_local)
        page.on("websocket", lambda socket: self._note(socket.url))
        page.on("request", self._asked)
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _local(self, url: str) -> bool:
        return urlsplit(url).scheme in ("data", "blob") or urlsplit(url).hostname == "127.0.0.1"

    def _note(self, url: str) -> None:
        if not self._local(url):
            self.strange.append(url)

    def _asked(self, request: Request) -> None:
        self._note(request.url)

    def _only_local(self, route: Route) -> None:
        if self._local(route.request.url):
            route.continue_()
        else:
            route.abort()

    def open(self, **query: str) -> None:
        asked = "&".join(f"{name}={value}" for name, value in query.items())
        self.page.goto(f"{self.address}/lesson?{asked}")

    def at(self, name: str) -> int:
        return [station.name for station in STATIONS].index(name) + 1

    def go(self, name: str) -> None:
        self.page.get_by_role("radio", name=re.compile(rf"^{self.at(name)} ")).click()
        expect(self.page.get_by_role("heading", name=re.compile(rf"^{self.at(name)} · "))).to_be_visible()


@pytest.fixture
def reader(browser: Browser, app_server: str) -> Iterator[Reader]:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, locale="en")
    found = Reader(context.new_page(), app_server)
    yield found
    context.close()
    assert found.strange == []
    assert found.errors == []


@pytest.mark.parametrize("lang", FIRST)
def test_the_whole_lesson_is_walked_through_offline(reader: Reader, lang: str) -> None:
    page = reader.page
    reader.open(lang=lang)
    expect(page.get_by_role("heading", name=FIRST[lang])).to_be_visible(timeout=30_000)
    for at in range(1, len(STATIONS) + 1):
        expect(page.get_by_role("heading", name=re.compile(rf"^{at} · "))).to_be_visible(timeout=15_000)
        if STATIONS[at - 1].name == "logits":
            expect(page.get_by_text(SOME[lang])).to_be_visible()
        answer = page.locator(f"[class*='st-key-lesson-answer-{STATIONS[at - 1].name}']")
        expect(answer.get_by_test_id("stText")).to_be_hidden()
        answer.locator("summary").click()
        expect(answer.get_by_test_id("stText")).to_be_visible()
        expect(page.get_by_test_id("stException")).to_have_count(0)
        if at < len(STATIONS):
            expect(page.locator(".st-key-lesson-on button")).to_be_enabled()
            expect(page.locator("[data-test-script-state=notRunning]")).to_be_attached()
            page.keyboard.press("n")
    expect(page).to_have_url(re.compile(f"station={len(STATIONS)}"))
    page.keyboard.press("p")
    expect(page.get_by_role("heading", name=re.compile(rf"^{len(STATIONS) - 1} · "))).to_be_visible()


def test_a_link_opens_its_station_and_the_arrows_move_along_the_row(reader: Reader) -> None:
    page = reader.page
    reader.open(station="6", lang="en")
    expect(page.get_by_role("heading", name="6 · The loop")).to_be_visible(timeout=30_000)
    page.get_by_role("radio", name="6 The loop").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="7 · KV cache")).to_be_visible()


def test_what_needs_the_model_runs_it_for_real(reader: Reader) -> None:
    page = reader.page
    reader.open(station=str(reader.at("loop")), lang="en")
    page.get_by_role("button", name="Take 困").click(timeout=30_000)
    expect(page.get_by_text("“困，它要睡。” came of it: log P = −1.8")).to_be_visible(timeout=LONG)
    page.get_by_role("button", name="Open in Playback").click()
    expect(page.get_by_role("heading", name="Playback")).to_be_visible()
    expect(page.get_by_role("listbox").get_by_text("睡", exact=True)).to_be_visible()

    page.get_by_role("link", name="Lesson").click()
    reader.go("tokens")
    page.get_by_role("button", name="Cut into tokens").click()
    expect(page.get_by_text("What the vocabulary lacks becomes <unk>: 1 of them.")).to_be_visible(timeout=LONG)

    reader.go("stopping")
    page.locator(".st-key-lesson-run button").click()
    expect(page.get_by_text("The run reached the 2 new tokens that were asked for.")).to_be_visible(timeout=LONG)


def test_what_the_record_answers_is_answered_while_trying(reader: Reader) -> None:
    page = reader.page
    reader.open(station=str(reader.at("prompt")), lang="en")
    page.get_by_text("Show a chat prompt").click(timeout=30_000)
    expect(page.get_by_text("With its template 40 go in; the 30 others name the roles")).to_be_visible()
    tries = {
        "prefill": ("Token at position", "ArrowLeft", "“它”, at position 6, sees 7 positions"),
        "logits": ("Added to the logit of 饿", "End", "Adding +3 multiplies the odds of 饿 by 20.09"),
        "choosing": ("Top-p", "End", re.compile(r"^Tokens left: 32 \(累, 困, 饿")),
        "cache": ("Tokens written", "Home", "1 passes compute 1 keys and values with the cache, 1 without."),
        "formula": ("Layers", "Home", "32.00 MiB; each further token adds 4.00 KiB."),
        "experts": ("Token at position", "Home", re.compile("^“<bos>” at position 0 goes to")),
    }
    for name, (label, key, said) in tries.items():
        reader.go(name)
        page.get_by_role("slider", name=label).press(key)
        expect(page.get_by_text(said)).to_be_visible()
    reader.go("time")
    field = page.get_by_label("Seconds since the request at which each token was known")
    field.fill("0.1 0.2 0.4")
    field.press("Enter")
    expect(
        page.get_by_text("TTFT 100 ms, TPOT 150 ms, then 6.7 tok/s; over the whole request 7.5 tok/s.")
    ).to_be_visible()


def test_on_paper_nothing_is_cut_and_no_control_is_printed(browser: Browser, app_server: str) -> None:
    context = browser.new_context(viewport={"width": 1000, "height": 900}, color_scheme="dark")
    page = context.new_page()
    page.goto(f"{app_server}/lesson?print=1&lang=en")
    expect(page.get_by_role("heading", name="Answers")).to_be_visible(timeout=30_000)
    expect(page.locator(".paper_figure svg[role=img]")).to_have_count(7, timeout=30_000)
    page.emulate_media(media="print")
    for hidden in ("stHeader", "stSelectbox"):
        expect(page.get_by_test_id(hidden)).to_be_hidden()
    expect(page.get_by_role("button")).to_have_count(0)
    text = page.locator(".st-key-lesson-paper [data-testid=stText]").first
    assert text.evaluate("node => getComputedStyle(node).color") == "rgb(28, 27, 34)"  # dark on white in dark mode too
    # the whole lesson lies in the flow of the page: what scrolls inside a box is cut off on paper
    assert page.evaluate("document.documentElement.scrollHeight") > 4000
    sheets = page.locator(".st-key-lesson-paper > *")
    assert sheets.count() == len(STATIONS) + 1
    assert set(sheets.evaluate_all("nodes => nodes.map((node) => getComputedStyle(node).breakInside)")) == {"avoid"}
    assert max(sheets.evaluate_all("nodes => nodes.map((node) => node.getBoundingClientRect().height)")) < 1000
    assert 6 <= page.pdf(format="A4").count(b"/Type /Page\n") <= 8
    context.close()
