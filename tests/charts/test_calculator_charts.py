"""The calculator's charts: bars and lines at the bytes they stand for, told apart without colour, and in words."""

from __future__ import annotations

import numpy as np
import pytest

from charts.base import Palette
from charts.gpu_fit import Scenario, gpu_fit
from charts.kv_curves import DASHES, Curve, kv_curves
from charts.kv_engines import kv_engines
from inference.errors import Note
from inference.kv_engines import EngineBytes
from inference.kv_fit import Need
from ui.i18n import catalogue

GIB = 2**30
PALETTES = [Palette.light(), Palette.dark()]
TOKENS = np.array([1, 4096, 8192])


def curve(heads: int, bytes_a_token: int) -> Curve:
    return Curve(heads, TOKENS * float(bytes_a_token), 4096 * bytes_a_token)


CURVES = {"MHA": curve(32, 524_288), "GQA": curve(8, 131_072), "MQA": curve(1, 16_384), "MLA": curve(0, 36_864)}


@pytest.mark.parametrize("palette", PALETTES, ids=lambda p: p.mode)
def test_each_arrangement_has_a_line_of_its_own_dash_and_the_models_own_is_thickest(palette: Palette) -> None:
    chart = kv_curves(CURVES, TOKENS, 4096, "GQA", palette=palette, t=str)
    lines = [trace for trace in chart.figure.data if trace.mode == "lines"]
    assert [line.name for line in lines] == [
        "MHA, 32 KV heads",
        "GQA, 8 KV heads",
        "MQA, one KV head",
        "MLA, one latent",
    ]
    assert len({line.line.dash for line in lines}) == len(DASHES) == 4
    assert max(lines, key=lambda line: line.line.width).name == "GQA, 8 KV heads"
    assert list(lines[0].y * GIB) == pytest.approx([524_288, 2 * GIB, 4 * GIB])
    assert list(chart.table["GQA"]) == [131_072, 512 * 2**20, GIB]
    assert chart.description == (
        "At 4,096 tokens a sequence: MHA 2.00 GiB, GQA 512.00 MiB, MQA 64.00 MiB, MLA 144.00 MiB. "
        "This model has GQA (thick line)."
    )


def test_in_chinese_the_sizes_are_listed_and_the_sentences_joined_as_there() -> None:
    few = {name: CURVES[name] for name in ("MHA", "GQA")}
    chart = kv_curves(few, TOKENS, 4096, "GQA", palette=Palette.light(), t=catalogue("zh-Hans").gettext)
    assert chart.description == "每个序列 4,096 个词元时：MHA 2.00 GiB、GQA 512.00 MiB。该模型是 GQA（粗线）。"


def engine(nbytes: int | None) -> EngineBytes:
    return EngineBytes(nbytes, Note("{n} <b>cells</b>", {"n": 3}))


def test_engines_have_bars_at_their_bytes_and_one_without_such_a_cache_says_so() -> None:
    engines = {"transformers dynamic": engine(2 * GIB), "llama.cpp": engine(None), "vLLM": engine(GIB)}
    chart = kv_engines(GIB, engines, palette=Palette.light(), t=str)
    bars = chart.figure.data[0]
    assert list(bars.x) == [1, 2, 0, 1]
    assert [text.strip("\N{NO-BREAK SPACE}") for text in bars.text] == [
        "1.00 GiB",
        "2.00 GiB",
        "no such cache",
        "1.00 GiB",
    ]
    assert list(chart.table["against logical"]) == ["1.00 ×", "2.00 ×", "", "1.00 ×"]
    assert list(chart.table["how it is counted"])[1] == "3 <b>cells</b>"
    assert chart.description == (
        "The architecture needs 1.00 GiB. vLLM holds the least, 1.00 GiB, and transformers dynamic the most, 2.00 GiB."
    )


def test_engines_that_agree_and_engines_that_have_none_are_told_in_one_sentence() -> None:
    same = kv_engines(GIB, {"vLLM": engine(GIB), "llama.cpp": engine(None)}, palette=Palette.light(), t=str)
    assert same.description.endswith("The engines that have such a cache hold exactly that.")
    one = kv_engines(GIB, {"llama.cpp": engine(2 * GIB)}, palette=Palette.light(), t=str)
    assert one.description.endswith("The engines that have such a cache hold 2.00 GiB.")
    none = kv_engines(GIB, {"vLLM": engine(None)}, palette=Palette.light(), t=str)
    assert none.description.endswith("None of these engines has such a cache.")


SCENARIOS = [
    Scenario("as asked", 8192, 1, Need(15 * GIB, GIB, GIB // 8)),
    Scenario("longest <context>", 40_000, 1, Need(15 * GIB, 5 * GIB, GIB // 8)),
]


@pytest.mark.parametrize("palette", PALETTES, ids=lambda p: p.mode)
def test_a_stack_adds_up_and_its_parts_have_patterns_and_the_limits_are_lines(palette: Palette) -> None:
    chart = gpu_fit(SCENARIOS, 24 * GIB, 21 * GIB, "GPU", palette=palette, t=str)
    assert [bar.name for bar in chart.figure.data] == ["model weights", "KV cache", "activations"]
    assert sum(bar.x[1] for bar in chart.figure.data) == 20.125
    assert len({bar.marker.pattern.shape for bar in chart.figure.data}) == 3
    assert [(shape.x0, shape.line.dash) for shape in chart.figure.layout.shapes] == [(24, "solid"), (21, "dash")]
    assert chart.figure.layout.annotations[1].text == "longest &lt;context&gt;"
    assert list(chart.table["total"]) == [16 * GIB + GIB // 8, 20 * GIB + GIB // 8]


def test_the_sentence_says_what_is_free_or_by_how_much_it_is_too_much() -> None:
    fits = gpu_fit(SCENARIOS, 24 * GIB, 21 * GIB, "GPU", palette=Palette.light(), t=str).description
    assert fits == "GPU: 16.12 GiB of the 21.00 GiB beside the reserve (dashed line); it fits, 4.88 GiB are free."
    tight = gpu_fit(SCENARIOS, 16 * GIB, 14 * GIB, "GPU", palette=Palette.light(), t=str).description
    assert tight == "GPU: 16.12 GiB do not fit into the 14.00 GiB beside the reserve (dashed line); 2.12 GiB too much."
