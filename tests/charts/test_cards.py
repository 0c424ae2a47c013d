"""Cards and the player as the server draws them; what the browser does with them is in tests/browser."""

import json

import pytest
from streamlit.testing.v1 import AppTest


def cards() -> None:
    import streamlit as st

    from charts.attention import attention_map
    from charts.base import Palette
    from charts.distribution import distribution
    from charts.kv_growth import kv_growth
    from tests.charts.runs import run
    from ui.cards import chart_card, metric_row

    trace, step, light = run(prompt=(12, 15, 4), chosen=(3, 8)), 1, Palette.light()
    if st.session_state.get("unrecorded"):
        trace = run(keep=0)
    metric_row(trace, step, t=str, palette=light)
    chart_card(distribution(trace, step, palette=light, t=str), "distribution")
    chart_card(attention_map(trace, step, 0, 0, palette=light, t=str), "attention")
    chart_card(kv_growth(trace, step, palette=light, t=str), "kv")


def playing() -> None:
    import streamlit as st

    from tests.charts.runs import run
    from ui.components.player import player

    trace = st.session_state.setdefault("trace", run())
    asked = st.session_state.setdefault("asked", 1)
    st.session_state.now = player(trace, asked, t=str, key="player")
    st.session_state.asked = st.session_state.now


@pytest.fixture
def app() -> AppTest:
    return AppTest.from_function(cards, default_timeout=30).run()


def components(app: AppTest, name: str) -> list[dict[str, object]]:
    found = [element.proto for element in app.get("bidi_component")]
    return [json.loads(proto.json) for proto in found if proto.component_name == f"inferoscope_{name}"]


def test_each_card_has_its_figure_with_the_sentence_as_its_alternative_text(app: AppTest) -> None:
    assert not app.exception
    charts = app.get("plotly_chart")
    assert len(charts) == 3
    for chart, text in zip(charts, app.text, strict=True):
        assert chart.proto.alt.endswith(text.value)
        assert json.loads(chart.proto.spec)["data"]


def test_token_text_reaches_no_markdown(app: AppTest) -> None:
    parsed = [*app.markdown, *app.caption, *app.metric]
    assert not any("$y$" in element.value or "<b>" in element.value for element in parsed)
    assert any("“·the”" in text.value for text in app.text)


def test_a_table_is_sent_only_when_it_is_opened(app: AppTest) -> None:
    assert not app.dataframe
    app.session_state["distribution-table"] = True
    app.run()
    assert list(app.dataframe[0].value["token"][:2])
    assert len(app.dataframe) == 1


def test_what_was_not_recorded_is_a_sentence_without_figure_menu_or_table(app: AppTest) -> None:
    app.session_state["unrecorded"] = True
    app.run()
    assert app.text[0].value == "This run holds no logits, so there is no distribution to draw."
    assert len(app.get("plotly_chart")) == 2
    assert len(components(app, "figure_menu")) == 2
    assert len(app.expander) == 2


def test_the_six_figures_and_the_two_running_ones_are_drawn(app: AppTest) -> None:
    (data,) = components(app, "metric_cards")
    labels = [[metric["label"] for metric in row] for row in data["rows"]]
    assert labels[0] == ["Token", "Probability", "Entropy", "Step time", "KV cache", "Tokens per second"]
    assert labels[1] == ["Log-probability so far", "Perplexity so far"]


def test_the_player_starts_where_the_page_asks_and_follows_it() -> None:
    app = AppTest.from_function(playing, default_timeout=30).run()
    assert not app.exception
    assert app.session_state.now == 1
    first = components(app, "player")[0]
    assert first["goto"] == {"serial": 0, "step": 1}
    app.session_state.asked = 2
    app.run()
    assert app.session_state.now == 2
    assert components(app, "player")[0]["goto"] == {"serial": 1, "step": 2}
    app.run()
    assert components(app, "player")[0]["goto"] == {"serial": 1, "step": 2}


def test_a_step_past_the_end_is_the_last_one() -> None:
    app = AppTest.from_function(playing, default_timeout=30)
    app.session_state.asked = 99
    assert app.run().session_state.now == 2


def test_another_run_gets_another_name_so_that_old_reports_do_not_move_it() -> None:
    from tests.charts.runs import run

    app = AppTest.from_function(playing, default_timeout=30).run()
    before = components(app, "player")[0]["run"]
    app.session_state.trace = run(chosen=(3,))
    app.run()
    assert components(app, "player")[0]["run"] != before
    assert app.session_state.now == 0


def test_the_strip_has_the_run_as_columns() -> None:
    app = AppTest.from_function(playing, default_timeout=30).run()
    data = components(app, "player")[0]
    strip = json.loads(data["strip"])
    assert strip["texts"] == ["The", "·cat", "·sat", "·on", "·the", "·mat", "."]
    assert strip["bytes"][1] == "20 63 61 74"
    assert len(strip["raw"]) == len(strip["levels"]) == len(strip["alternatives"]) == 3
    assert strip["ends"] == pytest.approx([0.021, 0.043, 0.066])
    assert data["stop"] == ["length", "The run reached the 3 new tokens that were asked for."]
