"""The lesson as a script: every station in three languages, without torch; its links with their state; for paper."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from inference.sampling_params import SamplingParams
from inference.trace import Trace
from tests.ui.fresh import runs_without_torch
from ui.lesson.stations import STATIONS
from ui.worker import Job

ROOT = Path(__file__).resolve().parents[2]
LANGUAGES = ("en", "zh-Hans", "zh-Hant")


def opened(station: object = 1, lang: str = "en", **query: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    for name, value in {"station": str(station), "lang": lang, **query}.items():
        app.query_params[name] = value
    return app.run().switch_page("pages/lesson_page.py").run()


def texts(app: AppTest) -> str:
    return "\n".join(element.value for element in app.text)


def address(app: AppTest, name: str) -> str:
    """A value of the address, which is a list where the test itself has set it."""
    value = app.query_params[name]
    return value if isinstance(value, str) else value[0]


def number(name: str) -> int:
    return [station.name for station in STATIONS].index(name) + 1


def follow(app: AppTest, name: str) -> AppTest:
    """Go from a station to its full page."""
    app.button(key=f"lesson-open-{name}").click().run()
    assert not app.exception, app.exception
    return app


def test_every_station_opens_without_importing_torch() -> None:
    runs_without_torch(
        "from ui.lesson.stations import STATIONS\n"
        "for at in range(1, len(STATIONS) + 1):\n"
        "    app = AppTest.from_file('app.py', default_timeout=60)\n"
        "    app.query_params['station'] = str(at)\n"
        "    app.run().switch_page('pages/lesson_page.py').run()\n"
        "    assert not app.exception, app.exception\n"
        "    assert app.header[0].value.startswith(f'{at} · '), app.header\n"
    )


@pytest.mark.parametrize("lang", LANGUAGES)
def test_every_station_tells_asks_and_folds_its_answer(lang: str) -> None:
    app = opened(lang=lang)
    for at in range(1, len(STATIONS) + 1):
        assert not app.exception, app.exception
        assert app.header[0].value.startswith(f"{at} · ")
        assert address(app, "station") == str(at)
        assert not app.expander[-1].proto.expanded
        if at < len(STATIONS):
            app.button(key="lesson-on").click().run()
    assert app.button(key="lesson-on").disabled
    app.button(key="lesson-back").click().run()
    assert app.header[0].value.startswith(f"{len(STATIONS) - 1} · ")


def test_the_first_logits_are_told_in_each_language() -> None:
    assert "累 0.60, 困 0.20, 饿 0.10, all the others together 0.10." in texts(opened(number("logits")))
    assert "“累” 0.60，“困” 0.20，“饿” 0.10，其余合计 0.10。" in texts(opened(number("logits"), "zh-Hans"))
    assert "「累」 0.60，「困」 0.20，「饿」 0.10，其餘合計 0.10。" in texts(opened(number("logits"), "zh-Hant"))


@pytest.mark.parametrize("station", ["0", "12", "x", "-1", "١", "3.5"])
def test_a_link_to_no_station_opens_the_first(station: str) -> None:
    app = opened(station)
    assert not app.exception
    assert app.header[0].value == "1 · Prompt"


def test_settings_leave_what_they_should() -> None:
    app = opened(number("choosing"))
    assert "Tokens left: 2 (累, 困). 累 has 0.75." in texts(app)
    app.slider(key="lesson-p").set_value(1.0).run()
    app.slider(key="lesson-k").set_value(1).run()
    assert "Tokens left: 1 (累). 累 has 1.00." in texts(app)


def test_a_raised_logit_and_one_that_is_lowered() -> None:
    app = opened(number("logits"))
    assert "Adding +1 multiplies the odds of 饿 by 2.72: its probability goes from 0.10 to 0.23." in texts(app)
    app.slider(key="lesson-raise").set_value(0.0).run()
    assert "Adding +0 multiplies the odds of 饿 by 1.00: its probability goes from 0.10 to 0.10." in texts(app)


def test_another_token_looks_back() -> None:
    app = opened(number("prefill"))
    assert "“很”, at position 7, sees 8 positions and reads “跑” most: 98%." in texts(app)
    app.slider(key="lesson-position").set_value(5).run()
    app.selectbox(key="lesson-layer").select(1).run()
    app.selectbox(key="lesson-head").select(1).run()
    assert "“，”, at position 5, sees 6 positions and reads “小猫” most: 63%." in texts(app)


def test_a_chat_prompt_and_a_longer_text() -> None:
    app = opened(number("prompt"))
    app.toggle(key="lesson-chat").set_value(True).run()
    assert "10 tokens. With its template 40 go in; the 30 others name the roles" in texts(app)
    app = opened(number("cache"))
    assert "1,000 passes compute 1,000 keys and values with the cache, 500,500 without." in texts(app)
    app.slider(key="lesson-long").set_value(3).run()
    assert "3 passes compute 3 keys and values with the cache, 6 without." in texts(app)


def test_a_larger_model_takes_exactly_a_gibibyte() -> None:
    app = opened(number("formula"))
    assert app.code[0].value == "2 · 3 · 1 · 10 · 2 · 16 · 4 = 7,680"
    assert app.code[1].value == "2 · 32 · 1 · 8192 · 8 · 128 · 2 = 1,073,741,824"
    assert "1.00 GiB; each further token adds 128.00 KiB." in texts(app)
    app.slider(key="lesson-layers").set_value(1).run()
    assert "32.00 MiB; each further token adds 4.00 KiB." in texts(app)


def test_typed_times_and_times_that_cannot_be_read() -> None:
    app = opened(number("time"))
    assert "TTFT 200 ms, TPOT 50 ms, then 20.0 tok/s; over the whole request 8.0 tok/s." in texts(app)
    app.text_input(key="lesson-times").set_value("0.2").run()
    assert "TTFT 200 ms. A single token has no TPOT." in texts(app)
    app.text_input(key="lesson-times").set_value("0.2 <b>$x$").run()
    assert not app.exception
    assert "Time 2 must be a number of seconds" in app.error[0].value.replace("\\", "")


def test_a_server_that_does_not_run_the_kitten_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from ui import session
    from ui.limits import Limits

    monkeypatch.setattr(session, "limits", lambda: Limits(models=("gpt2",)))
    app = opened(number("loop"))
    app.button(key="lesson-take-19").click().run()
    assert "This server does not run kitten" in app.error[0].value.replace("\\", "")


def test_the_link_opens_attention_on_the_same_head_and_token() -> None:
    app = opened(number("prefill"))
    app.slider(key="lesson-position").set_value(5).run()
    app.selectbox(key="lesson-layer").select(1).run()
    app.selectbox(key="lesson-head").select(1).run()
    follow(app, "prefill")
    assert app.title[0].value == "Attention"
    assert (app.selectbox(key="layer").value, app.selectbox(key="head").value) == (1, 1)
    assert "“，”" in texts(app)
    assert "62.7%" in texts(app)


def test_the_link_opens_the_lab_with_the_same_settings() -> None:
    app = opened(number("choosing"))
    app.slider(key="lesson-temperature").set_value(0.5).run()
    follow(app, "choosing")
    assert app.title[0].value == "Sampling lab"
    params = app.session_state["lab start run"][1]
    assert params == SamplingParams(greedy=False, temperature=0.5, top_k=32, top_p=0.8)
    assert (address(app, "temperature"), address(app, "top_p")) == ("0.5", "0.8")


def test_the_link_opens_the_cache_at_the_same_step() -> None:
    app = opened(number("cache"))
    app.slider(key="lesson-step").set_value(1).run()
    follow(app, "cache")
    assert app.title[0].value == "KV cache"
    assert "2 · 3 · 1 · 9 · 2 · 16 · 4 = 6,912" in [code.value for code in app.code]


def test_the_link_opens_the_calculator_with_the_same_figures() -> None:
    app = opened(number("formula"))
    app.slider(key="lesson-layers").set_value(16).run()
    follow(app, "formula")
    assert app.title[0].value == "Memory calculator"
    assert address(app, "layers") == "16"


def test_the_link_opens_the_same_times() -> None:
    app = opened(number("time"))
    app.text_input(key="lesson-times").set_value("0.1 0.2 0.3").run()
    follow(app, "time")
    assert app.title[0].value == "Prefill and decode"
    assert app.text_input(key="typed-times").value == "0.1 0.2 0.3"


def test_the_link_opens_the_same_token_among_the_experts() -> None:
    app = opened(number("experts"))
    app.slider(key="lesson-expert").set_value(3).run()
    follow(app, "experts")
    assert app.title[0].value == "Experts"
    assert (app.slider(key="expert-position").value, app.selectbox(key="expert-layer").value) == (3, 2)


def test_the_link_puts_the_sentence_into_the_form() -> None:
    app = opened(number("tokens"))
    app.text_input(key="lesson-sentence").set_value("小鸟睡了一会儿").run()
    follow(app, "tokens")
    assert app.title[0].value == "Playback"
    assert (app.text_area(key="prompt").value, app.selectbox(key="model").value) == ("小鸟睡了一会儿", "kitten")
    assert (app.toggle(key="preview").value, app.toggle(key="chat").value) == (True, False)
    app.switch_page("pages/lesson_page.py").run()  # now the form has values of its own
    app.text_input(key="lesson-sentence").set_value("它很渴").run()
    assert follow(app, "tokens").text_area(key="prompt").value == "它很渴"


@pytest.mark.parametrize(("name", "step"), [("logits", 0), ("loop", 0), ("stopping", 2)])
def test_the_link_opens_playback_at_the_same_step(name: str, step: int) -> None:
    app = follow(opened(number(name)), name)
    assert app.title[0].value == "Playback"
    assert app.session_state["step"] == step
    assert app.session_state["trace"].text == "累。"


def test_a_run_that_ended_meanwhile_does_not_take_the_place_of_the_lessons() -> None:
    app = opened(number("logits"))
    ended = Job("x", "smollm2-135m", None, 1, state="done", trace=Trace.load(ROOT / "assets" / "demo.safetensors"))
    app.session_state["job"] = ended
    follow(app, "logits")
    assert app.session_state["trace"].text == "累。"


def test_a_link_used_twice_keeps_one_run() -> None:
    app = opened(number("logits"))
    follow(app, "logits")
    first = app.session_state["shown"]
    app.switch_page("pages/lesson_page.py").run()
    follow(app, "logits")
    assert app.session_state["shown"] is first


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_print_view_has_every_station_its_results_and_the_answers_at_the_end(lang: str) -> None:
    app = opened(lang=lang, print="1")
    assert not app.exception
    assert [header.value.split(" · ")[0] for header in app.header[:-1]] == [str(n + 1) for n in range(len(STATIONS))]
    assert not any((app.slider, app.text_input, app.expander, app.toggle))
    assert all(figure in texts(app) for figure in ("500,500", "1.00 GiB", "TTFT 200"))
    answers = [text.value for text in app.text][-len(STATIONS) :]
    assert [answer.split(" · ")[0] for answer in answers] == [str(n + 1) for n in range(len(STATIONS))]
    app.button[0].click().run()
    assert not app.button(key="lesson-on").disabled
