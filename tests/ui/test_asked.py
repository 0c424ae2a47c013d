"""The form as values: a link fills it again, and a hostile link fills nothing."""

from __future__ import annotations

from urllib.parse import parse_qs

import pytest

from inference import GenerationRequest, RecordOptions, SamplingParams
from inference.errors import RequestError
from ui.asked import Asked, from_link, link
from ui.limits import Limits, is_local, read


def opened(query: str) -> Asked:
    return Asked(
        **from_link({name: values[0] for name, values in parse_qs(query.lstrip("?"), keep_blank_values=True).items()})
    )


@pytest.mark.parametrize(
    "asked",
    [
        Asked(),
        Asked(prompt="小猫跑了一天，它很 & <b>$x$</b>\n", chat=False, max_new_tokens=7, stop="。\n\\n\\n"),
        Asked(decoding="greedy", repetition_penalty=1.2, turns=(("user", "a"), ("assistant", "b")), system="be brief"),
        Asked(temperature=None, top_k=0, seed=None, record=("logits",), include_stop=True),
    ],
)
def test_a_link_opens_the_form_as_it_was(asked: Asked) -> None:
    assert opened(link(asked)) == asked


def test_a_link_holds_only_what_was_changed_and_refuses_to_be_endless() -> None:
    assert link(Asked()) == "?"
    assert link(Asked(max_new_tokens=9)) == "?max_new_tokens=9"
    with pytest.raises(RequestError, match="Share the run file"):
        link(Asked(prompt="word " * 3000))


@pytest.mark.parametrize(
    "query",
    [
        {"max_new_tokens": "-3"}, {"max_new_tokens": "many"}, {"temperature": "-1"}, {"temperature": '"hot"'},
        {"turns": "7"}, {"record": '["everything"]'}, {"decoding": "beam"}, {"chat": "1"}, {"surprise": "1"},
        {"top_k": "[1]"}, {"turns": '[["user", 5]]'}, {"turns": '[["tool", "x"]]'}, {"turns": '[["user"]]'},
    ],
)  # fmt: skip
def test_what_does_not_fit_in_a_link_is_left_out(query: dict[str, str]) -> None:
    assert from_link(query) == {}


def test_the_form_becomes_the_request_it_shows() -> None:
    request = Asked(
        prompt="hi", turns=(("user", "a"), ("assistant", "b")), stop="x\\ny\n\nz", record=("logits",)
    ).request(5)
    assert request.prompt == (("user", "a"), ("assistant", "b"), ("user", "hi"))
    assert request.stop_strings == ("x\ny", "z")
    assert (request.record.logits, request.record.attention, request.record.max_trace_bytes) == (True, False, 5)
    assert Asked(decoding="checkpoint").sampling() == SamplingParams()
    assert Asked(decoding="greedy").sampling() == SamplingParams(greedy=True)


def test_limits_come_from_the_environment_then_from_the_secrets() -> None:
    secrets = {"INFEROSCOPE_MAX_NEW_TOKENS": 7, "INFEROSCOPE_MAX_PROMPT_TOKENS": 9}
    limits = read(secrets, "127.0.0.1", {"INFEROSCOPE_MAX_NEW_TOKENS": "5", "INFEROSCOPE_MODELS": "gpt2, smollm2-135m"})
    assert (limits.new_tokens, limits.prompt_tokens, limits.trace_bytes) == (5, 9, Limits().trace_bytes)
    assert [e.id for e in limits.allowed()] == ["smollm2-135m", "gpt2"]
    with pytest.raises(RequestError, match="INFEROSCOPE_MAX_NEW_TOKENS must be"):
        read({}, "127.0.0.1", {"INFEROSCOPE_MAX_NEW_TOKENS": "0"})


def test_the_hub_is_off_where_others_can_reach_the_server_unless_it_is_turned_on() -> None:
    assert [is_local(a) for a in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "192.168.1.5", "")] == [True] * 3 + [
        False
    ] * 3
    assert (read({}, "127.0.0.1", {}).hub, read({}, "0.0.0.0", {}).hub) == (True, False)
    assert read({}, "0.0.0.0", {"INFEROSCOPE_HUB": "on"}).hub
    assert all(entry.installed for entry in read({}, "0.0.0.0", {}).allowed())


def test_a_prompt_past_the_servers_limit_is_refused_with_both_numbers() -> None:
    with pytest.raises(RequestError, match=r"12 tokens; this server takes at most 10\. Shorten it by 2"):
        Limits(prompt_tokens=10).check_prompt(12)


def test_a_model_from_outside_the_catalogue_may_be_named_only_where_the_server_lets_anything_be_loaded() -> None:
    assert Limits().allows("some/model")
    assert not Limits(hub=False).allows("some/model")
    assert Limits(hub=False).allows("smollm2-135m")
    limited = Limits(models=("smollm2-135m",))
    assert (limited.allows("smollm2-135m"), limited.any_model) == (True, False)
    with pytest.raises(RequestError, match=r"does not run gpt2\. Choose one of smollm2-135m"):
        limited.check_model("gpt2")


def test_a_run_from_elsewhere_is_held_to_the_servers_limits() -> None:
    request = GenerationRequest(prompt="a", max_new_tokens=10**6, record=RecordOptions(max_trace_bytes=10**12))
    bound = Limits(new_tokens=30, trace_bytes=40).bound(request)
    assert (bound.max_new_tokens, bound.record.max_trace_bytes, bound.prompt) == (30, 40, "a")
    small = GenerationRequest(prompt="a", max_new_tokens=3, record=RecordOptions(max_trace_bytes=7))
    assert Limits().bound(small) == small
