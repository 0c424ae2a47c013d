"""The Sampling lab in a real browser: a link opens it, its draws come, and its new branch is run by the model."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

LONG = 60_000  # the first run loads the model, and converts it on a machine that has never run it


@pytest.fixture
def lab(page: Page, app_server: str) -> str:
    """The lab's address on a server that has shown its first page: until then Streamlit knows no other."""
    page.goto(app_server)
    expect(page.locator(".js-plotly-plot").first).to_be_visible(timeout=30_000)
    return f"{app_server}/sampling"


def open_lab(page: Page, lab: str, query: str) -> None:
    page.goto(lab + query)
    expect(page.locator(".js-plotly-plot")).to_have_count(5, timeout=30_000)


def test_a_link_opens_its_step_and_settings_and_a_click_draws_a_thousand(page: Page, lab: str) -> None:
    open_lab(page, lab, "?step=9&temperature=1.4")
    expect(page.get_by_role("heading", name="Sampling lab")).to_be_visible()
    expect(page.get_by_text("step 9 of 24")).to_be_visible()
    expect(page.get_by_text("At 1.4 the share of", exact=False)).to_be_visible()
    expect(page.get_by_text("u = 0.6574 falls on", exact=False).first).to_be_visible()
    page.get_by_role("button", name="Draw 1,000 times").click()
    expect(page.get_by_text("1,000 draws with seed 1", exact=False)).to_be_visible(timeout=30_000)


def test_the_new_branch_is_run_by_the_model_and_put_on_show(page: Page, lab: str) -> None:
    open_lab(page, lab, "?greedy=true")
    page.get_by_role("button", name="Run on from step").click()
    expect(page.get_by_text("greedy", exact=True)).to_be_visible(timeout=LONG)
    expect(page.get_by_text("these settings choose what the run chose at every step", exact=False)).to_be_visible(
        timeout=LONG
    )
    expect(page.get_by_role("button", name="Run it with these settings")).to_be_disabled()


def test_typed_probabilities_that_are_wrong_are_named_and_right_ones_drawn(page: Page, lab: str) -> None:
    page.goto(f"{lab}?source=typed")
    field = page.get_by_role("textbox", name="Tokens, each with its number")
    expect(field).to_have_value("累 0.6, 困 0.2, 饿 0.1", timeout=30_000)
    field.fill("累 0.9, 困 0.2")
    field.press("Enter")
    expect(page.get_by_text("The probabilities add up to 1.1", exact=False)).to_be_visible(timeout=30_000)
    expect(field).to_have_value("累 0.9, 困 0.2")
    field.fill("累 0.9, 困 0.1")
    field.press("Enter")
    expect(page.get_by_text("u = 0.5000 falls on “累”", exact=False)).to_be_visible(timeout=30_000)
