"""The memory calculator as a script: every field's bad input in place, layouts of all kinds, the lessons, the link."""

from __future__ import annotations

import json
from fractions import Fraction
from types import SimpleNamespace

import pytest
import transformers
from streamlit.testing.v1 import AppTest

from inference.errors import CalculatorError
from inference.kv_memory import KVLayout
from inference.trace import Trace
from tests.kv_data import CATALOGUE, ROOT
from tests.ui.fresh import runs_without_torch
from ui import session
from ui.calculator.count import counted
from ui.calculator.lessons import ladder
from ui.calculator.plan import OWN, RUN, USUAL, Plan, from_browser, from_link, to_link
from ui.calculator.published import ANSWERS, UNITS, figures, verdict
from ui.calculator.sources import find

LLAMA = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
GIB = 2**30
RANGES = {
    "layers": "10,000",
    "kv_heads": "100,000",
    "head_dim": "1,000,000",
    "tokens": "1,000,000,000",
    "batch": "1,000,000",
    "page_size": "1,000,000",
    "tp": "4,096",
}


@pytest.fixture(scope="module")
def demo() -> Trace:
    return Trace.load(ROOT / "assets" / "demo.safetensors")


def opened(**query: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    for name, value in query.items():
        app.query_params[name] = value
    app.switch_page("pages/calculator.py").run()
    assert not app.exception, app.exception
    return app


def texts(app: AppTest) -> str:
    return "\n".join(element.value for element in app.text)


def errors(app: AppTest) -> str:
    return "\n".join(element.value.replace("\\", "") for element in app.error)


def sliders_say(app: AppTest) -> dict[str, str]:
    """The sentences that the component shows at its fields."""
    component = next(e for e in app.main if e.type == "bidi_component")
    return dict(json.loads(component.proto.json)["errors"])


def test_the_page_opens_on_one_gibibyte_without_importing_torch() -> None:
    runs_without_torch(
        "app = AppTest.from_file('app.py', default_timeout=60)\n"
        "app.switch_page('pages/calculator.py').run(); assert not app.exception, app.exception\n"
        "assert 'The architecture needs 1.00 GiB.' in ' '.join(t.value for t in app.text)"
    )


@pytest.mark.parametrize("field", ["page_size", "tp"])
@pytest.mark.parametrize("value", [-1, 0, 10**9])
def test_a_number_out_of_its_range_is_refused_under_its_field_with_the_range(field: str, value: int) -> None:
    app = opened()
    app.number_input(key=f"calculator {field}").set_value(value).run()
    assert f"{field} must be a whole number from 1 to {RANGES[field]}, not {value}." in errors(app)
    assert "The architecture needs 1.00 GiB." in texts(app)


def test_an_emptied_number_field_is_refused_and_the_last_good_figures_stay() -> None:
    app = opened(tokens="4096")
    app.number_input(key="calculator page_size").set_value(None).run()
    assert "page_size must be a whole number" in errors(app)
    assert "The architecture needs 512.00 MiB." in texts(app)


@pytest.mark.parametrize("field", RANGES)
@pytest.mark.parametrize("value", ["-5", "0", "nan", "1e400", "9" * 40, "<b>", ""])
def test_a_links_bad_figure_is_named_with_its_range_and_the_page_is_there_all_the_same(field: str, value: str) -> None:
    plan = from_link({field: value})
    demo_trace = Trace.load(ROOT / "assets" / "demo.safetensors")
    count = counted(plan, USUAL, demo_trace)
    assert count.nbytes == GIB
    assert str(count.wrong[field]).startswith(f"{field} must be a whole number from 1 to {RANGES[field]}, not ")


@pytest.mark.parametrize("query", [{"tokens": "nan"}, {"page_size": "nan"}, {"batch": "-3"}, {"tp": "<b>"}], ids=str)
def test_the_page_opens_on_a_bad_link_and_says_what_is_wrong_with_it(query: dict[str, str]) -> None:
    app = opened(**query)
    (name,) = query
    said = errors(app) if name in ("page_size", "tp") else sliders_say(app)[name]
    assert f"{name} must be a whole number from 1 to {RANGES[name]}" in said
    assert "The architecture needs 1.00 GiB." in texts(app)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("", "There is no config yet."),
        ("num_hidden_layers: 32", "The text is not JSON: "),
        ("[1, 2]", "A config is a transformers config or the dict of a config.json, not list."),
        ('{"model_type": "llama"}', "The config has none of these: "),
        (json.dumps({**LLAMA, "num_hidden_layers": -3}), "num_hidden_layers must be a whole number from 1 to 10,000"),
        (json.dumps({**LLAMA, "hidden_size": float("nan")}), "hidden_size must be a whole number"),
        ('{"model_type": "bert", "num_hidden_layers": 2}', "A bert model reads a text as a whole"),
    ],
)
def test_a_config_that_cannot_be_used_is_refused_at_its_field_with_the_reason(typed: str, words: str) -> None:
    app = opened()
    app.selectbox(key="calculator model").set_value(OWN).run()
    app.text_area(key="calculator config").set_value(typed).run()
    assert words in errors(app)
    assert "The architecture needs 1.00 GiB." in texts(app)
    assert app.text_area(key="calculator config").value == typed


def test_an_own_config_is_counted_and_an_unknown_family_says_what_was_assumed() -> None:
    app = opened(preset=OWN, config=json.dumps({**LLAMA, "model_type": "mine", "num_key_value_heads": 4}))
    assert "The architecture needs 512.00 MiB." in texts(app)
    assert "The family mine was not checked against a real cache: usual key names are assumed." in texts(app)
    assert "The number of parameters is not known. Type it in the field above." in texts(app)
    app.number_input(key="calculator billions").set_value(8.0).run()
    assert "NVIDIA RTX 4090:" in texts(app)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("100, x, 7", "Entry 2 of the list is 'x', which is no whole number from 1 to 1,000,000,000."),
        ("100, -4, 7", "Entry 2 of the list is '-4'"),
        ("100, 7, nan", "Entry 3 of the list is 'nan'"),
        ("0", "Entry 1 of the list is '0'"),
        (", ,", "The list has no lengths."),
    ],
)
def test_a_list_with_one_bad_entry_names_the_entry_and_keeps_what_was_typed(typed: str, words: str) -> None:
    app = opened(lengths="100, 4096, 7")
    assert "3 sequences, 4,203 tokens in all, from 7 to 4,096" in texts(app)
    app.text_area(key="calculator lengths").set_value(typed).run()
    assert words in errors(app)
    assert app.text_area(key="calculator lengths").value == typed
    assert "3 sequences, 4,203 tokens in all" in texts(app)


def test_a_list_adds_up_and_says_how_much_padding_would_cost() -> None:
    app = opened(lengths="100, 4096, 7", page_size="16", element="q8_0")
    assert f"= {(112 + 4096 + 16) * 69_632:,} bytes" in "\n".join(code.value for code in app.code)
    assert "not 3 × the longest, which is 2.92 times as much." in texts(app)


def test_lengths_are_drawn_with_a_seed_and_refused_where_a_figure_makes_no_sense() -> None:
    app = opened(lengths="1")
    app.number_input(key="drawn count").set_value(5)
    button = next(b for b in app.button if b.label == "Draw lengths")
    button.click().run()
    first = app.text_area(key="calculator lengths").value
    assert first.count(",") == 4
    next(b for b in app.button if b.label == "Draw lengths").click().run()
    assert app.text_area(key="calculator lengths").value == first
    app.number_input(key="drawn count").set_value(-5)
    next(b for b in app.button if b.label == "Draw lengths").click().run()
    assert "count must be a whole number from 1 to 10,000, not -5." in errors(app)
    assert app.text_area(key="calculator lengths").value == first


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("DeepSeek-V3", "MLA keeps one latent a layer and position"),
        ("Gemma 3 1B", "Layers with a window keep at most 512 positions"),
        ("Jamba v0.1 (52B)", "Layers with a constant state take the same at every length."),
        ("T5-small", "Cross-attention keeps the encoder's positions"),
    ],
)
def test_where_the_plain_formula_does_not_hold_the_page_shows_the_layouts_own_and_says_why(
    model: str, reason: str
) -> None:
    app = opened(preset=model, tokens="400")
    own = KVLayout.from_catalogue(CATALOGUE[model])
    assert own.formula(400, encoder_tokens=512) in [code.value for code in app.code]
    assert "The plain formula 2 · L · B · T · H_kv · D_head · S does not hold here." in texts(app)
    assert reason in texts(app)


def test_fewer_heads_than_devices_and_a_context_too_long_are_said() -> None:
    app = opened(tp="16", tokens="200000")
    assert "On each of 16 devices." in texts(app)
    assert "There are fewer KV heads than devices: each head is kept 2 times." in texts(app)
    assert "The model's own limit is 131,072 tokens." in texts(app)
    assert "A latent cannot be divided: each device keeps it whole." in texts(opened(preset="DeepSeek-V3", tp="8"))
    assert "kv_heads is 8, which cannot be divided among 3 devices." in errors(opened(tp="3"))


def test_other_kv_heads_say_what_they_would_save() -> None:
    app = opened(preset="Llama 2 7B")
    assert "With 8 KV heads the cache would take 1.00 GiB instead of 4.00 GiB: 3.00 GiB saved." in texts(app)


def test_every_preset_and_the_runs_model_open_and_engines_are_listed(demo: Trace) -> None:
    for model in [*CATALOGUE, RUN]:
        count = counted(Plan(model=model, tokens=300), USUAL, demo)
        assert not count.wrong
        assert count.nbytes > 0
    app = opened(preset=RUN, tokens="65")
    held = int(demo.kv.nbytes[-1].sum()) // int(demo.kv.positions[-1].max())  # bytes a position, measured in the run
    element = {"float32": "float32", "float16": "float16", "bfloat16": "bfloat16"}[demo.model.dtype]
    assert counted(Plan(model=RUN, tokens=65, element=element), USUAL, demo).nbytes == 65 * held
    assert "SmolLM2" in app.selectbox(key="calculator model").format_func(RUN)


def test_the_runs_model_is_read_from_its_own_config_while_it_is_loaded(
    demo: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = transformers.MistralConfig(num_hidden_layers=2, sliding_window=8, intermediate_size=99)
    loaded = SimpleNamespace(facts=demo.model, forward=SimpleNamespace(model=SimpleNamespace(config=config)))
    store = SimpleNamespace(loaded=lambda name: loaded if name == "smollm2-135m" else None)
    monkeypatch.setattr(session, "models", lambda: store)
    monkeypatch.setattr(session, "shown", lambda: None)
    found = find(Plan(model=RUN), demo)
    assert [layer.window for layer in found.layout.layers] == [8, 8]
    assert (found.params, found.width, found.width_known) == (demo.model.n_params, 4096, True)


def test_a_figure_of_the_browser_that_is_not_the_servers_is_said() -> None:
    app = opened()
    assert not app.warning
    app.session_state["calculator"].bytes = "5"
    app.run()
    assert [w.value for w in app.warning] == ["The page shows 5 bytes; the server counts 1073741824."]
    app.session_state["calculator"].bytes = str(GIB)
    assert not app.run().warning


def test_a_config_that_is_too_long_for_a_link_is_counted_and_said() -> None:
    app = opened(preset=OWN, config=json.dumps({**LLAMA, "comment": "x" * 7000}))
    assert "is too long for the address of this page: a link leaves it out." in texts(app)
    assert "The architecture needs 4.00 GiB." in texts(app)


def test_an_unknown_preset_is_named_and_the_page_shows_the_usual_one() -> None:
    app = opened(preset="GPT-9 <b>")
    assert "There is no preset GPT-9 <b>. Choose one from the list, or paste its config.json." in errors(app)
    assert "The architecture needs 1.00 GiB." in texts(app)


def test_a_link_holds_what_differs_and_comes_back_the_same() -> None:
    plan = Plan(model="Qwen3 0.6B", tokens=3000, batch=7, element="q8_0", tp=2, page_size=16, billions=0.6, kv_heads=4)
    assert from_link(to_link(plan)) == plan
    assert to_link(USUAL) == {}
    assert to_link(Plan(lengths="1, " * 5000)) == {}
    assert from_link({"billions": "nan", "weights": "q3", "value_element": "<b>"}) == USUAL


def test_a_models_own_figures_are_not_in_the_link_but_others_are(demo: Trace) -> None:
    plan = counted(Plan(layers=32, kv_heads=4, head_dim=128), USUAL, demo).plan
    assert to_link(plan) == {"kv_heads": "4"}
    assert to_link(counted(Plan(model="Gemma 3 1B", kv_heads=4), USUAL, demo).plan) == {"preset": "Gemma 3 1B"}


def test_what_the_browser_reports_is_taken_by_name_and_kind_only() -> None:
    report = {"values": {"tokens": 5, "batch": "7", "element": "q8_0", "model": "x", "layers": None, "head_dim": 1.5}}
    assert from_browser(report) == {"tokens": 5, "element": "q8_0"}
    assert from_browser({"values": [1]}) == {}


def test_the_lessons_second_example_is_computed_line_by_line() -> None:
    found = {line.what: line.nbytes for line in ladder(KVLayout.from_catalogue(CATALOGUE["Llama 3.1 8B"]))}
    kib, mib = 2**10, 2**20
    assert list(found.values()) == [256, 512, 4 * kib, 128 * kib, 512 * mib, 15.625 * GIB, 16 * GIB, 64 * GIB]


def test_both_examples_are_on_the_page_and_can_be_put_into_the_calculator() -> None:
    app = opened()
    assert "2 · 32 · 1 · 8192 · 8 · 128 · 2 = 1,073,741,824 bytes" in [code.value for code in app.code]
    sizes = list(app.dataframe[0].value["size"])
    assert sizes == ["256 B", "512 B", "4 KiB", "128 KiB", "512 MiB", "15.625 GiB", "16 GiB", "64 GiB"]
    app.button(key="example 32 users").click().run()
    assert "The architecture needs 16.00 GiB." in texts(app)


@pytest.mark.parametrize("figure", figures(), ids=lambda f: f"{f.model} {f.value} {f.unit}")
def test_each_published_figure_comes_out_when_its_mistake_is_made_and_only_then(figure) -> None:
    claimed = Fraction(figure.value)
    binary = UNITS[figure.unit if "i" in figure.unit else f"{figure.unit[0]}iB"]
    decimal = UNITS[figure.unit.replace("i", "")]
    # published figures mix the two kinds of units, and the roughest of them gives two digits
    assert any(claimed == pytest.approx(Fraction(figure.mistaken, unit), rel=0.05) for unit in (binary, decimal))
    factor = {"eightfold": 8, "twofold": 2, "none": 1, "units": 1}[figure.answer]
    assert Fraction(figure.mistaken, figure.right) == factor
    if figure.answer == "units":
        assert claimed == pytest.approx(Fraction(figure.right, binary), rel=0.001)
        assert figure.nbytes != pytest.approx(figure.right, rel=0.02)
    if figure.answer == "none":
        assert figure.nbytes == pytest.approx(figure.right, rel=0.01)


def test_the_published_figures_cover_every_answer_and_each_has_a_reason() -> None:
    assert {figure.answer for figure in figures()} == set(ANSWERS)
    reasons = {figure.error: verdict(figure).split(". ", 1)[-1] for figure in figures()}
    assert len(set(reasons.values())) == len(reasons) == 5


def test_an_answer_brings_the_right_figure_and_the_reason() -> None:
    app = opened()
    app.segmented_control(key="published answer 0").set_value("units").run()
    assert [w.value for w in app.warning] == ["8 × too much"]
    assert "The calculator says 671,088,640 bytes: 0.625 GiB, or 0.6711 GB." in texts(app)
    assert "All 64 query heads were counted (5.00 GiB); the model caches 8 KV heads." in texts(app)
    app.segmented_control(key="published answer 0").set_value("eightfold").run()
    assert [s.value for s in app.success] == ["8 × too much"]
    next(b for b in app.button if b.label == "Next figure").click().run()
    assert "DeepSeek-V3, 16 bits: 69 KiB a token." in texts(app)


def test_a_bad_figure_is_a_calculators_error_whatever_it_is(demo: Trace) -> None:
    for value in (float("nan"), float("inf"), True, None, [], "8"):
        assert isinstance(counted(Plan(tokens=value), USUAL, demo).wrong["tokens"], CalculatorError)
