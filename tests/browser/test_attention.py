"""The attention page in a real browser: open a head, read rows and columns, zoom, move by keyboard, awkward tokens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from inference.attention_rows import Axis, LayerRows, pooled
from inference.trace import Trace

DEMO = Path(__file__).resolve().parents[2] / "assets" / "demo.safetensors"


def open_page(page: Page, address: str, query: str = "") -> Page:
    page.goto(address)  # a server that has just started knows its pages when the first one has been shown
    expect(page.get_by_role("heading", name="Playback")).to_be_visible(timeout=60_000)
    page.goto(f"{address}/attention{query}")
    expect(page.locator(".head_view .plot")).to_be_visible(timeout=60_000)
    return page


@pytest.fixture
def reader(page: Page, app_server: str) -> Page:
    return open_page(page, app_server)


def reads(page: Page) -> list[str]:
    """The positions in the list of the strongest."""
    return page.locator(".head_view .top .place").all_text_contents()


def strongest(layer: int, head: int, query: int) -> list[str]:
    trace = Trace.load(DEMO)
    step = max(0, query - trace.n_prompt + 1)
    row = trace.attention(step, layer)[head, query - trace.first_position(step)]
    return [str(at) for at in row.argsort()[::-1][:5]]


def test_a_click_on_a_thumbnail_opens_that_head_and_the_link_names_it(reader: Page) -> None:
    reader.locator('.head_map .thumb[data-layer="9"][data-head="3"]').click()
    expect(reader.get_by_role("heading", name="Attention · layer 9 · head 3")).to_be_visible(timeout=20_000)
    expect(reader).to_have_url(re.compile(r"layer=9"))
    expect(reader).to_have_url(re.compile(r"head=3"))
    assert reads(reader) == strongest(9, 3, 39)


def test_a_link_opens_step_layer_and_head(page: Page, app_server: str) -> None:
    open_page(page, app_server, "?step=4&layer=9&head=3")
    expect(page.get_by_role("heading", name="Attention · layer 9 · head 3")).to_be_visible(timeout=20_000)
    expect(page.get_by_text("step 4 of 24")).to_be_visible()
    assert reads(page) == strongest(9, 3, 43)


def test_a_token_of_the_text_becomes_the_one_that_reads_and_then_the_one_that_is_read(reader: Page) -> None:
    reader.locator("#reads-33").click()
    expect(reader.get_by_text(re.compile("at position 33 reads most from"))).to_be_visible(timeout=20_000)
    hidden = reader.locator(".head_view .chip.hidden")
    assert hidden.count() == 64 - 34
    reader.get_by_role("button", name="Who reads this token").click()
    expect(reader.get_by_text(re.compile("at position 33 is read most by"))).to_be_visible(timeout=20_000)
    assert reader.locator(".head_view .chip.hidden").count() == 33


def test_a_drag_zooms_to_exact_tokens_and_whole_shows_all_again(reader: Page) -> None:
    box = reader.locator(".head_view .plot").bounding_box()
    assert box
    reader.mouse.move(box["x"] + 2, box["y"] + box["height"] * 0.52)
    reader.mouse.down()
    reader.mouse.move(box["x"] + box["width"] * 0.24, box["y"] + box["height"] * 0.76, steps=4)
    reader.mouse.up()
    expect(reader.get_by_text("queries 33–48, keys 0–15")).to_be_visible(timeout=20_000)
    marks = reader.locator(".head_view .columns .mark").all_text_contents()
    assert marks[:3] == ["<|im_sta…", "system", "↵"] or marks[0].startswith("<|im_")
    reader.get_by_role("button", name="Whole").click()
    expect(reader.get_by_text("queries 0–63, keys 0–63")).to_be_visible(timeout=20_000)


def test_the_pointer_tells_both_tokens_and_the_weight_and_what_is_hidden(reader: Page) -> None:
    trace = Trace.load(DEMO)
    box = reader.locator(".head_view .plot").bounding_box()
    assert box
    cell = box["width"] / 64
    tip = reader.locator(".head_view .tip")
    reader.mouse.move(box["x"] + 0.5 * cell, box["y"] + 50.5 * cell)
    weight = pooled(LayerRows(trace, 14), 0, Axis(50, 51), Axis(0, 1))[0, 0]
    expect(tip).to_contain_text(f"query 50 {trace.tokens[50].display}")
    expect(tip).to_contain_text("key 0 <|im_start|>")
    expect(tip).to_contain_text(f"weight {weight:.1%}")
    reader.mouse.move(box["x"] + 60.5 * cell, box["y"] + 10.5 * cell)
    expect(tip).to_contain_text("hidden by the mask")


def test_the_page_works_by_keyboard_alone_and_at_800_pixels(page: Page, app_server: str) -> None:
    page.set_viewport_size({"width": 800, "height": 1000})
    open_page(page, app_server)
    page.locator(".head_map .thumb.chosen").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Attention · layer 19 · head 1")).to_be_visible(timeout=20_000)
    page.locator(".head_view .plot").focus()
    page.keyboard.press("ArrowUp")
    expect(page.get_by_text(re.compile("at position 38 reads most from"))).to_be_visible(timeout=20_000)
    page.keyboard.press("Enter")
    expect(page.get_by_text(re.compile("at position 38 is read most by"))).to_be_visible(timeout=20_000)
    page.keyboard.press("+")
    expect(page.get_by_text(re.compile(r"keys 22–53"))).to_be_visible(timeout=20_000)
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 800


def test_a_ranking_puts_the_highest_head_first(reader: Page) -> None:
    reader.get_by_role("combobox", name="Order").click()
    reader.get_by_role("option", name="highest first").click()
    first = reader.locator(".head_map .ranked .thumb").first
    expect(first).to_be_visible(timeout=20_000)
    place = re.search(r"Highest entropy: layer (\d+), head (\d+)", reader.locator("[data-testid=stMain]").inner_text())
    assert place
    assert first.locator(".name").inner_text() == f"{place[1]}·{place[2]}"


def test_tokens_that_repeat_or_look_like_markup_are_shown_as_they_are(page: Page, app_server: str) -> None:
    page.goto(app_server + "/?prompt=the+cat+the+cat+%3Cs%3E+%3Cbr%3E+%F0%9F%99%82&chat=false&max_new_tokens=2&run=1")
    expect(page.get_by_text("Ended by the limit of 2 new tokens.")).to_be_visible(timeout=120_000)
    page.get_by_role("link", name="Attention").click()
    expect(page.locator(".head_view .plot")).to_be_visible(timeout=60_000)
    texts = page.locator(".head_view .chip").all_text_contents()
    assert "".join(texts).startswith("the·cat·the·cat·<s>·<br>")
    marks = page.locator(".head_view .rows .mark").all_text_contents()
    assert len(marks) == len(texts)
    assert marks[:4] == ["the", "·cat", "·the", "·cat"]
    expect(page.get_by_text("270 heads in 30 layers.")).to_be_visible(timeout=20_000)


def test_a_change_between_light_and_dark_repaints_the_thumbnails(reader: Page) -> None:
    painted = reader.locator(".head_map")
    expect(painted).to_have_css("--sheet", re.compile("blob:"))
    light = painted.evaluate("map => getComputedStyle(map).getPropertyValue('--sheet')")
    reader.emulate_media(color_scheme="dark")
    expect(painted).not_to_have_css("--sheet", light, timeout=10_000)
    expect(painted).to_have_css("--sheet", re.compile("blob:"))


def test_the_other_sections_open_one_at_a_time(reader: Page) -> None:
    reader.get_by_role("tab", name="Masks").click()
    expect(reader.get_by_role("heading", name="The mask of layer 14: causal")).to_be_visible(timeout=20_000)
    reader.get_by_role("tab", name="Teacher forcing").click()
    expect(reader.get_by_role("button", name="Score it")).to_be_visible(timeout=20_000)
    reader.get_by_role("tab", name="Logit lens").click()
    expect(reader.get_by_text(re.compile("final norm and head"))).to_be_visible(timeout=20_000)
