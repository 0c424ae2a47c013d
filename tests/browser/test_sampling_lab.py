"""The sampling lab in a real browser: what moves, what the server confirms, what is refused, the order, the needle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

from inference.sampling import SamplingParams, run_pipeline
from tests.browser import servers

APP = Path(__file__).with_name("sampling_lab_app.py")


@pytest.fixture(scope="module")
def lab_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the page with the component."""
    with servers.page_of(APP, tmp_path_factory.mktemp("lab")) as address:
        yield address


@pytest.fixture
def lab(page: Page, lab_server: str) -> Page:
    """Five tokens of probabilities .6 .2 .1 .06 .04, temperature 0.7, u 0.7, the first one recorded."""
    page.goto(lab_server)
    expect(status(page)).to_have_text("The server has computed the same.", timeout=60_000)
    return page


def status(page: Page) -> Locator:
    return page.locator(".sampling_lab .status")


def field(page: Page, name: str) -> Locator:
    return page.locator(f'.control[data-name="{name}"] .number')


def slider(page: Page, name: str) -> Locator:
    return page.locator(f'.control[data-name="{name}"] .slider')


def enter(page: Page, name: str, value: str) -> None:
    field(page, name).fill(value)
    field(page, name).press("Enter")


def shares(page: Page) -> list[list[str]]:
    """The column view's texts: token, raw logit, then a cell a stage, row by row."""
    rows = page.locator(".columns tbody tr:not([hidden])")
    return [row.locator(".text, .logit, .share").all_text_contents() for row in rows.all()]


def heads(page: Page) -> list[str]:
    return page.locator(".columns thead .name").all_text_contents()


def agreed(page: Page, said: str) -> None:
    """The server heard it, and browser and server have the same."""
    expect(page.get_by_text(said)).to_be_visible(timeout=15_000)
    expect(status(page)).to_have_text("The server has computed the same.", timeout=15_000)


def test_the_columns_show_every_stage_with_the_servers_numbers(lab: Page) -> None:
    enter(lab, "top_k", "3")
    agreed(lab, "T=0.7 k=3 order=transformers")
    logits = np.log(np.array([0.6, 0.2, 0.1, 0.06, 0.04])).astype(np.float32)
    raw, tempered, final = run_pipeline(logits, SamplingParams(temperature=0.7, top_k=3))
    assert heads(lab) == ["raw probability", "temperature", "top_k"]
    rows = shares(lab)
    for at in range(3):
        assert rows[at][2:] == [
            f"{100 * stage.probs[at]:.{1 if stage.probs[at] >= 0.1 else 2}f}%" for stage in (raw, tempered, final)
        ]
    gone = lab.locator(".columns tbody tr").nth(3).locator("td").last
    expect(gone).to_have_attribute("title", "removed by top_k")
    expect(gone).to_have_class("gone first")
    assert gone.locator(".share").evaluate("node => getComputedStyle(node).textDecorationLine") == "line-through"


def test_the_picture_follows_a_slider_before_the_server_is_told_and_it_answers_on_release(lab: Page) -> None:
    before = shares(lab)[0]
    slider(lab, "temperature").evaluate("node => { node.value = 1.4; node.dispatchEvent(new Event('input')); }")
    expect(status(lab)).to_have_class("status waiting")
    assert shares(lab)[0][:3] == before[:3]
    assert shares(lab)[0][3] != before[3]
    expect(lab.get_by_text("T=0.7 ")).to_be_visible()
    slider(lab, "temperature").dispatch_event("change")
    agreed(lab, "T=1.4 ")
    expect(lab.get_by_text("Confirmed: 1.4")).to_be_visible()  # the explanation follows


def test_arrow_keys_move_a_slider_and_a_typed_number_by_a_sensible_step(lab: Page) -> None:
    slider(lab, "temperature").press("ArrowRight")
    agreed(lab, "T=0.75 ")
    field(lab, "top_k").press("ArrowUp")
    agreed(lab, "T=0.75 k=1 ")


def test_other_tokens_are_one_row_with_their_mass(page: Page, lab_server: str) -> None:
    page.goto(f"{lab_server}/?size=5000")
    expect(status(page)).to_have_text("The server has computed the same.", timeout=60_000)
    other = page.locator(".columns tr.other")
    expect(other.locator(".text")).to_have_text("all other 4,986 tokens")
    logits = np.random.default_rng(5000).normal(0, 3, 5000).astype(np.float32)
    probs = np.sort(run_pipeline(logits, SamplingParams())[0].probs)[::-1]
    shown = float(other.locator(".share").first.text_content().rstrip("%"))
    assert 100 * probs[14:].sum() - 0.1 <= shown <= 100 * probs[12:].sum() + 0.1  # the recorded and the hit have rows


@pytest.mark.parametrize(
    ("name", "typed", "sentence"),
    [
        ("temperature", "-1", "temperature must be a number of at least 0, not -1."),
        ("temperature", "hot", "temperature must be a number of at least 0, not hot."),
        ("top_p", "1.5", "top_p must be a number from 0 to 1, not 1.5."),
        ("top_k", "2.5", "top_k must be a whole number of at least 0, not 2.5."),
        ("top_k", "-3", "top_k must be a whole number of at least 0, not -3."),
        ("repetition_penalty", "0", "repetition_penalty must be above 0. 1 turns it off."),
        ("presence_penalty", "1e999", "presence_penalty must be a number, not 1e999."),
    ],
)
def test_what_cannot_be_is_refused_at_its_field_and_the_last_picture_stays(
    lab: Page, name: str, typed: str, sentence: str
) -> None:
    before = shares(lab)
    enter(lab, name, typed)
    control = lab.locator(f'.control[data-name="{name}"]')
    expect(control.locator(".error")).to_have_text(sentence)
    expect(control.locator(".number")).to_have_value(typed)
    expect(control.locator(".number")).to_have_attribute("aria-invalid", "true")
    assert shares(lab) == before
    lab.get_by_role("button", name="vLLM").click()  # the rest goes on, with the last value that was allowed
    agreed(lab, "T=0.7 k=0 order=vllm")
    enter(lab, name, "1")
    expect(control.locator(".error")).to_be_hidden()


def test_values_at_the_edge_say_what_they_do(lab: Page) -> None:
    enter(lab, "temperature", "0")
    agreed(lab, "T=0 ")
    expect(lab.get_by_text("A temperature of at most 0.00001 is greedy: the highest score is taken.")).to_be_visible()
    assert heads(lab) == ["raw probability", "greedy"]
    expect(lab.locator(".fell")).to_have_text(
        "Greedy decoding takes “·tired”, whatever u is. The run took the same token."
    )
    enter(lab, "temperature", "1")
    enter(lab, "top_p", "0")
    expect(lab.get_by_text("0 keeps the likeliest token alone.")).to_be_visible()
    expect(lab.locator("thead small").filter(has_text="1 left")).to_be_visible()
    enter(lab, "top_p", "1")
    enter(lab, "top_k", "9")
    expect(lab.get_by_text("The vocabulary has 5 tokens, so nothing is removed.")).to_be_visible()
    agreed(lab, "T=1 k=9 ")


def test_settings_that_remove_everything_are_named_and_the_last_picture_stays(lab: Page) -> None:
    lab.locator(".more summary").click()
    before = shares(lab)[0][:3]
    enter(lab, "no_repeat_ngram_size", "1")  # 0 and 2 have been written
    agreed(lab, "T=0.7 ")
    assert heads(lab) == ["raw probability", "no_repeat_ngram_size", "temperature"]
    assert shares(lab)[0][:3] == before
    expect(lab.locator(".columns tbody tr").nth(0).locator("td.first")).to_have_attribute(
        "title", "removed by no_repeat_ngram_size"
    )


def test_a_logit_that_is_no_number_is_said_and_nothing_crashes(page: Page, lab_server: str) -> None:
    page.goto(f"{lab_server}/?nan=1")
    sentence = "The model's logit for token 1 is NaN, so there is no distribution to choose from."
    expect(page.locator(".table .error")).to_have_text(sentence, timeout=60_000)
    enter(page, "temperature", "0.3")
    expect(page.locator(".table .error")).to_have_text(sentence)
    expect(page.locator(".stException")).to_have_count(0)


def test_the_order_of_an_engine_changes_the_result_and_the_page_says_where(lab: Page) -> None:
    enter(lab, "temperature", "2")
    enter(lab, "top_p", "0.7")
    agreed(lab, "T=2 ")
    expect(lab.locator(".parts").last).to_have_text("")
    lab.get_by_role("button", name="llama.cpp").click()
    agreed(lab, "order=llama.cpp")
    assert heads(lab) == ["raw probability", "top_p", "temperature"]
    # by hand: raw .6 .2 reach .7 with two; at temperature 2, .41 .24 .17 with three
    expect(lab.locator(".order .parts")).to_have_text(
        "Order changes the result: top_p leaves 2 tokens here and 3 in transformers’ order."
    )
    expect(lab.locator("th.differs .name")).to_have_text("top_p")


def test_a_column_is_moved_by_keyboard_and_by_dragging(lab: Page) -> None:
    enter(lab, "top_p", "0.7")
    enter(lab, "top_k", "4")
    agreed(lab, "T=0.7 k=4 ")
    assert heads(lab) == ["raw probability", "temperature", "top_k", "top_p"]
    lab.locator('th[data-step="temperature"]').press("Alt+ArrowRight")
    assert heads(lab) == ["raw probability", "top_k", "temperature", "top_p"]
    expect(lab.locator('th[data-step="temperature"]')).to_be_focused()
    expect(status(lab)).to_have_text("The server has computed the same.", timeout=15_000)
    expect(lab.locator(".order .parts")).to_have_text("In transformers’ order the result is the same.")
    lab.locator('th[data-step="top_p"]').drag_to(lab.locator('th[data-step="top_k"]'), target_position={"x": 4, "y": 8})
    assert heads(lab) == ["raw probability", "top_p", "top_k", "temperature"]
    expect(lab.get_by_text("own order")).to_be_visible()
    expect(status(lab)).to_have_text("The server has computed the same.", timeout=15_000)
    lab.get_by_role("button", name="transformers").click()
    agreed(lab, "order=transformers")


def test_the_needle_names_the_token_that_u_falls_on(lab: Page) -> None:
    enter(lab, "temperature", "1")
    expect(lab.locator(".fell")).to_have_text("u = 0.7000 falls on “·sleepy”, which has 20.0%. The run took “·tired”.")
    bar = lab.locator(".bar")
    bar.press("Home")
    expect(lab.locator(".fell")).to_contain_text("u = 0.0000 falls on “·tired”, which has 60.0%. The run took the same")
    agreed(lab, "u=0.0000")
    box = bar.bounding_box()
    assert box
    lab.mouse.move(box["x"] + 5, box["y"] + 20)
    lab.mouse.down()
    lab.mouse.move(box["x"] + 0.85 * box["width"], box["y"] + 20, steps=5)
    expect(lab.locator(".fell")).to_contain_text("falls on “·hungry”")
    expect(lab.locator(".part.hit")).to_have_attribute("title", "·hungry: 10.0%")
    hit = lab.locator(".part.hit").bounding_box()
    pin = lab.locator(".pin").bounding_box()
    assert hit
    assert pin
    assert hit["x"] <= pin["x"] + pin["width"] / 2 <= hit["x"] + hit["width"]
    lab.mouse.up()
    agreed(lab, "u=0.85")
    lab.get_by_role("button", name="Redraw").click()
    lab.get_by_role("button", name="Back to the recorded u").click()
    agreed(lab, "u=0.7000")
    lab.locator(".u .number").fill("1")
    expect(lab.locator(".needle .error")).to_have_text("u must be a number from 0 to below 1, not 1.")


def test_the_page_says_so_when_server_and_browser_disagree(page: Page, lab_server: str) -> None:
    page.goto(f"{lab_server}/?wrong=1")
    expect(status(page)).to_have_text(
        "Server and browser disagree at top_k; the server’s result counts: “·tired”.", timeout=60_000
    )


def test_markup_in_a_token_is_shown_as_it_is_written(lab: Page) -> None:
    assert [row[0] for row in shares(lab)][:5] == ["·tired", "·sleepy", "·hungry", "<b>x</b>", "$y$"]
    assert lab.locator(".columns b").count() == 0


def test_another_step_keeps_the_readers_settings_and_takes_its_own_u(lab: Page) -> None:
    enter(lab, "temperature", "1.5")
    agreed(lab, "T=1.5 k=0 order=transformers u=0.7000")
    lab.get_by_text("Next step").click()
    agreed(lab, "T=1.5 k=0 order=transformers u=0.0500")
    expect(lab.locator(".columns tbody tr").nth(0).locator(".text")).to_have_text("$y$")


def test_the_logits_are_sent_once_a_step(page: Page, lab_server: str) -> None:
    sizes: list[int] = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: sizes.append(len(frame))))
    page.goto(f"{lab_server}/?size=49152")
    expect(status(page)).to_have_text("The server has computed the same.", timeout=60_000)
    assert sum(size > 4 * 49_152 for size in sizes) == 1
    sizes.clear()
    enter(page, "temperature", "1.1")
    agreed(page, "T=1.1 ")
    assert sum(sizes) < 100_000
