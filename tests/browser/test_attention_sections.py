"""Teacher forcing in a real browser: the pairs, the mask's stripes, and the position that the server hears of."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser import servers

APP = servers.ROOT / "tests" / "ui" / "attention_app.py"
TEXT = "a<b>$x$\ne"  # one token a byte, nine of them


@pytest.fixture(scope="module")
def sections(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a page with the two sections."""
    with servers.page_of(APP, tmp_path_factory.mktemp("sections")) as address:
        yield address


@pytest.fixture
def scored(page: Page, sections: str) -> Page:
    """The page with `TEXT` scored."""
    page.goto(sections)
    page.get_by_text("My own text").click(timeout=60_000)
    page.get_by_label("Text to score").fill(TEXT)
    page.get_by_role("button", name="Score it").click()
    expect(page.locator(".pair")).to_have_count(9, timeout=60_000)
    return page


def pair(page: Page, at: int) -> Locator:
    return page.locator(f"#pair-{at}")


def expect_position(page: Page, at: int) -> None:
    """The ring, the stripes, the words for a screen reader and the server agree."""
    expect(pair(page, at)).to_have_class(re.compile(r"\bcurrent\b"))
    expect(page.locator(".pair.hidden-from")).to_have_count(8 - at)
    expect(page.locator('.pair[aria-selected="true"]')).to_have_id(f"pair-{at}")
    expect(page.get_by_text(f"Position {at} sees {at + 1} tokens; the causal mask hides the {8 - at}")).to_be_visible()


def test_each_input_stands_above_the_token_that_follows_it_literally(scored: Page) -> None:
    inputs, targets = (scored.locator(f".{part}").all_inner_texts() for part in ("input", "target"))
    assert inputs == ["a", "<", "b", ">", "$", "x", "$", "↵", "e"]
    assert targets == [*inputs[1:], "unknown"]
    assert pair(scored, 1).get_attribute("aria-label").startswith("position 1: fed <, must guess b, probability ")


def test_a_click_and_the_keyboard_move_the_position_and_the_mask_with_it(scored: Page) -> None:
    pair(scored, 4).click()
    expect_position(scored, 4)
    scored.locator(".pairs").focus()
    scored.keyboard.press("ArrowRight")
    expect_position(scored, 5)
    scored.keyboard.press("Home")
    expect_position(scored, 0)
    scored.keyboard.press("ArrowLeft")
    expect_position(scored, 0)
    scored.keyboard.press("End")
    expect_position(scored, 8)
    expect(scored.get_by_text("the end of the text: what follows is not known")).to_be_visible()


def test_the_charts_follow_the_position(scored: Page) -> None:
    pair(scored, 2).click()
    expect(scored.get_by_role("heading", name="What position 2 expected next")).to_be_visible()
    pair(scored, 6).click()
    expect(scored.get_by_role("heading", name="What position 6 expected next")).to_be_visible()
