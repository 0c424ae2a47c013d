"""The page on prefill and decode in a real browser, with the embedded model: typed times, a sweep, the roofline."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

LONG = 240_000  # the first measurement loads the model


@pytest.fixture
def reader(page: Page, app_server: str) -> Page:
    """The page, reached from the first one, on the demo run."""
    page.goto(app_server)
    page.get_by_role("link", name="Prefill and decode").click()
    expect(page.get_by_role("heading", name="Prefill and decode", exact=True)).to_be_visible(timeout=30_000)
    return page


def tile(card: Locator, label: str) -> Locator:
    """The card of a figure, by its label."""
    return card.locator(".card", has=card.page.locator(".label", has_text=re.compile(f"^{re.escape(label)}$")))


def part(page: Page, name: str) -> None:
    page.get_by_role("radio", name=name, exact=True).click()
    expect(page.get_by_role("radio", name=name, exact=True)).to_be_checked()


def test_typed_times_give_the_lessons_figures_and_follow_what_is_typed(reader: Page) -> None:
    card = reader.locator(".st-key-typed-times-card")
    for label, value in (("TTFT", "200.0 ms"), ("TPOT", "50.0 ms"), ("Decode tok/s", "20.0")):
        expect(tile(card, label).locator(".value")).to_have_text(value, timeout=30_000)
    field = card.get_by_role("textbox")
    field.fill("0.5")
    field.press("Enter")
    expect(tile(card, "TPOT").locator(".note")).to_have_text("needs two tokens")


def test_a_sweep_runs_the_model_survives_a_reload_and_a_cancelled_one_leaves_it(reader: Page) -> None:
    part(reader, "On this machine")
    reader.get_by_role("combobox", name="Longest").click()
    reader.get_by_role("option", name="64", exact=True).click()
    reader.get_by_role("button", name="Measure the prefill").click()
    measured = reader.get_by_text(re.compile(r"Measured on .*, SmolLM2 135M Instruct, float32: 64 tokens took"))
    expect(measured).to_be_visible(timeout=LONG)
    expect(reader.locator(".st-key-chart-card-sweep-prefill .js-plotly-plot")).to_be_visible()
    expect(reader.get_by_role("button", name="Download all rounds (CSV)")).to_be_visible()
    expect(reader).to_have_url(re.compile("job="))
    reader.reload()
    part(reader, "On this machine")
    expect(measured).to_be_visible(timeout=30_000)
    reader.get_by_role("combobox", name="Longest").click()
    reader.get_by_role("option", name="64", exact=True).click()
    reader.get_by_role("button", name="Measure the prefill").click()
    reader.get_by_role("button", name="Cancel").click(timeout=30_000)
    expect(reader.get_by_text("Cancelled; what was measured before is kept.")).to_be_visible(timeout=LONG)
    expect(measured).to_be_visible()


@pytest.fixture
def of_the_experts(page: Page, app_server: str) -> Page:
    """The page on a run of the teaching model with experts, which is measured in seconds."""
    page.goto(f"{app_server}/?model=experts&chat=false&prompt=12%2B7%3D&max_new_tokens=4&decoding=greedy&run=1")
    expect(page.get_by_text(re.compile("Ended by "))).to_be_visible(timeout=LONG)
    page.get_by_role("link", name="Prefill and decode").click()
    expect(page.get_by_role("heading", name="Prefill and decode", exact=True)).to_be_visible(timeout=30_000)
    return page


def test_requests_are_scheduled_on_measured_costs_and_a_real_batchs_rows_say_what_they_say_alone(
    of_the_experts: Page,
) -> None:
    reader = of_the_experts
    part(reader, "Batching and serving")
    reader.get_by_role("button", name="Measure what is missing").click()
    said = reader.get_by_text(re.compile(r"A simulation: no request is run.*Experts .*, float32"))
    expect(said).to_be_visible(timeout=LONG)
    schedule = reader.locator(".st-key-chart-card-serving-schedule")
    expect(schedule.get_by_text("6 · 48 → 40")).to_have_count(3)  # a row of its own under each policy
    reader.get_by_label("Continuous: prefill chunk").click()
    reader.get_by_role("option", name="32", exact=True).click()
    expect(schedule.get_by_text("6 · 48 → 40")).to_have_count(4, timeout=30_000)
    reader.get_by_role("button", name="Run the batch").click()
    same = reader.get_by_text(re.compile("Each of the 4 rows chose the same tokens in the batch as alone"))
    expect(same).to_be_visible(timeout=LONG)
    expect(reader.get_by_role("table", name="In the batch and alone").get_by_role("row")).to_have_count(8)
    expect(reader.locator(".st-key-chart-card-batch-grid .js-plotly-plot")).to_be_visible()


def test_the_roofline_is_measured_on_this_machine(reader: Page) -> None:
    part(reader, "Roofline")
    reader.get_by_label("Prompt tokens").click()
    reader.get_by_role("option", name="64", exact=True).click()
    reader.get_by_role("button", name="Measure this machine").click()
    expect(reader.get_by_text(re.compile(r"Measured on .* GB/s read, .* GFLOP/s.*of the limit"))).to_be_visible(
        timeout=LONG
    )
