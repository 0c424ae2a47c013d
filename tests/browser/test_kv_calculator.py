"""The memory calculator in a real browser: its arithmetic against the server's, sliders, bad input, the address."""

from __future__ import annotations

import json
import random
import re
from dataclasses import asdict
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from inference.cli_memory import sizes
from inference.elements import ELEMENT_TYPES
from inference.errors import CalculatorError
from inference.kv_memory import KVLayout
from inference.kv_variants import with_kv_heads
from tests.kv_data import CATALOGUE, ROOT
from ui.components.kv_calculator import _groups, _pairs

SCRIPT = (ROOT / "assets" / "components" / "kv_bytes.js").read_text("utf-8")
RUN = """(plans) => {
  %s
  return plans.map((plan) => {
    try {
      const bytes = totalBytes(plan);
      const units = [...BINARY, ...DECIMAL].map(([name, unit]) => `${decimal(bytes, unit)} ${name}`);
      return [String(bytes), units];
    } catch (refusal) {
      if (!(refusal instanceof Refusal)) throw refusal;
      return [refusal.sentence, []];
    }
  });
}"""


def plan_of(
    layout: KVLayout, tokens: Any, batch: int, types: tuple[str, str], encoder: int, page: int, tp: int
) -> dict:
    pairs = [[tokens, batch]] if isinstance(tokens, int) else _pairs(tokens)
    elements = [asdict(ELEMENT_TYPES[t]) | {"model_bytes": ELEMENT_TYPES[t].model_bytes} for t in types]
    return {
        "groups": _groups(layout.layers),
        "types": elements,
        "pairs": pairs,
        "encoder": encoder,
        "page": page,
        "tp": tp,
    }


def test_the_browser_counts_every_model_type_page_and_device_to_the_byte_as_the_server_does(page: Page) -> None:
    dice, plans, expected = random.Random(6), [], []
    layouts = [KVLayout.from_catalogue(entry) for entry in CATALOGUE.values()]
    layouts.append(with_kv_heads(KVLayout.from_catalogue(CATALOGUE["DeepSeek-V3"]), 8))  # keys of 192, values of 128
    for layout in layouts:
        for _ in range(24):
            batch = dice.choice([1, 3, 512])
            tokens: Any = dice.choice([1, 17, 4097, 10**6, 10**9, [5, 5, 4096, dice.randint(1, 10**5)]])
            batch = batch if isinstance(tokens, int) else 1
            keys = dice.choice(list(ELEMENT_TYPES))
            types = (keys, dice.choice([keys, *ELEMENT_TYPES]))
            encoder, block, tp = dice.choice([0, 512]), dice.choice([1, 16, 7]), dice.choice([1, 2, 4, 16])
            plans.append(plan_of(layout, tokens, batch, types, encoder, block, tp))
            try:
                held = layout.shard(tp).bytes(tokens, batch, types, encoder_tokens=encoder, page_size=block)
            except CalculatorError:
                held = None
            expected.append(held)
    found = page.evaluate(RUN % SCRIPT, plans)
    for plan, (text, _units), held in zip(plans, found, expected, strict=True):
        assert text == str(held) if held is not None else text in ("blocks", "shares"), plan
    assert len([held for held in expected if held is None]) < len(expected) / 2


def test_the_browser_writes_sizes_in_all_six_units_as_the_command_line_does(page: Page) -> None:
    layout = KVLayout.from_geometry(32, 8, 128)
    tokens = [1, 3, 8192, 128_000, 10**9, 5 * 10**6 + 1]
    found = page.evaluate(RUN % SCRIPT, [plan_of(layout, t, 1, ("float16", "float16"), 0, 1, 1) for t in tokens])
    for t, (_bytes, units) in zip(tokens, found, strict=True):
        printed = re.search(r"\((.*)\)", sizes(layout.bytes(t)))
        assert printed is not None
        for amount in printed[1].split(", "):
            assert amount in units


def opened(page: Page, address: str, query: str = "") -> Page:
    page.goto(address)  # the default page first: a server's very first session knows no other page
    expect(page.locator(".js-plotly-plot").first).to_be_visible(timeout=30_000)
    page.goto(f"{address}/memory{query}")
    expect(page.locator(".kv_calculator .total")).to_be_visible(timeout=30_000)
    expect(page.locator(".js-plotly-plot")).to_have_count(3, timeout=30_000)
    return page


@pytest.fixture
def calculator(page: Page, app_server: str) -> Page:
    return opened(page, app_server)


def number(page: Page, name: str) -> Any:
    return page.locator(f"#calculator-{name}")


def slider(page: Page, name: str) -> Any:
    return page.get_by_role("slider", name=name, exact=True)


def test_the_formula_shows_each_factor_and_exactly_one_gibibyte(calculator: Page) -> None:
    expect(calculator.locator(".total")).to_have_text("1 GiB")
    expect(calculator.locator(".exact")).to_have_text("1,073,741,824 bytes")
    factors = calculator.locator(".factor b").all_inner_texts()
    assert factors == ["", "2", "32", "1", "8,192", "8", "128", "2", "1,073,741,824"]
    units = calculator.locator(".units").inner_text().split()
    assert dict(zip(units[::2], units[1::2], strict=True))["GB"] == "1.074"
    expect(calculator.locator(".notes")).to_contain_text("these 8 save 75 %")


def test_a_dragged_slider_repaints_at_once_and_the_server_hears_of_it_on_release(calculator: Page) -> None:
    box = slider(calculator, "tokens a sequence").bounding_box()
    assert box is not None
    calculator.mouse.move(box["x"] + box["width"] * 0.65, box["y"] + box["height"] / 2)
    calculator.mouse.down()
    calculator.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + box["height"] / 2, steps=4)
    tokens = int(number(calculator, "tokens").input_value())
    assert tokens > 20_000
    expect(calculator.locator(".exact")).to_have_text(f"{tokens * 131_072:,} bytes")
    assert "tokens=" not in calculator.url
    calculator.mouse.up()
    expect(calculator.get_by_text(f"At {tokens:,} tokens a sequence:")).to_be_visible(timeout=10_000)
    expect(calculator).to_have_url(re.compile(f"tokens={tokens}"))


def test_arrow_keys_move_every_slider_by_one_step_and_small_numbers_by_one(calculator: Page) -> None:
    for name, label, after in (
        ("layers", "layers", "33"),
        ("head_dim", "head size", "136"),
        ("kv_heads", "KV heads", "9"),
    ):
        slider(calculator, label).press("ArrowRight")
        expect(number(calculator, name)).to_have_value(after)
    for count in range(2, 12):
        slider(calculator, "sequences").press("ArrowRight")
        expect(number(calculator, "batch")).to_have_value(str(count))
    total = 2 * 33 * 11 * 8192 * 9 * 136 * 2
    expect(calculator.locator(".exact")).to_have_text(f"{total:,} bytes")
    expect(calculator).to_have_url(
        re.compile("(?=.*layers=33)(?=.*kv_heads=9)(?=.*head_dim=136)(?=.*batch=11)"), timeout=10_000
    )
    expect(calculator.get_by_text("the server counts")).to_have_count(0)


def test_what_is_no_whole_number_is_named_at_its_field_and_the_last_picture_stays(calculator: Page) -> None:
    error, tokens = calculator.locator("#calculator-tokens-error"), number(calculator, "tokens")
    for typed in ("-5", "0", "NaN", "1e9", "8k", "12.5", "9" * 30, ""):
        tokens.fill(typed)
        expect(error).to_contain_text("tokens a sequence: a whole number from 1 to 1,000,000,000 is needed")
        expect(tokens).to_have_attribute("aria-invalid", "true")
        expect(calculator.locator(".total")).to_have_text("1 GiB")
        tokens.fill("128,000")
        expect(error).to_be_empty()
        expect(calculator.locator(".total")).to_have_text("15.625 GiB")
        tokens.fill("8192")
        expect(calculator.locator(".total")).to_have_text("1 GiB")


def test_block_types_that_do_not_divide_the_head_size_are_refused_in_the_result(calculator: Page) -> None:
    number(calculator, "element").select_option(label="q8_0 · 1.0625 B")
    expect(calculator.locator(".exact")).to_have_text(f"{8192 * 69_632:,} bytes")
    number(calculator, "head_dim").fill("72")
    expect(calculator.locator(".refused")).to_contain_text("blocks of 32 values, which do not divide the head size 72")
    expect(calculator.locator(".exact")).to_have_text(f"{8192 * 69_632:,} bytes")


def test_a_model_with_windows_has_a_term_a_kind_of_layer_and_says_why(page: Page, app_server: str) -> None:
    opened(page, app_server, f"?preset={quote('Gemma 3 27B (text)')}&tokens=8192")
    terms = page.locator(".formula tr").all_inner_texts()
    assert [" ".join(term.split()) for term in terms] == [
        "52 layers with a window 2 · 52 · 1 · min(8,192, 1,024) · 16 · 128 · 2 = 436,207,616 bytes",
        "10 full-attention layers 2 · 10 · 1 · 8,192 · 16 · 128 · 2 = 671,088,640 bytes",
    ]
    expect(page.get_by_text("does not hold here")).to_be_visible()
    expect(page.get_by_text("= 1,107,296,256 bytes")).to_be_visible()


def test_an_example_and_another_model_move_the_sliders(calculator: Page) -> None:
    calculator.get_by_role("button", name="Put into the calculator").first.click()
    expect(calculator.locator(".total")).to_have_text("16 GiB", timeout=10_000)
    expect(number(calculator, "batch")).to_have_value("32")
    calculator.get_by_role("combobox", name="Model").click()
    calculator.get_by_role("combobox", name="Model").fill("qwen3 0.6")
    calculator.get_by_role("option", name="Qwen3 0.6B").click()
    expect(number(calculator, "layers")).to_have_value("28", timeout=10_000)
    expect(calculator.locator(".exact")).to_have_text(f"{2 * 28 * 32 * 4096 * 8 * 128 * 2:,} bytes")


def test_a_reload_and_a_shared_address_bring_everything_back(calculator: Page, app_server: str) -> None:
    number(calculator, "tokens").fill("3000")
    number(calculator, "tokens").press("Enter")
    expect(calculator).to_have_url(re.compile("tokens=3000"), timeout=10_000)
    calculator.get_by_text("A list of lengths").click()
    calculator.get_by_role("textbox", name="One length a sequence").fill("100, 4096, 7")
    calculator.get_by_role("textbox", name="One length a sequence").press("Control+Enter")
    expect(calculator.locator(".exact")).to_have_text(f"{4203 * 131_072:,} bytes", timeout=10_000)
    expect(calculator).to_have_url(re.compile("lengths="), timeout=10_000)
    calculator.get_by_role("link", name="Playback").click()
    expect(calculator.get_by_role("heading", name="Playback")).to_be_visible(timeout=20_000)
    calculator.get_by_role("link", name="Memory calculator").click()
    expect(calculator).to_have_url(re.compile(r"/memory\?(?=.*lengths=)(?=.*tokens=3000)"), timeout=20_000)
    assert "layers=" not in calculator.url
    calculator.reload()
    expect(calculator.locator(".exact")).to_have_text(f"{4203 * 131_072:,} bytes", timeout=30_000)
    calculator.get_by_text("Equal lengths").click()
    expect(calculator.locator(".exact")).to_have_text(f"{3000 * 131_072:,} bytes", timeout=10_000)


def test_an_uploaded_config_fills_its_field_and_is_counted(calculator: Page) -> None:
    calculator.get_by_role("combobox", name="Model").click()
    calculator.get_by_role("option", name="My own config.json").click()
    config = {"model_type": "qwen3", "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 2}
    expect(calculator.get_by_text("There is no config yet.")).to_be_visible(timeout=10_000)
    upload = {"name": "config.json", "mimeType": "application/json", "buffer": json.dumps(config).encode()}
    calculator.locator('input[type="file"]').set_input_files(upload)
    expect(calculator.locator(".exact")).to_have_text(f"{2 * 4 * 8192 * 2 * 128 * 2:,} bytes", timeout=10_000)
    expect(calculator.get_by_text("taken: head_dim = 128")).to_be_visible()
    expect(calculator.get_by_role("textbox", name="config.json")).to_have_value(json.dumps(config))
