"""The KV cache page in a real browser, with the embedded model: every experiment runs, and can be cancelled."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser import servers

LONG = 120_000  # the first experiment loads the model


@pytest.fixture
def reader(page: Page, app_server: str) -> Page:
    """The page, reached from the first one, on the demo run."""
    page.goto(app_server)
    page.get_by_role("link", name="KV cache").click()
    expect(page.get_by_role("heading", name="KV cache", exact=True)).to_be_visible(timeout=30_000)
    return page


def test_the_first_reader_of_a_server_can_open_the_page_by_its_address(page: Page, tmp_path: Path) -> None:
    with servers.app(tmp_path) as address:
        page.goto(f"{address}/kv")
        expect(page.get_by_text("Step 0 lit 1,200 cells and reused 0.")).to_be_visible(timeout=60_000)
        expect(page.get_by_text("Page not found")).to_have_count(0)


def part(page: Page, name: str) -> None:
    page.get_by_role("radio", name=name, exact=True).click()
    expect(page.get_by_role("radio", name=name, exact=True)).to_be_checked()


def set_number(page: Page, label: str, value: int) -> None:
    field = page.get_by_label(label, exact=True)
    field.fill(str(value))
    field.press("Enter")


def test_stepping_fills_the_grid_and_the_formula_follows(reader: Page) -> None:
    expect(reader.get_by_text("Step 0 lit 1,200 cells and reused 0.")).to_be_visible(timeout=30_000)
    reader.get_by_role("listbox").press("ArrowRight")
    expect(reader.get_by_text("Step 1 lit 30 cells and reused 1,200.")).to_be_visible()
    expect(reader.get_by_text("2 · 30 · 1 · 41 · 3 · 64 · 4 = 1,889,280")).to_be_visible()


def test_the_run_with_and_without_the_cache_agrees(reader: Page) -> None:
    part(reader, "With and without")
    set_number(reader, "Steps", 4)
    reader.get_by_role("button", name="Run both ways").click()
    expect(
        reader.get_by_text(re.compile("In 4 steps every layer projected 43 positions .* 166 without"))
    ).to_be_visible(timeout=LONG)
    expect(reader.get_by_text(re.compile("which rounding explains"))).to_be_visible()


def test_policies_are_run_side_by_side(reader: Page) -> None:
    part(reader, "Clean-up")
    set_number(reader, "New tokens", 4)
    reader.get_by_role("button", name="Run every policy").click()
    expect(reader.get_by_text("The cache was full after 1 tokens.")).to_be_visible(timeout=LONG)
    expect(reader.get_by_text(re.compile("The limit is 22 positions, 990.00 KiB"))).to_be_visible()
    for name in ("No limit", "Sliding window", "First 4 and newest", "Clear all", "Stop"):
        expect(reader.get_by_role("heading", name=name, exact=True)).to_be_visible()


def test_quantised_runs_show_bytes_and_channels(reader: Page) -> None:
    part(reader, "Quantised")
    set_number(reader, "Steps", 3)
    reader.get_by_role("button", name="Run with each format").click()
    expect(reader.get_by_text(re.compile(r"q8_0 moves the logits by up to .* of 3 steps\."))).to_be_visible(
        timeout=LONG
    )
    reader.get_by_role("radio", name="Values", exact=True).click()
    expect(reader.get_by_role("heading", name="Channels of the values")).to_be_visible()


def test_a_stored_prefix_gives_the_same_tokens(reader: Page) -> None:
    part(reader, "Blocks and prefixes")
    reader.get_by_role("button", name="Prefill both ways").click()
    expect(reader.get_by_text(re.compile("Both ways go on with the same tokens"))).to_be_visible(timeout=LONG)
    expect(reader.get_by_text(re.compile("the first 64 are the run's; 64 were copied in whole blocks"))).to_be_visible()


def test_an_experiment_is_cancelled_and_the_page_goes_on(reader: Page) -> None:
    part(reader, "Clean-up")
    set_number(reader, "New tokens", 200)
    reader.get_by_role("button", name="Run every policy").click()
    reader.get_by_role("button", name="Cancel").click(timeout=30_000)
    expect(reader.get_by_text("Cancelled; nothing was kept of it.")).to_be_visible(timeout=LONG)
    expect(reader.get_by_role("button", name="Run every policy")).to_be_enabled()
