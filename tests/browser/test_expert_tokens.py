"""Expert tokens in a real browser: an example is chosen, routed, answered, and the answer opened in Playback."""

from __future__ import annotations

from playwright.sync_api import Page, expect

LONG = 90_000


def test_a_sum_is_routed_answered_and_opened_in_playback(page: Page, app_server: str) -> None:
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{app_server}/experts")
    page.get_by_role("radio", name="Expert tokens", exact=True).click(timeout=LONG)
    expect(page.get_by_text("Who can be asked")).to_be_visible(timeout=LONG)
    page.get_by_role("button", name="Examples").click()
    page.get_by_role("button", name="A sum", exact=True).click()
    expect(page.get_by_role("textbox", name="Request")).to_have_value("7+5=")
    page.keyboard.press("Escape")
    page.get_by_label("Temperature").fill("0")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Route", exact=True).click()
    expect(page.get_by_role("heading", name="The answer of Experts (teaching model)")).to_be_visible(timeout=LONG)
    expect(page.get_by_text("Greedy decoding took <|experts|>, the likeliest")).to_be_visible(timeout=LONG)
    page.get_by_role("button", name="Open in Playback").click(timeout=LONG)
    expect(page.get_by_role("heading", name="Playback")).to_be_visible(timeout=LONG)
    expect(page.get_by_text("Experts (teaching model)").first).to_be_visible(timeout=LONG)
    assert errors == []
