"""The attention page as a script: what links ask for, what a run does not hold, and scores that people type."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from inference.errors import N_, Note
from inference.trace import Trace
from tests.ui.fresh import runs_without_torch
from ui.literal import literal

ROOT = Path(__file__).resolve().parents[2]
PAGE = "pages/attention_page.py"


def opened(section: str = "Heads", trace: Trace | None = None, **query: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60).run()
    for name, value in query.items():
        app.query_params[name] = value
    if trace is not None:
        app.session_state["trace"] = trace
    app.session_state["section"] = section
    return app.switch_page(PAGE).run()


def texts(app: AppTest) -> str:
    return "\n".join(element.value for element in app.text)


def demo() -> Trace:
    return Trace.load(ROOT / "assets" / "demo.safetensors")


def without_attention(trace: Trace, **changes: object) -> Trace:
    steps = tuple(replace(step, attention=None) for step in trace.steps)
    return replace(trace, steps=steps, **changes)


def test_the_page_opens_on_the_demo_run_without_importing_torch() -> None:
    runs_without_torch(
        "app = AppTest.from_file('app.py', default_timeout=60).run()\n"
        f"app.switch_page({PAGE!r}).run(); assert not app.exception, app.exception\n"
        "assert '63 heads in 7 layers' in ' '.join(t.value for t in app.text)"
    )


def test_the_demo_says_which_layers_it_holds_and_what_the_first_query_reads() -> None:
    said = texts(opened())
    assert "3 query heads share one KV head" in said
    assert "This run holds 7 of 30 layers with attention." in said
    assert "at position 39 reads most from position 0, “<|im_start|>”" in said


def test_the_sentence_of_a_head_is_what_the_trace_gives() -> None:
    app = opened()
    app.selectbox(key="layer").set_value(4).run()
    app.selectbox(key="head").set_value(7).run()
    row = demo().attention(0, 4)[7, -1]
    said = next(text for text in texts(app).splitlines() if "reads most from" in text)
    assert f"position {row.argmax()}, " in said
    assert f"{row.max():.1%} of its attention" in said


@pytest.mark.parametrize("step", ["7", "-1", "999999", "x", "²"])
def test_a_link_to_any_step_opens_the_page(step: str) -> None:
    app = opened(step=step)
    assert not app.exception
    expected = {"7": 7, "999999": 24}.get(step, 0)
    assert app.session_state["step"] == expected


def test_a_run_whose_attention_did_not_fit_says_so_and_the_other_sections_work() -> None:
    note = Note(N_("Attention was left out, because the record would not fit in {limit_mib} MiB."), {"limit_mib": 512})
    trace = without_attention(demo(), left_out=(note,))
    said = texts(opened(trace=trace))
    assert "This run of SmolLM2 135M Instruct holds no attention weights. Attention was left out, because" in said
    masks = opened("Masks", trace)
    assert not masks.exception
    assert "the masks that its layers used are not known" in texts(masks)
    assert "softmax([2, 1, −∞]) = [0.7311, 0.2689, 0]" in texts(masks)


def test_a_model_whose_weights_cannot_be_had_is_named_with_the_reason() -> None:
    trace = demo()
    reason = "its eager attention gives other logits than its own default"
    trace = without_attention(trace, model=replace(trace.model, name="Falcon", attention="none", attention_note=reason))
    assert f"This run of Falcon holds no attention weights. {reason}" in texts(opened(trace=trace))


def test_a_run_stopped_before_its_first_token_is_told() -> None:
    assert "stopped before its first token" in texts(opened(trace=replace(demo(), steps=())))


def test_the_mask_of_a_step_is_the_whole_prefill_or_one_row() -> None:
    assert "Prefill: 40 queries at once, 40 × 40 cells, 51.2% of them visible." in texts(opened("Masks"))
    assert "Decode: one query, at position 43, and 44 keys in the row; it sees 44 of them." in texts(
        opened("Masks", step="4")
    )


def test_typed_scores_are_shared_out_and_a_row_without_keys_says_so() -> None:
    app = opened("Masks")
    app.text_input(key="mask-scores").set_value("1, 1").run()
    app.button_group(key="mask-hidden-2").set_value([0, 1]).run()
    assert "No visible key" in texts(app)
    app.button_group(key="mask-hidden-2").set_value([]).run()
    assert "softmax([1, 1]) = [0.5000, 0.5000]" in texts(app)


def test_what_is_no_number_is_refused_in_place_and_stays_in_its_field() -> None:
    app = opened("Masks")
    app.text_input(key="mask-scores").set_value("2, <b>x</b>").run()
    assert not app.exception
    assert app.error[0].value == literal("“<b>x</b>” is not a number. Type numbers such as 2, 1, 5.")
    assert app.text_input(key="mask-scores").value == "2, <b>x</b>"
