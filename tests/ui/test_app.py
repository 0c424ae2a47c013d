"""The page as a script: it opens on the demo run without torch, and takes hostile links and files calmly."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from streamlit.testing.v1 import AppTest

from inference.errors import N_, InferenceError, NumericalError
from inference.tokens import written_by
from inference.trace import Trace
from tests.ui.fresh import runs_without_torch
from ui import playback, session
from ui.asked import Asked, from_link
from ui.limits import Limits
from ui.literal import literal
from ui.words import finish_words, step_table, step_words
from ui.worker import Job

ROOT = Path(__file__).resolve().parents[2]


def opened(**query: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    for name, value in query.items():
        app.query_params[name] = value
    return app.run()


def texts(app: AppTest) -> str:
    return "\n".join(element.value for element in app.text)


def test_the_charts_of_a_new_session_wait_until_a_browser_has_drawn_the_strip_and_only_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[str] = []
    monkeypatch.setattr(playback, "sleep", lambda seconds: order.append("wait"))
    for name in ("player", "metric_row", "charts"):
        draw = getattr(playback, name)
        monkeypatch.setattr(playback, name, partial(noted, order, name, draw))
    app = opened()
    assert order == ["player", "metric_row", "wait", "charts"]
    app.run()
    assert order[4:] == ["player", "metric_row", "charts"]


def noted(order: list[str], name: str, draw: Callable[..., object], *args: object, **kwargs: object) -> object:
    order.append(name)
    return draw(*args, **kwargs)


def test_the_first_page_shows_the_demo_run_without_importing_torch() -> None:
    runs_without_torch(
        "app = AppTest.from_file('app.py', default_timeout=60).run(); assert not app.exception, app.exception\n"
        "assert 'Ended by the end token' in ' '.join(t.value for t in app.text)"
    )


@pytest.mark.parametrize(
    "query",
    [
        {"model": "no-such-model"},
        {"max_new_tokens": "-5", "temperature": "hot", "decoding": "beam"},
        {"prompt": "<b>x</b> $y$ *z* :smile: </script>"},
        {"job": "unknown", "lang": "xx", "turns": "[[1]]"},
        {"record": "[]", "top_p": "7"},
    ],
    ids=lambda q: next(iter(q)),
)
def test_a_link_of_any_kind_opens_the_page(query: dict[str, str]) -> None:
    app = opened(**query)
    assert not app.exception
    assert app.text_area(key="prompt").value == query.get("prompt", "What is gravity?")


def test_a_link_cannot_ask_for_more_new_tokens_than_the_server_makes() -> None:
    app = opened(max_new_tokens="999999")
    assert app.number_input(key="max_new_tokens").value == app.session_state["max_new_tokens"] == Limits().new_tokens


def test_turns_come_with_a_link_and_can_be_added_and_removed() -> None:
    def shared() -> tuple[tuple[str, str], ...]:
        link = urlsplit(next(code.value for code in app.code))
        return Asked(**from_link(dict(parse_qsl(link.query)))).turns

    app = opened(turns='[["user", "a"], ["assistant", "b"]]')
    assert shared() == (("user", "a"), ("assistant", "b"))
    app.button(key="add turn").click().run()
    app.text_area(key="turn 2").set_value("c").run()
    assert shared() == (("user", "a"), ("assistant", "b"), ("user", "c"))
    for _ in range(2):
        app.button(key="remove turn").click().run()
    assert shared() == (("user", "a"),)


def test_the_demo_run_in_words() -> None:
    trace = Trace.load(ROOT / "assets" / "demo.safetensors")
    assert finish_words(trace) == "Ended by the end token <|im_end|> (id 2)."
    assert step_words(trace, 1).startswith("Decode fed one token, Gra; the cache now holds 41 positions. vity (id ")
    assert step_words(trace, len(trace.steps) - 1).endswith("it is never fed.")
    assert [row["step"] for row in step_table(trace, 10)] == list(range(3, 11))


def test_text_from_outside_is_literal_where_markdown_is_read() -> None:
    assert literal("<b>$x$</b> :smile: *a*") == r"\<b\>\$x\$\</b\> \:smile\: \*a\*"


def test_the_tokens_that_you_wrote_are_told_from_those_of_the_template() -> None:
    pieces = [b"<s>", b"user:", b" hi", b" th", b"ere", b"</s>", "猫".encode()[:1], "猫".encode()[1:]]
    assert written_by(pieces, ("hi there",)) == [False, False, True, True, True, False, False, False]
    assert written_by(pieces, ("hi there", "猫")) == [False, False, True, True, True, False, True, True]
    assert written_by(pieces, ("not in it", "")) == [False] * 8


def test_a_text_that_the_vocabulary_lacks_a_part_of_is_still_yours() -> None:
    unknown = [b"<bos>", *(word.encode() for word in ("小狗", "吃", "了")), b"<unk>", *(c.encode() for c in "，它很")]
    assert written_by(unknown, ("小狗吃了苹果，它很",)) == [False, *[True] * 7]
    in_turns = [b"<s>", b"user:", "小狗".encode(), b"<unk>", b"</s>"]
    assert written_by(in_turns, ("小狗苹果",)) == [False, False, True, True, False]
    assert written_by([b"<s>", b"<unk>", b"</s>"], ("苹果",)) == [False] * 3  # nothing says which of them it is


def test_an_error_names_its_step_and_its_values_in_the_readers_language() -> None:
    error = NumericalError(N_("The prompt is empty."), N_("Type at least one character.")).at_step(3)
    assert str(error) == "Step 3: The prompt is empty. Type at least one character."
    assert str(InferenceError("{a} of {b}", a=1, b=2)) == "1 of 2"


class EndsWhileThePageIsDrawn(Job):
    """A job that is still going on when it is first asked, and has ended at once after that."""

    asked = 0

    @property
    def ended(self) -> bool:
        self.asked += 1
        return self.asked > 1


def test_a_run_that_ends_while_the_page_is_drawn_leaves_no_page_that_waits_for_it() -> None:
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    app.session_state["job"] = job = EndsWhileThePageIsDrawn("me", "smollm2-135m", None, 5)
    app.run()
    assert job.asked > 1
    assert not app.exception
    assert not app.button(key="start").disabled


def test_the_preview_names_the_settings_in_effect_and_where_each_came_from() -> None:
    session.models().get("kitten", lambda _: None)
    app = opened(model="kitten", chat="false", decoding="random", temperature="0.5", prompt="小猫")
    app.session_state["seed"] = None
    app.toggle(key="preview").set_value(True).run()
    table = app.dataframe[1].value.to_dict("records")
    rows = {row["setting"]: (row["value"], row["origin"]) for row in table}
    assert rows["temperature"] == ("0.5", "yours")
    assert rows["top_k"] == ("50", "yours")  # as the form proposes
    assert rows["repetition_penalty"] == ("off", "default")
    assert rows["seed"] == ("drawn anew", "default")
    assert rows["order"] == ("transformers", "default")
