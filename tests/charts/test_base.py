"""The palette, the words for figures, and what holds for every chart."""

import ast
import json
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from charts.attention import attention_map
from charts.base import Chart, Palette, duration, percent, size
from charts.distribution import distribution
from charts.kv_growth import kv_growth
from inference.errors import Note, SamplingError, TraceError, listed, sentences
from inference.sampling_params import SamplingParams
from inference.trace import Trace
from tests.charts.runs import run
from ui.i18n import catalogue

ROOT = Path(__file__).resolve().parents[2]
Maker = Callable[[Trace, int, Palette], Chart]
MAKERS: dict[str, Maker] = {
    "distribution": lambda trace, step, palette: distribution(trace, step, palette=palette, t=str),
    "attention": lambda trace, step, palette: attention_map(trace, step, 1, 2, palette=palette, t=str),
    "kv_growth": lambda trace, step, palette: kv_growth(trace, step, palette=palette, t=str),
}
charts = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


@pytest.fixture(scope="module")
def theme() -> dict[str, dict[str, object]]:
    return tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text())["theme"]


@pytest.mark.parametrize("palette", [Palette.light(), Palette.dark()], ids=lambda palette: palette.mode)
def test_the_palette_is_the_theme_of_the_pages(palette: Palette, theme: dict[str, dict[str, object]]) -> None:
    of_mode = theme[palette.mode]
    assert (palette.background, palette.secondary_background) == (
        of_mode["backgroundColor"],
        of_mode["secondaryBackgroundColor"],
    )
    assert (palette.text, palette.border, palette.primary) == (
        of_mode["textColor"],
        of_mode["borderColor"],
        of_mode["primaryColor"],
    )
    assert list(palette.categorical) == of_mode["chartCategoricalColors"]
    assert list(palette.sequential) == of_mode["chartSequentialColors"]
    assert list(palette.diverging) == of_mode["chartDivergingColors"]


@pytest.mark.parametrize("palette", [Palette.light(), Palette.dark()], ids=lambda palette: palette.mode)
def test_notes_have_a_contrast_of_four_and_a_half_and_quiet_bars_of_three(palette: Palette) -> None:
    assert contrast(palette.muted, palette.background) >= 4.5
    assert contrast(palette.muted, palette.secondary_background) >= 4.5
    assert contrast(palette.quiet, palette.background) >= 3
    assert contrast(palette.categorical[1], palette.background) >= 3


@charts
def test_every_chart_has_a_title_a_sentence_and_a_table(make: Maker) -> None:
    chart = make(run(), 1, Palette.light())
    assert chart.title
    assert chart.description.endswith(".")
    assert len(chart.table)


@charts
def test_every_chart_refuses_a_step_that_the_run_does_not_have(make: Maker) -> None:
    for step in (-1, 3):
        with pytest.raises(TraceError, match=rf"There is no step {step}; the run has 3\."):
            make(run(), step, Palette.light())


@charts
def test_no_chart_sends_its_numbers_as_lists(make: Maker) -> None:
    chart = make(run(), 2, Palette.dark())
    for trace in chart.figure.data:
        for axis in ("x", "y", "z"):
            values = trace.to_plotly_json().get(axis)
            if values is not None:
                assert isinstance(values, np.ndarray), (trace.type, axis)
                assert values.dtype in (np.float32, np.float64, np.uint8, np.int64)
    sent = json.loads(chart.figure.to_json())
    numbers = [trace[axis] for trace in sent["data"] for axis in ("x", "y", "z") if axis in trace]
    assert all(isinstance(value, dict) and "bdata" in value for value in numbers if value != [])


@charts
def test_every_text_of_a_chart_goes_through_the_translation(make: Maker) -> None:
    chart = make(run(), 1, Palette.light())
    asked: list[str] = []

    def translate(text: str) -> str:
        asked.append(text)
        return text

    name = next(name for name, maker in MAKERS.items() if maker is make)
    if name == "attention":
        attention_map(run(), 1, 1, 2, palette=Palette.light(), t=translate)
    else:
        {"distribution": distribution, "kv_growth": kv_growth}[name](run(), 1, palette=Palette.light(), t=translate)
    assert chart.title.split(" · ")[0] in " ".join(asked)
    assert any(text.startswith(("Step {step}", "After step {step}")) for text in asked)


def marked_tables(tree: ast.Module) -> set[str]:
    """The module's tables every text of which is marked with N_."""
    tables = set()
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict | ast.Tuple):
            texts = node.value.values if isinstance(node.value, ast.Dict) else node.value.elts
            if all(isinstance(text, ast.Call) and ast.unparse(text.func) == "N_" for text in texts):
                tables.add(ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target))
    return tables


def test_translated_texts_are_literals_so_that_a_catalogue_can_be_extracted() -> None:
    for path in (ROOT / "charts").glob("*.py"):
        tree = ast.parse(path.read_text())
        tables = marked_tables(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "t":
                argument = node.args[0]
                literal = isinstance(argument, ast.Constant) and isinstance(argument.value, str)
                of_table = isinstance(argument, ast.Subscript) and ast.unparse(argument.value) in tables
                assert literal or of_table, f"{path.name}:{node.lineno}"


@pytest.mark.parametrize(
    ("share", "shown"),
    [(1, "100.0%"), (0.4126, "41.3%"), (0.0123, "1.23%"), (0.0004, "0.04%"), (0.00002, "<0.01%"), (0, "0.0%")],
)
def test_a_probability_is_never_rounded_to_nothing(share: float, shown: str) -> None:
    assert percent(share) == shown


@pytest.mark.parametrize(
    ("n_bytes", "shown"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.50 KiB"), (2**20, "1.00 MiB"), (2**30, "1.00 GiB")]
)
def test_sizes_are_binary_and_say_so(n_bytes: int, shown: str) -> None:
    assert size(n_bytes) == shown


def test_times_are_milliseconds_below_a_second() -> None:
    assert (duration(0.0184), duration(1.254)) == ("18.4 ms", "1.25 s")


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2.2, from relative luminance."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_sentences_stand_apart_in_english_and_follow_each_other_at_once_in_chinese() -> None:
    assert sentences(["One {x}.", "", "Two."], str) == "One {x}. Two."
    assert sentences([], str) == ""
    for name in ("zh-Hans", "zh-Hant"):
        assert sentences(["一。", "二。", "三。"], catalogue(name).gettext) == "一。二。三。"


def test_the_words_of_a_list_are_joined_as_the_language_does() -> None:
    assert listed([0, 2], str) == "0, 2"
    assert listed([0, 2], catalogue("zh-Hans").gettext) == "0、2"


def test_a_refusal_is_in_the_readers_language_with_its_lists() -> None:
    with pytest.raises(SamplingError) as found:
        SamplingParams(order=("top_k", "top_k")).steps()
    assert str(found.value).startswith("The order of steps is not valid: top_k, top_k. ")
    said = found.value.text(catalogue("zh-Hans").gettext)
    assert said.startswith("步骤顺序无效：top_k、top_k。每个步骤只写一次；可用的步骤有 ")
    assert ", " not in said


def test_why_a_run_holds_no_attention_is_said_in_the_readers_language() -> None:
    notes = (Note("It keeps nothing: it reads the keys and values of an earlier layer."),) * 2
    whole = run()
    trace = replace(whole, steps=tuple(replace(step, attention=None) for step in whole.steps), left_out=notes)
    with pytest.raises(TraceError) as found:
        trace.attention(0, 0)
    assert str(found.value).count("It keeps nothing: it reads the keys and values of an earlier layer.") == 2
    said = found.value.text(catalogue("zh-Hans").gettext)
    assert said == "这次运行没有记录第 0 层的注意力。" + 2 * catalogue("zh-Hans").gettext(notes[0].template)


def test_no_chart_puts_a_space_between_sentences_by_itself() -> None:
    for path in (ROOT / "charts").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert '" " +' not in text, path.name
        assert '+ " "' not in text, path.name
        assert '" ".join(' not in text or path.name == "export.py", path.name  # there, of hashes
