"""The next-token distribution against sums done by hand."""

from dataclasses import replace

import numpy as np
import pytest

from charts.base import Chart, Palette
from charts.distribution import distribution
from inference.sampling import SamplingParams, run_pipeline
from inference.trace import Trace
from tests.charts.runs import PIECES, V, logits_of, run

# 0.60, 0.20, 0.10 and the rest evenly, so that every kept set can be read off by eye
KNOWN = np.log(np.array([0.60, 0.20, 0.10, *[0.10 / (V - 3)] * (V - 3)], dtype=np.float64)).astype(np.float32)


def draw(trace: Trace, step: int = 0, n: int = 14) -> Chart:
    return distribution(trace, step, palette=Palette.light(), t=str, n=n)


def bars(chart: Chart, name: str) -> dict[int, float]:
    """What is drawn: row -> length."""
    return {
        int(y): float(x)
        for trace in chart.figure.data
        if trace.name == name
        for x, y in zip(trace.x, trace.y, strict=True)
    }


def known(**settings: object) -> Trace:
    return run(chosen=(0,), logits=KNOWN[None], sampling=SamplingParams(greedy=False, **settings))


def test_raw_bars_are_the_softmax_of_the_logits() -> None:
    logits = logits_of(1)[0].astype(np.float64)
    expected = np.exp(logits) / np.exp(logits).sum()
    table = draw(run(chosen=(3,))).table
    assert len(table) == 14
    np.testing.assert_allclose(table["raw probability"], expected[table["id"]], rtol=1e-5)
    assert list(table["id"][:5]) == list(np.argsort(-expected)[:5])


def test_top_k_2_keeps_three_quarters_and_a_quarter_and_names_itself_on_the_others() -> None:
    table = draw(known(top_k=2)).table.set_index("id")
    np.testing.assert_allclose(table["after settings"].loc[[0, 1]], [0.75, 0.25], atol=1e-6)
    assert table["after settings"].loc[2] == 0
    assert list(table["removed by"].loc[[0, 1]]) == ["", ""]
    assert set(table["removed by"].drop([0, 1])) == {"top_k"}


def test_each_removed_token_names_the_setting_that_removed_it_first() -> None:
    chart = draw(known(suppress_tokens=(1,), top_k=3, top_p=0.6))
    table = chart.table.set_index("id")
    assert table["removed by"].loc[1] == "suppress_tokens"
    assert table["removed by"].loc[2] == "top_p"
    assert table["removed by"].loc[0] == ""
    drawn = next(trace for trace in chart.figure.data if trace.type == "scatter")
    assert [text.strip() for text in drawn.text][:3] == ["100.0%", "suppress_tokens", "top_p"]


def test_the_bars_drawn_are_the_table() -> None:
    chart = draw(run(sampling=SamplingParams(temperature=0.8, top_k=6, top_p=0.9)), 1)
    removed = chart.table["removed by"] != ""
    assert 0 < removed.sum() < 14
    raw = {**bars(chart, "raw"), **bars(chart, "removed")}
    assert raw == pytest.approx(dict(enumerate(chart.table["raw probability"])))
    assert set(bars(chart, "removed")) == set(np.flatnonzero(removed))
    after = {at: p for at, p in enumerate(chart.table["after settings"]) if not removed[at]}
    assert bars(chart, "after settings") == pytest.approx(after)


def test_probabilities_after_the_settings_are_those_of_the_pipeline_in_the_step_context() -> None:
    sampling = SamplingParams(temperature=0.7, repetition_penalty=1.6, presence_penalty=0.8)
    trace = run(sampling=sampling)
    logits = logits_of(3)[2]
    stages = run_pipeline(logits, sampling, (2, 1, 4, 6, 3, 7), n_prompt=4, eos_ids=(0,))
    table = draw(trace, 2).table
    np.testing.assert_allclose(table["after settings"], stages[-1].probs[table["id"]], rtol=1e-6)
    without_context = run_pipeline(logits, sampling)[-1].probs[table["id"]]
    assert not np.allclose(table["after settings"], without_context, rtol=1e-2)


def test_tokens_that_read_the_same_keep_a_row_each() -> None:
    logits = np.zeros((1, V), dtype=np.float32)
    logits[0, [3, 8]] = 5, 4
    chart = draw(run(chosen=(3,), logits=logits))
    assert PIECES[3] == PIECES[8]
    assert list(chart.table["id"][:2]) == [3, 8]
    assert list(chart.table["token"][:2]) == ["·the", "·the"]
    assert list(chart.figure.layout.yaxis.tickvals) == list(range(14))
    assert sorted(bars(chart, "raw")) == list(range(14))


def test_tick_and_hover_texts_are_escaped() -> None:
    logits = np.zeros((1, V), dtype=np.float32)
    logits[0, [12, 13, 14]] = 6, 5, 4
    chart = draw(run(chosen=(12,), logits=logits))
    ticks = chart.figure.layout.yaxis.ticktext
    assert ticks[0] == "<b>▸ &lt;b&gt;x&lt;/b&gt;</b>"
    assert ticks[1:3] == ("&amp;lt;", "&lt;br&gt;")
    hover = chart.figure.data[0].hovertext
    assert hover[2].startswith("<b>&lt;br&gt;</b><br>id 14<br>")


def test_the_chosen_token_is_drawn_even_when_it_is_the_least_likely() -> None:
    logits = np.zeros((1, V), dtype=np.float32)
    logits[0, 19] = -5
    table = draw(run(chosen=(19,), logits=logits), n=5).table
    assert len(table) == 5
    assert list(table["id"]) == [0, 1, 2, 3, 19]
    assert list(table["chosen"]) == [False] * 4 + [True]


def test_the_chosen_token_is_drawn_even_when_its_logit_was_not_recorded() -> None:
    logits = np.zeros((1, V), dtype=np.float32)
    logits[0, 19] = -5
    table = draw(run(chosen=(19,), logits=logits, keep=6)).table.set_index("id")
    assert list(table.index) == [0, 1, 2, 3, 4, 5, 19]
    assert table["raw probability"].loc[19] == pytest.approx(np.exp(-5) / (V - 1 + np.exp(-5)), rel=1e-5)


def test_a_token_that_a_bias_lifts_from_the_bottom_is_drawn() -> None:
    logits = np.zeros((1, V), dtype=np.float32)
    logits[0, 19] = -5
    sampling = SamplingParams(greedy=False, sequence_bias=(((19,), 15.0),))
    table = draw(run(chosen=(0,), logits=logits, sampling=sampling), n=5).table.set_index("id")
    assert table["after settings"].loc[19] == pytest.approx(np.exp(10) / (np.exp(10) + V - 1), rel=1e-5)


def test_greedy_decoding_without_settings_draws_the_raw_distribution_alone() -> None:
    chart = draw(run(chosen=(0,), logits=KNOWN[None], sampling=SamplingParams(greedy=True)))
    assert [trace.name for trace in chart.figure.data if trace.type == "bar"] == ["raw"]
    assert "after settings" not in chart.table
    assert chart.description == "Step 0: greedy decoding took “<|end|>” (rank 1), whose raw probability was 60.0%."


def test_the_sentence_has_the_recorded_figures() -> None:
    chart = draw(known(top_k=2))
    assert chart.description == (
        "Step 0: “<|end|>” (rank 1) was drawn with probability 75.0%, raw 60.0%; candidates left by the settings: 2."
    )


def test_a_token_put_in_by_hand_is_not_called_drawn() -> None:
    trace = run(sampling=SamplingParams(greedy=False, top_k=1))
    step = trace.steps[1]
    forced = replace(
        trace, steps=(trace.steps[0], replace(step, decision=replace(step.decision, forced=True)), trace.steps[2])
    )
    assert "was put in by hand" in draw(forced, 1).description


def test_the_highest_logits_alone_give_exact_probabilities_where_the_settings_cut_within_them() -> None:
    sampling = SamplingParams(temperature=0.8, top_k=6, top_p=0.9)
    whole, partial = (draw(run(chosen=(3, 19), sampling=sampling, keep=keep), 1, n=8).table for keep in (None, 10))
    assert list(whole["id"]) == list(partial["id"])
    np.testing.assert_allclose(partial["raw probability"], whole["raw probability"], rtol=1e-5)
    np.testing.assert_allclose(partial["after settings"], whole["after settings"], rtol=1e-5)
    assert list(partial["removed by"]) == list(whole["removed by"])


@pytest.mark.parametrize("settings", [{"temperature": 0.8}, {"top_p": 0.97}, {"temperature": 0.8, "top_k": 12}])
def test_the_highest_logits_alone_are_not_passed_off_as_the_whole_vocabulary(settings: dict[str, float]) -> None:
    chart = draw(run(sampling=SamplingParams(greedy=False, **settings), keep=8), 1)
    assert "after settings" not in chart.table
    assert "need more logits than the 8 highest" in chart.description
    logits = logits_of(3)[1].astype(np.float64)
    expected = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(chart.table["raw probability"], expected[chart.table["id"]], rtol=1e-5)


def test_a_run_without_logits_says_so() -> None:
    chart = draw(run(keep=0))
    assert chart.description == "This run holds no logits, so there is no distribution to draw."
    assert not chart.figure.data
    assert chart.table.empty


def test_an_alternative_that_completes_a_character_is_shown_with_it() -> None:
    logits = np.zeros((2, V), dtype=np.float32)
    logits[:, 11] = 3
    trace = run(prompt=(2, 9), chosen=(10, 11), logits=logits)
    assert draw(trace, 1).table["token"][0] == "⟨80⟩ → 😀"
    assert draw(trace, 0).table.set_index("id")["token"].loc[11] == "⟨80⟩"
