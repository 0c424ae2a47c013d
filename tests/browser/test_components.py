"""The components in a real browser: the strip, the transport, the keyboard, the cards and what the server hears."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from charts.attention import attention_map
from charts.base import Palette
from charts.distribution import distribution
from charts.export import lesson_html
from charts.kv_growth import kv_growth
from tests.browser import servers
from tests.charts.runs import run

APP = Path(__file__).with_name("component_app.py")
LAST = 11  # of the short run
FRAME_BUDGET_MS = 50  # median while 4,000 chips play; 17 where the machine is idle


@pytest.fixture(scope="module")
def components(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the page with the components."""
    with servers.page_of(APP, tmp_path_factory.mktemp("components")) as address:
        yield address


def show(page: Page, address: str, query: str = "run=short") -> Page:
    page.goto(f"{address}/?{query}")
    expect(page.locator(".chip").first).to_be_visible(timeout=60_000)
    return page


@pytest.fixture
def short(page: Page, components: str) -> Page:
    """The page with a run of 4 prompt tokens and 12 steps, at step 1."""
    show(page, components)
    expect_step(page, 1)
    return page


def expect_step(page: Page, step: int) -> None:
    """The ring, the slider, the words and the server agree on a step."""
    expect(page.locator(".where")).to_contain_text(f"step {step} of ")
    expect(page.locator(".chip.current")).to_have_id(re.compile(rf"^token-{step + n_prompt(page)}$"))
    expect(page.locator(".slider")).to_have_js_property("value", str(step))
    expect(page.get_by_text(re.compile(rf"^server at {step}$"))).to_be_visible(timeout=15_000)


def n_prompt(page: Page) -> int:
    return page.locator(".chip.prompt").count()


def bytes_received(page: Page) -> list[int]:
    """Sizes of what the server sends from now on; the page must not have been opened yet."""
    sizes: list[int] = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: sizes.append(len(frame))))
    return sizes


# ---- text -----------------------------------------------------------------------------------------------------------


def test_markup_in_a_token_is_shown_as_it_is_written(page: Page, components: str) -> None:
    show(page, components, "run=pieces")
    texts = page.locator(".chip").all_text_contents()
    assert texts == [
        "The", "<b>x</b>", "↵", "$y$", "⟨F0 9F⟩", "⟨98⟩", "⟨80⟩", "<br>", "<|end|>", "·the", "·sat", "·on", "مرحبا",
    ]  # fmt: skip
    assert page.locator(".chip b, .chip br").count() == 0
    expect(page.locator(".chip.special")).to_have_text("<|end|>")


def test_the_pieces_of_a_character_stand_under_it_as_hex(page: Page, components: str) -> None:
    show(page, components, "run=pieces")
    joined = page.locator(".joined")
    expect(joined).to_have_count(1)
    expect(joined).to_have_attribute("aria-label", "😀")
    expect(joined.locator(".glyph")).to_have_text("😀")
    assert joined.locator(".chip").all_text_contents() == ["⟨F0 9F⟩", "⟨98⟩", "⟨80⟩"]
    glyph, piece = (joined.locator(part).first.bounding_box() for part in (".glyph", ".chip"))
    assert glyph
    assert piece
    assert piece["y"] >= glyph["y"] + glyph["height"] - 1


def test_the_stop_point_is_marked_with_its_reason(page: Page, components: str) -> None:
    show(page, components, "run=pieces")
    assert page.locator(".chip.cut").all_text_contents() == ["·sat", "·on"]
    end = page.locator(".end")
    expect(end).to_have_text("■ stop string")
    expect(end).to_have_attribute(
        "aria-label", "The text reached the stop string “t·on” at character 5; it is cut there."
    )


# ---- moving ---------------------------------------------------------------------------------------------------------


def test_arrow_keys_home_and_end_move_the_ring_and_tell_the_server(short: Page) -> None:
    short.locator(".strip").focus()
    for key, step in [("ArrowRight", 2), ("ArrowRight", 3), ("ArrowLeft", 2), ("End", LAST), ("ArrowRight", LAST)]:
        short.keyboard.press(key)
        expect_step(short, step)
    short.keyboard.press("Home")
    expect_step(short, 0)
    expect(short.locator(".where")).to_contain_text("prefill")
    expect(short.locator(".step.back")).to_be_disabled()


def test_a_held_arrow_key_arrives_at_the_server_with_its_last_step(short: Page) -> None:
    short.locator(".strip").focus()
    for _ in range(8):
        short.keyboard.press("ArrowRight")
    expect_step(short, 9)


def test_a_click_on_a_token_goes_there_and_on_the_prompt_to_the_prefill(short: Page) -> None:
    short.locator("#token-11").click()
    expect_step(short, 7)
    short.locator("#token-1").click()
    expect_step(short, 0)


def test_the_slider_and_the_buttons_move_too(short: Page) -> None:
    short.locator(".slider").fill("9")
    expect_step(short, 9)
    short.get_by_role("button", name="Step back").click()
    expect_step(short, 8)
    short.get_by_role("button", name="Step forward").click()
    expect_step(short, 9)


def test_the_slider_follows_the_keyboard_as_the_strip_does(short: Page) -> None:
    short.locator(".slider").focus()
    short.keyboard.press("ArrowRight")
    expect_step(short, 2)
    short.keyboard.press("End")
    expect_step(short, LAST)


def test_what_is_not_chosen_yet_is_shown_as_such(short: Page) -> None:
    assert short.locator(".chip.later").count() == LAST - 1
    assert short.locator(".chip.later").first.evaluate("chip => getComputedStyle(chip).borderTopStyle") == "dotted"
    short.locator(".strip").focus()
    short.keyboard.press("End")
    assert short.locator(".chip.later").count() == 0


def test_the_page_can_move_the_strip(short: Page) -> None:
    short.locator("#token-13").click()
    expect_step(short, 9)
    short.get_by_role("button", name="Go to 5").click()
    expect_step(short, 5)
    short.locator("#token-13").click()
    expect_step(short, 9)


def test_the_step_survives_the_strip_being_away(short: Page) -> None:
    short.locator("#token-13").click()
    expect_step(short, 9)
    short.get_by_text("Show the player").click()
    expect(short.locator(".strip")).to_have_count(0)
    short.get_by_text("Show the player").click()
    expect_step(short, 9)


def test_a_change_of_language_keeps_the_step(short: Page) -> None:
    short.locator("#token-13").click()
    expect_step(short, 9)
    short.get_by_text("Spanish").click()
    expect(short.get_by_role("button", name="Reproducir")).to_be_visible()
    expect_step(short, 9)


# ---- playing --------------------------------------------------------------------------------------------------------


def test_space_plays_to_the_end_and_the_server_hears_of_it(short: Page) -> None:
    short.get_by_role("button", name="4×").click()
    short.locator(".strip").focus()
    short.keyboard.press("Space")
    expect(short.get_by_role("button", name="Pause")).to_be_visible()
    expect_step(short, LAST)
    expect(short.get_by_role("button", name="Play")).to_be_visible()


def test_space_pauses_where_it_is(short: Page) -> None:
    short.locator(".strip").focus()
    short.keyboard.press("Space")
    expect(short.locator(".where")).to_contain_text(re.compile("step [3-8] of "), timeout=10_000)
    short.keyboard.press("Space")
    place = short.locator(".where").inner_text()
    short.wait_for_timeout(1200)
    assert short.locator(".where").inner_text() == place
    expect_step(short, int(place.split()[1]))


def test_playing_at_the_end_begins_anew(short: Page) -> None:
    short.locator(".strip").focus()
    short.keyboard.press("End")
    short.keyboard.press("Space")
    expect(short.locator(".where")).to_contain_text(re.compile(r"step \d of "), timeout=10_000)  # the last one is 11


@pytest.mark.parametrize(("speed", "seconds"), [("1×", 0.5), ("4×", 0.125)])
def test_the_pace_is_two_steps_a_second_and_four_times_that(short: Page, speed: str, seconds: float) -> None:
    short.get_by_role("button", name=speed).click()
    moments = play_from_the_start(short, until=6)
    gaps = [(later - earlier) / 1000 for earlier, later in pairwise(moments)]
    assert sum(gaps[1:]) / len(gaps[1:]) == pytest.approx(seconds, rel=0.25)


def test_the_run_s_own_tempo_waits_where_the_run_waited(short: Page) -> None:
    short.get_by_role("button", name="own tempo").click()
    moments = play_from_the_start(short, until=7)
    waited = moments[6] - moments[5]  # the step that took a second
    assert waited == pytest.approx(1000, abs=250)
    assert moments[5] - moments[1] == pytest.approx(200, abs=150)


def play_from_the_start(page: Page, until: int) -> list[float]:
    """The moments in ms at which the steps 0 … `until` were painted."""
    page.locator(".strip").focus()
    page.keyboard.press("Home")
    expect_step(page, 0)
    return page.evaluate(
        """until => new Promise((done) => {
            const shadows = [...document.querySelectorAll("*")].map((node) => node.shadowRoot);
            const root = shadows.find((shadow) => shadow?.querySelector(".strip"));
            const moments = [performance.now()];
            root.querySelector("button.play").click();
            const look = () => {
                const step = Number(root.querySelector(".slider").value);
                while (moments.length <= step) moments.push(performance.now());
                if (step >= until) done(moments);
                else requestAnimationFrame(look);
            };
            look();
        })""",
        until,
    )


def test_four_thousand_tokens_play_and_step_fluently(page: Page, components: str) -> None:
    sizes = bytes_received(page)
    show(page, components, "run=long")
    assert page.locator(".chip").count() == 4000
    expect_step(page, 1)
    assert sum(sizes) > 200_000  # the strip has been sent
    sizes.clear()
    page.locator(".strip").focus()
    for _ in range(6):
        page.keyboard.press("ArrowRight")
    expect_step(page, 7)
    assert 0 < sum(sizes) < 50_000  # and is not sent again
    page.get_by_role("button", name="4×").click()
    page.get_by_role("button", name="Play").click()
    frames = page.evaluate(
        """() => new Promise((done) => {
            const gaps = [];
            let last = performance.now();
            const frame = (now) => {
                gaps.push(now - last);
                last = now;
                if (gaps.length < 120) requestAnimationFrame(frame);
                else done(gaps);
            };
            requestAnimationFrame(frame);
        })"""
    )
    assert sorted(frames)[len(frames) // 2] < FRAME_BUDGET_MS
    page.keyboard.press("End")
    expect(page.locator(".where")).to_contain_text("step 3599 of ")
    expect(page.locator(".chip.current")).to_be_in_viewport()


# ---- the hover card -------------------------------------------------------------------------------------------------


def test_hovering_shows_what_is_known_of_a_token(page: Page, components: str) -> None:
    show(page, components, "run=pieces")
    page.locator("#token-6").hover()
    card = page.locator(".card")
    expect(card).to_be_visible()
    expect(card).to_have_role("tooltip")
    assert card.locator("b").inner_text() == "⟨80⟩"
    expect(card).to_contain_text("part of 😀")
    assert card.locator("dt").all_text_contents() == [
        "id", "bytes", "raw probability", "after settings", "rank", "entropy",
    ]  # fmt: skip
    assert card.locator("dd").all_text_contents()[:2] == ["11", "80"]
    assert card.locator("li").count() == 5
    page.locator("#token-1").hover()
    expect(card).to_contain_text("prompt token at position 1")
    page.mouse.move(5, 5)
    expect(card).to_be_hidden()


def test_enter_shows_the_card_for_the_keyboard_and_escape_takes_it_away(short: Page) -> None:
    short.locator(".strip").focus()
    short.keyboard.press("Enter")
    expect(short.locator(".card")).to_be_visible()
    expect(short.locator(".chip.current")).to_have_attribute("aria-describedby", "token-card")
    short.keyboard.press("Escape")
    expect(short.locator(".card")).to_be_hidden()


# ---- for eyes and for none ------------------------------------------------------------------------------------------


def test_surprise_is_a_bar_too_and_not_only_a_colour(page: Page, components: str) -> None:
    show(page, components, "run=long")
    page.locator(".strip").focus()
    page.keyboard.press("End")
    shadows = [
        page.locator(f".chip.level-{level}").first.evaluate("chip => getComputedStyle(chip).boxShadow")
        for level in range(5)
    ]
    assert shadows[0] == "none"
    thickness = [abs(float(re.findall(r"(-?[\d.]+)px", shadow)[1])) for shadow in shadows[1:]]
    assert thickness == sorted(set(thickness))
    assert thickness[0] >= 1.5


def test_the_strip_is_a_listbox_with_one_selected_option_and_named_controls(short: Page) -> None:
    strip = short.get_by_role("listbox", name=re.compile("Tokens of the run"))
    expect(strip).to_be_visible()
    selected = short.get_by_role("option", selected=True)
    expect(selected).to_have_count(1)
    expect(selected).to_have_accessible_name(re.compile(r"·mat, probability \d"))
    assert strip.get_attribute("aria-activedescendant") == selected.get_attribute("id")
    expect(short.get_by_role("group", name="Transport")).to_be_visible()
    for name in ("Step back", "Play", "Step forward", "1×", "4×", "own tempo"):
        expect(short.get_by_role("button", name=name)).to_have_count(1)
    expect(short.get_by_role("button", name="1×")).to_have_attribute("aria-pressed", "true")
    slider = short.get_by_role("slider", name="Step")
    assert (slider.get_attribute("aria-valuetext") or "").startswith("step 1 of 11: ·mat")


def test_tab_reaches_every_control_and_then_the_strip(short: Page) -> None:
    short.locator(".step.back").focus()
    reached = []
    for _ in range(7):
        short.keyboard.press("Tab")
        reached.append(short.evaluate(ACTIVE))
    assert reached == ["step play primary", "step on", "slider", "speed", "speed", "speed", "strip"]


ACTIVE = """() => {
    let at = document.activeElement;
    while (at.shadowRoot) at = at.shadowRoot.activeElement;
    return at.className;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_kind_of_chip_can_be_read_in_both_modes(browser: Browser, components: str, scheme: str) -> None:
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1440, "height": 900})
    page = show(context.new_page(), components, "run=long")
    page.locator("#token-2400").evaluate("chip => chip.click()")
    expect_step(page, 2000)
    kinds = [
        "prompt",
        *(f"level-{level}:not(.later)" for level in range(5)),
        *(f"level-{level}.later" for level in range(5)),
    ]
    for kind in kinds:
        assert contrast(page.locator(f".chip.{kind}").first) >= 4.5, (scheme, kind)
    assert contrast(page.locator(".legend")) >= 4.5
    context.close()


def contrast(node: Locator) -> float:
    """The contrast of text on its background (WCAG 2.2), both as the browser paints them over the page's own."""
    colours = node.evaluate(
        """(node) => {
            const style = getComputedStyle(node);
            const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
            const layers = [style.getPropertyValue("--st-background-color"), style.backgroundColor, style.color];
            const painted = layers.map((colour) => {
                canvas.fillStyle = colour;
                canvas.fillRect(0, 0, 1, 1);
                return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
            });
            return painted.slice(1);
        }"""
    )
    high, low = sorted((luminance(colour) for colour in colours), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: list[int]) -> float:
    linear = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("width", [1440, 800, 420])
def test_nothing_is_wider_than_the_page(page: Page, components: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    show(page, components, "run=pieces&charts=1")
    expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible(timeout=30_000)
    for part in (".player", ".metric_cards", ".st-key-chart-card-distribution", ".st-key-chart-card-attention"):
        box = page.locator(part).bounding_box()
        assert box
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width, part


# ---- cards ----------------------------------------------------------------------------------------------------------


def test_a_figure_is_saved_as_svg_and_png_with_its_title(page: Page, components: str) -> None:
    show(page, components, "run=pieces&charts=1")
    card = page.locator(".st-key-chart-card-distribution")
    expect(card.locator(".main-svg").first).to_be_visible(timeout=30_000)
    saved = {}
    for kind in ("SVG", "PNG"):
        with page.expect_download() as download:
            card.get_by_role("button", name=f"Save as {kind}").click()
        saved[download.value.suggested_filename] = download.value.path().read_bytes()
    texts = {"".join(node.itertext()) for node in ElementTree.fromstring(saved["next-token-distribution.svg"]).iter()}
    assert {"Next-token distribution", "<br>", "<b>x</b>", "&lt;"} <= texts
    assert saved["next-token-distribution.png"].startswith(b"\x89PNG")


def test_a_chart_shows_markup_in_tokens_literally(page: Page, components: str) -> None:
    show(page, components, "run=pieces&charts=1")
    labels = page.locator(".st-key-chart-card-distribution .ytick text")
    expect(labels.first).to_be_visible(timeout=30_000)
    texts = [text.removeprefix("▸ ") for text in labels.all_text_contents()]
    assert {"<b>x</b>", "&lt;", "<br>"} <= set(texts)
    assert len(texts) == 14


def test_the_table_opens_under_its_chart(page: Page, components: str) -> None:
    show(page, components, "run=short&charts=1")
    card = page.locator(".st-key-chart-card-kv_growth")
    expect(card.locator("[data-testid=stDataFrame]")).to_have_count(0)
    card.get_by_text("Table").click()
    expect(card.locator("[data-testid=stDataFrame]")).to_be_visible(timeout=15_000)


def test_the_figures_follow_the_step(page: Page, components: str) -> None:
    show(page, components, "run=short&charts=1")
    token = page.locator(".metric_cards .token .value")
    expect(token).to_have_text("·mat")
    page.locator(".strip").focus()
    page.keyboard.press("ArrowRight")
    expect(token).to_have_text(".", timeout=15_000)


def test_nothing_is_asked_of_another_host(page: Page, components: str) -> None:
    asked: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    show(page, components, "run=pieces&charts=1")
    expect(page.locator(".js-plotly-plot .main-svg").first).to_be_visible(timeout=30_000)
    assert asked
    assert [url for url in asked if not url.startswith((components, "data:", f"blob:{components}"))] == []
    assert complaints == []


# ---- a run that is going on -----------------------------------------------------------------------------------------


def test_a_live_strip_grows_and_joins_pieces_when_the_last_one_comes(page: Page, components: str) -> None:
    show(page, components, "live=1")
    expect(page.locator(".chip")).to_have_count(4)
    assert page.locator(".transport").count() == 0
    page.locator("#token-0").evaluate("chip => { chip.dataset.kept = 'yes'; }")
    more = page.get_by_role("button", name="Next token")
    for count in (5, 6):
        more.click()
        expect(page.locator(".chip")).to_have_count(count)
        assert page.locator(".joined").count() == 0
    more.click()
    expect(page.locator(".joined .chip")).to_have_count(3)
    more.click()
    assert page.locator(".chip").count() in (7, 8)
    expect(page.locator(".chip")).to_have_text(["The", "<b>x</b>", "↵", "$y$", "⟨F0 9F⟩", "⟨98⟩", "⟨80⟩", "<br>"])
    assert page.locator("#token-0").get_attribute("data-kept") == "yes"  # not drawn anew


# ---- the standalone file --------------------------------------------------------------------------------------------


def test_the_standalone_file_draws_its_charts_under_its_own_policy(page: Page, tmp_path: Path) -> None:
    trace = run(prompt=(2, 12, 5, 15), chosen=(9, 10, 11, 14, 13))
    dark = Palette.dark()
    charts = [make(trace, 2, palette=dark, t=str) for make in (distribution, kv_growth)]
    charts.append(attention_map(trace, 2, 0, 1, palette=dark, t=str))
    file = tmp_path / "lesson.html"
    file.write_text(lesson_html(trace, charts, t=str, palette=dark), encoding="utf-8")
    asked: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(file.as_uri())
    expect(page.locator(".figure .main-svg .ytick").first).to_be_visible(timeout=30_000)
    assert page.locator(".js-plotly-plot").count() == 3
    assert page.locator(".figure").first.get_attribute("aria-label") == charts[0].description
    page.locator(".figure").first.hover()
    with page.expect_download() as download:
        page.locator(".modebar-btn").first.click()
    assert b"<svg" in download.value.path().read_bytes()
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    assert complaints == []


def test_a_script_that_gets_into_the_standalone_file_does_not_run(page: Page, tmp_path: Path) -> None:
    text = lesson_html(run(), [], t=str, palette=Palette.light())
    smuggled = text.replace("</main>", "<script>document.title = 'taken'</script></main>")
    file = tmp_path / "lesson.html"
    file.write_text(smuggled, encoding="utf-8")
    page.goto(file.as_uri())
    assert page.title() == "A run of hand-made, step by step"
