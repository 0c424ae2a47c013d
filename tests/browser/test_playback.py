"""The app in a real browser: run to the end, cancel, move about during a run, reload, two readers, branch, files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from inference.trace import Trace

DEMO = Path(__file__).resolve().parents[2] / "assets" / "demo.safetensors"
# the first run loads the model, and converts it on a machine that has never run it; other tests keep the machine busy
LONG = 180_000


def open_app(page: Page, address: str, query: str = "") -> Page:
    page.goto(address + query)
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_visible(timeout=30_000)
    expect(page.locator(".js-plotly-plot").first).to_be_visible(timeout=30_000)
    return page


def run_button(page: Page):
    return page.get_by_role("button", name="Run", exact=True)


@pytest.fixture
def reader(page: Page, app_server: str) -> Page:
    """A page on the demo run."""
    return open_app(page, app_server)


@pytest.fixture
def other(browser: Browser, app_server: str) -> Iterator[Page]:
    """A second reader with a session of its own."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    yield open_app(context.new_page(), app_server, "/?max_new_tokens=6&decoding=greedy")
    context.close()


def test_the_demo_run_is_shown_at_once_and_nothing_is_asked_of_an_outside_host(page: Page, app_server: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    open_app(page, app_server)
    expect(page.get_by_text("Ended by the end token <|im_end|> (id 2).")).to_be_visible()
    outside = [
        url for url in asked if not url.startswith((app_server, app_server.replace("http", "ws"), "data:", "blob:"))
    ]
    assert outside == []


def test_a_page_that_is_left_before_it_is_whole_leaves_the_next_one_whole(page: Page, app_server: str) -> None:
    page.goto(app_server)
    page.locator(".player .chip").first.wait_for(timeout=30_000)
    page.get_by_role("link", name="KV cache").click()
    expect(page.get_by_role("heading", name="KV cache", exact=True)).to_be_visible(timeout=30_000)
    page.wait_for_timeout(1500)  # in which a late word of the first page could empty the second
    expect(page.get_by_role("radio", name="Clean-up", exact=True)).to_be_visible()


def test_a_prompt_runs_to_its_end_and_its_text_is_on_the_strip(reader: Page) -> None:
    reader.goto(reader.url.split("?")[0] + "?max_new_tokens=6&decoding=greedy")
    run_button(reader).click()
    expect(reader.get_by_text("Ended by the limit of 6 new tokens.")).to_be_visible(timeout=LONG)
    expect(reader.get_by_text("step 0 of 5")).to_be_visible()
    expect(reader.get_by_text("Prefill fed all 34 prompt tokens in one go")).to_be_visible()


def test_a_link_with_run_1_fills_the_form_and_runs_it(page: Page, app_server: str) -> None:
    page.goto(app_server + "/?prompt=Two+and+two+is&chat=false&max_new_tokens=5&decoding=greedy&run=1")
    expect(page.get_by_text("Ended by the limit of 5 new tokens.")).to_be_visible(timeout=LONG)
    expect(page.get_by_role("textbox", name="Prompt")).to_have_value("Two and two is")


def test_a_running_run_answers_other_controls_loses_nothing_and_survives_a_reload(page: Page, app_server: str) -> None:
    open_app(page, app_server, "/?max_new_tokens=60&decoding=greedy&prompt=Count+from+one+to+fifty")
    run_button(page).click()
    expect(page.get_by_text(re.compile(r"Generating: [3-9] of at most 60"))).to_be_visible(timeout=LONG)
    expect(page.get_by_role("button", name="Conversation")).to_be_enabled()
    page.get_by_text("Chat", exact=True).click()
    expect(page.get_by_role("button", name="Conversation")).to_be_disabled(timeout=5_000)
    expect(page.get_by_text(re.compile(r"Generating: \d+ of at most 60"))).to_be_visible()
    page.get_by_role("button", name="Settings").click()
    page.get_by_role("spinbutton", name="New tokens").fill("7")
    page.keyboard.press("Escape")
    page.reload()
    expect(page.get_by_text(re.compile("Generating: |Ended by"))).to_be_visible(timeout=30_000)
    expect(page.get_by_text(re.compile(r"Ended by the (limit of 60 new tokens|end token)"))).to_be_visible(timeout=LONG)
    expect(run_button(page)).to_be_enabled()


def test_a_run_can_be_cancelled_and_what_it_made_is_kept(page: Page, app_server: str) -> None:
    open_app(page, app_server, "/?max_new_tokens=400&decoding=random&seed=1&prompt=Tell+a+long+story")
    run_button(page).click()
    expect(page.get_by_text(re.compile(r"Generating: [2-9] of at most 400"))).to_be_visible(timeout=LONG)
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text(re.compile(r"Cancelled after \d+ tokens\."))).to_be_visible(timeout=20_000)


def test_two_readers_wait_for_each_other_in_a_queue_that_shows_the_place(
    page: Page, other: Page, app_server: str
) -> None:
    open_app(page, app_server, "/?max_new_tokens=120&decoding=random&seed=3&prompt=A+very+long+answer")
    run_button(page).click()
    expect(page.get_by_text(re.compile("Generating: "))).to_be_visible(timeout=LONG)
    run_button(other).click()
    expect(other.get_by_text(re.compile(r"In the queue: 1 ahead of you"))).to_be_visible(timeout=10_000)
    page.get_by_role("button", name="Cancel").click()
    expect(other.get_by_text("Ended by the limit of 6 new tokens.")).to_be_visible(timeout=LONG)
    expect(page.get_by_text(re.compile(r"Cancelled after"))).to_be_visible(timeout=20_000)


def test_another_token_makes_a_branch_and_the_tree_leads_back(page: Page, app_server: str) -> None:
    open_app(page, app_server, "/?max_new_tokens=6&decoding=greedy&run=1")
    expect(page.get_by_text("Ended by the limit of 6 new tokens.")).to_be_visible(timeout=LONG)
    page.get_by_role("button", name="Branch here").click()
    page.get_by_role("button", name=re.compile(r"^The ")).click()
    expect(page.get_by_text("The (id 504) was put in by you")).to_be_visible(timeout=LONG)
    page.get_by_role("button", name="Runs").click()
    page.get_by_role("button", name=re.compile("What·is·gravity")).click()
    expect(page.get_by_text("Gra (id 22007) was chosen")).to_be_visible(timeout=20_000)
    page.reload()
    expect(page.get_by_role("button", name="Runs")).to_be_visible(timeout=30_000)


def test_a_broken_run_file_is_refused_and_the_run_on_show_stays(reader: Page, tmp_path: Path) -> None:
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00{}      ")
    reader.get_by_role("button", name="Open a file").click()
    reader.locator("input[type=file]").first.set_input_files(broken)
    expect(reader.get_by_text("This safetensors file holds no run.")).to_be_visible(timeout=20_000)
    expect(reader.get_by_text("Ended by the end token <|im_end|> (id 2).")).to_be_visible()


def test_a_run_file_opens_beside_the_runs_of_the_session(page: Page, app_server: str) -> None:
    open_app(page, app_server, "/?max_new_tokens=2&decoding=greedy&run=1")
    expect(page.get_by_text("Ended by the limit of 2 new tokens.")).to_be_visible(timeout=LONG)
    page.get_by_role("button", name="Open a file").click()
    page.locator("input[type=file]").first.set_input_files(DEMO)
    expect(page.get_by_text("Ended by the end token <|im_end|> (id 2).")).to_be_visible(timeout=30_000)
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Runs").click()
    expect(page.get_by_role("button", name=re.compile("What·is·gravity"))).to_have_count(2)


def test_a_text_file_becomes_the_prompt(reader: Page, tmp_path: Path) -> None:
    text = tmp_path / "prompt.txt"
    text.write_text("Ein Text <mit> $Zeichen$\n", encoding="utf-8")
    reader.get_by_role("button", name="Open a file").click()
    reader.locator("input[type=file]").nth(1).set_input_files(text)
    expect(reader.get_by_role("textbox", name="Prompt")).to_have_value("Ein Text <mit> $Zeichen$\n", timeout=20_000)


def test_a_prompt_of_markup_is_shown_as_it_was_typed(page: Page, app_server: str) -> None:
    open_app(page, app_server, "/?max_new_tokens=2&decoding=greedy&chat=false")
    page.get_by_role("textbox", name="Prompt").fill("<b>x</b> $y$ *z* :smile: </script>")
    page.get_by_role("textbox", name="Prompt").press("Control+Enter")
    run_button(page).click()
    expect(page.get_by_text("Ended by the limit of 2 new tokens.")).to_be_visible(timeout=LONG)
    prompt = page.locator(".strip .chip.prompt").all_text_contents()
    assert "".join(prompt) == "<b>x</b>·$y$·*z*·:smile:·</script>"
    assert page.locator("[data-testid=stMain] script").count() == 0


def test_a_prompt_past_the_context_says_both_numbers_and_the_earlier_run_stays(page: Page, app_server: str) -> None:
    open_app(page, app_server, "/?max_new_tokens=2&decoding=greedy")
    page.get_by_role("textbox", name="Prompt").fill("word " * 20_000)
    page.get_by_role("textbox", name="Prompt").press("Control+Enter")
    run_button(page).click()
    error = page.get_by_test_id("stAlertContentError")
    expect(error).to_have_text(re.compile(r"The prompt has 2\d{4} tokens; .* at most 8192"), timeout=LONG)
    expect(page.get_by_text("Ended by the end token <|im_end|> (id 2).")).to_be_visible()


def test_the_language_of_a_link_stays_on_the_way_to_another_page(page: Page, app_server: str) -> None:
    page.goto(app_server + "/?lang=zh-Hans")
    expect(page.get_by_role("textbox", name="提示词")).to_be_visible(timeout=30_000)
    page.get_by_role("link", name="键值缓存").click()
    expect(page.get_by_role("heading", name="键值缓存", exact=True)).to_be_visible(timeout=30_000)


def test_a_reload_of_another_page_keeps_the_run_and_the_language(page: Page, app_server: str) -> None:
    page.goto(app_server + "/?lang=zh-Hans&model=kitten&chat=false&prompt=小猫跑了一天，它很&decoding=greedy&run=1")
    expect(page.get_by_text("因结束词元 <eos>（ID 2）而停止。")).to_be_visible(timeout=LONG)
    page.get_by_role("link", name="键值缓存").click()
    expect(page).to_have_url(re.compile(r"/kv\?job=.*&lang=zh-Hans"), timeout=30_000)
    page.reload()
    expect(page.get_by_role("heading", name="键值缓存", exact=True)).to_be_visible(timeout=30_000)
    expect(page.get_by_text("Kitten (teaching model)")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", name="回放")).to_be_visible(timeout=30_000)


def test_the_language_can_be_switched_and_comes_with_the_link(page: Page, app_server: str) -> None:
    page.goto(app_server + "/?lang=zh-Hant")
    expect(page.get_by_role("textbox", name="提示詞")).to_be_visible(timeout=30_000)
    page.goto(app_server + "/?lang=zh-Hans")
    expect(page.get_by_role("textbox", name="提示词")).to_be_visible(timeout=30_000)
    page.get_by_role("combobox", name="语言").click()
    page.get_by_role("option", name="English").click()
    expect(page.get_by_role("heading", name="Playback")).to_be_visible(timeout=30_000)
    expect(page).to_have_url(re.compile("lang=en"))
    page.reload()
    expect(page.get_by_role("heading", name="Playback")).to_be_visible(timeout=30_000)


def test_a_change_between_light_and_dark_recolours_the_charts_and_keeps_the_step(page: Page, app_server: str) -> None:
    page.emulate_media(color_scheme="light")
    open_app(page, app_server)
    page.get_by_role("slider").first.press("ArrowRight")
    expect(page.get_by_text("step 1 of 24")).to_be_visible(timeout=10_000)
    tick = page.locator(".js-plotly-plot .xtick text").first
    light = tick.evaluate("text => getComputedStyle(text).fill")
    page.emulate_media(color_scheme="dark")
    expect(tick).not_to_have_css("fill", light, timeout=10_000)
    expect(page.get_by_text("step 1 of 24")).to_be_visible()


def test_the_page_works_by_keyboard_alone_and_at_800_pixels(page: Page, app_server: str) -> None:
    page.set_viewport_size({"width": 800, "height": 1000})
    open_app(page, app_server)
    on_strip = "() => document.activeElement.shadowRoot?.activeElement?.getAttribute('role') === 'listbox'"
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate(on_strip):
            break
    page.keyboard.press("End")
    expect(page.get_by_text("step 24 of 24")).to_be_visible(timeout=10_000)
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_text("step 1 of 24")).to_be_visible(timeout=10_000)
    expect(page.get_by_text("Decode fed one token, Gra")).to_be_visible(timeout=10_000)
    width = page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth")
    assert width <= 800


def test_a_conversation_of_several_turns_becomes_the_prompt(page: Page, app_server: str) -> None:
    open_app(page, app_server, "/?max_new_tokens=2&decoding=greedy&prompt=And+then")
    page.get_by_role("button", name="Conversation").click()
    for at, text in enumerate(("Name a colour.", "Blue.")):
        page.get_by_role("button", name="Add a turn before the prompt").click()
        page.get_by_role("textbox", name="Text", exact=True).nth(at).fill(text)
        page.get_by_role("textbox", name="Text", exact=True).nth(at).press("Control+Enter")
    page.keyboard.press("Escape")
    run_button(page).click()
    expect(page.get_by_text("Ended by the limit of 2 new tokens.")).to_be_visible(timeout=LONG)
    prompt = "".join(page.locator(".strip .chip.prompt").all_text_contents()).replace("·", " ")
    assert prompt.endswith(
        "<|im_start|>user↵Name a colour.<|im_end|>↵<|im_start|>assistant↵Blue.<|im_end|>↵"
        "<|im_start|>user↵And then<|im_end|>↵<|im_start|>assistant↵"
    )


def test_the_tables_of_the_page_are_drawn_when_they_are_opened(reader: Page) -> None:
    tables = reader.get_by_test_id("stDataFrame")
    expect(tables).to_have_count(0)
    reader.get_by_text("All steps as a table").click()
    expect(tables).to_have_count(1, timeout=20_000)
    reader.get_by_text("What was fed, what is in the cache, what was chosen").click()
    expect(tables).to_have_count(2, timeout=20_000)


def test_a_model_that_is_not_there_is_refused_with_the_nearest_ones_and_the_run_on_show_stays(
    page: Page, app_server: str
) -> None:
    open_app(page, app_server, "/?model=smolm2-135")
    run_button(page).click()
    error = page.get_by_test_id("stAlertContentError")
    expect(error).to_contain_text("There is no model called smolm2-135. Did you mean smollm2-135m", timeout=LONG)
    expect(page.get_by_text("Ended by the end token <|im_end|> (id 2).")).to_be_visible()


@pytest.mark.parametrize(
    ("name", "starts"),
    [
        ("Run file", b""),
        ("This page as HTML", b"<!doctype html>"),
        ("Table as CSV", b"step,phase,"),
        ("Table as Parquet", b"PAR1"),
    ],
)
def test_a_run_can_be_taken_away_as_a_file(reader: Page, name: str, starts: bytes) -> None:
    with reader.expect_download(timeout=30_000) as download:
        reader.get_by_role("button", name=name).click()
    data = Path(download.value.path()).read_bytes()
    assert data.lower().startswith(starts.lower())
    if name == "Run file":
        assert Trace.load(data).text.startswith("Gravity is a fundamental concept")
