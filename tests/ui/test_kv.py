"""The KV cache page as a script: every part opens on the demo run, without torch, and takes bad input in place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from inference.trace import Trace
from tests.charts.runs import run
from tests.ui.fresh import every_part_opens_without_torch
from ui.kv.blocks import _requests
from ui.kv.parity import most_steps
from ui.kv.reuse import following

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("growth", "parity", "cleanup", "quantised", "blocks")


def demo() -> Trace:
    return Trace.load(ROOT / "assets" / "demo.safetensors")


def opened(part: str = "growth") -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    app.session_state["kv-part"] = part
    return app.run().switch_page("pages/kv_cache.py").run()


def texts(app: AppTest) -> str:
    return "\n".join(element.value for element in app.text)


def test_every_part_opens_without_importing_torch() -> None:
    every_part_opens_without_torch("pages/kv_cache.py", "kv-part", PARTS, "KV cache")


def test_the_demos_cache_equals_the_formula_to_the_byte() -> None:
    app = opened()
    # keys and values · 30 layers · 1 · 40 prompt positions · 3 KV heads · 64 · 4 bytes
    assert app.code[0].value == "2 · 30 · 1 · 40 · 3 · 64 · 4 = 1,843,200"
    assert "Measured on the cache's tensors: 1,843,200 bytes, equal to the byte." in texts(app)
    assert "Step 0 lit 1,200 cells and reused 0." in texts(app)


def test_the_general_counts_stand_beside_the_runs_own() -> None:
    rows = opened("parity").dataframe[0].value.to_numpy().tolist()
    assert rows[2] == [1, 1000, 1000, 500_500, 500_500]
    assert rows[3] == [40, 25, 64, 1300, 2080]  # 25 · 40 + 24 · 25 ÷ 2; 64 · 65 ÷ 2


def test_a_run_with_a_long_prompt_is_repeated_for_fewer_steps() -> None:
    trace = run(prompt=[1] * 9000, chosen=[3] * 12)
    assert most_steps(trace) == 5  # 9,000 + … + 9,004 = 45,010; a sixth would make 54,015
    assert most_steps(run(prompt=[1] * 60_000)) == 1
    assert most_steps(demo()) == 25


def test_the_teaching_limit_of_1024_kib_is_22_positions_of_the_demo() -> None:
    app = opened("cleanup")
    assert "= 22 positions of 46,080 bytes" in texts(app)
    app.number_input(key="limit-kib").set_value(44).run()
    assert "One position takes 46,080 bytes: raise the limit." in texts(app)
    assert not [button for button in app.button if button.key == "start cleanup"]


def test_more_first_positions_than_the_limit_holds_are_refused_in_place() -> None:
    app = opened("cleanup")
    app.number_input(key="sinks").set_value(22).run()
    assert "Keep fewer first positions than the limit of 22." in texts(app)


def test_no_format_chosen_is_said_in_place() -> None:
    app = opened("quantised")
    app.multiselect(key="formats").set_value([]).run()
    assert "Choose at least one format." in texts(app)


def test_the_pool_and_the_blocks_follow_their_fields() -> None:
    app = opened("blocks")
    assert "At the end 64 positions lie in 4 blocks of 16: 0 places, 0 B, are wasted." in texts(app)
    app.number_input(key="block-size").set_value(10).run()
    assert "At the end 64 positions lie in 7 blocks of 10: 6 places, 270.00 KiB, are wasted." in texts(app)
    app.number_input(key="pool").set_value(1).run()
    assert "No room for: 1, 2, 3, 4, 5, 6." in texts(app)


def test_a_row_that_lacks_a_number_is_named_and_names_are_optional() -> None:
    columns = ["name", "prefix", "prefix_tokens", "own_tokens", "stays"]
    whole = pd.DataFrame([[None, None, 4, 5, None], ["b", "A", 1, 2, True]], columns=columns)
    found, problem = _requests(whole)
    assert problem == ""
    assert [(one.name, one.prefix, one.tokens, one.stays) for one in found] == [
        ("1", "", 9, False),
        ("b", "A", 3, True),
    ]
    found, problem = _requests(pd.DataFrame([["a", "A", 4, None, False]], columns=columns))
    assert (found, problem) == ([], "Row 1 lacks a number of tokens: fill it in, or remove the row.")


def test_a_second_request_is_the_next_turn_of_the_conversation_or_goes_on_from_the_text() -> None:
    trace = demo()
    request = following(trace, "Why?")
    assert request.prompt == (
        ("user", trace.request.prompt),
        ("assistant", trace.text),
        ("user", "Why?"),
    )
    assert request.chat
    plain = replace(trace, request=replace(trace.request, chat=False))
    assert following(plain, "Why?").prompt == f"{trace.request.prompt}{trace.text} Why?"


@pytest.mark.parametrize("part", PARTS)
def test_a_run_that_was_stopped_before_its_first_token_is_said(part: str) -> None:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    app.session_state["kv-part"] = part
    app.session_state["trace"] = replace(demo(), steps=())
    app.run().switch_page("pages/kv_cache.py").run()
    assert not app.exception
    assert "This run" in texts(app)
