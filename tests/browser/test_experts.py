"""The experts page in a real browser: from the demo run to the teaching model's, and another token by keyboard."""

from __future__ import annotations

from playwright.sync_api import Page, expect

LONG = 90_000


def test_the_button_runs_the_teaching_model_and_the_keyboard_moves_to_another_token(
    page: Page, app_server: str
) -> None:
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(app_server)
    expect(page.get_by_role("heading", name="Playback")).to_be_visible(timeout=LONG)
    page.get_by_role("link", name="Experts").click()
    expect(page.get_by_text("SmolLM2 135M Instruct has no experts")).to_be_visible(timeout=LONG)
    page.get_by_role("button", name="Run the teaching model").click()
    expect(page.get_by_role("heading", name="Tokens and experts · layer 1")).to_be_visible(timeout=LONG)
    expect(page.locator(".js-plotly-plot")).to_have_count(4, timeout=LONG)
    expect(page.get_by_text("“·return” at position 42 goes to the dotted experts")).to_be_visible()
    page.get_by_role("slider").focus()
    page.keyboard.press("Home")
    expect(page.get_by_role("heading", name="The way of “<bos>” through the layers")).to_be_visible(timeout=LONG)
    expect(page.get_by_text("“<bos>” at position 0 goes to the dotted experts")).to_be_visible()
    assert errors == []
