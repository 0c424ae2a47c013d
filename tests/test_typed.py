"""A distribution typed by hand: what is read, and which entry is named when it cannot be."""

from __future__ import annotations

import numpy as np
import pytest

from inference.errors import SamplingError
from inference.sampling import SamplingParams, run_pipeline
from inference.typed import parse


def test_probabilities_become_logits_whose_softmax_they_are_and_the_rest_is_one_entry() -> None:
    typed = parse("累 0.6, 困 0.2, 饿 0.1", "probs")
    assert typed.texts == ("累", "困", "饿", "")
    assert typed.rest == pytest.approx(0.1)
    np.testing.assert_allclose(run_pipeline(typed.logits, SamplingParams())[0].probs, [0.6, 0.2, 0.1, 0.1], atol=1e-7)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"greedy": True}, [1, 0, 0, 0]),
        ({"top_k": 2}, [0.75, 0.25, 0, 0]),
        ({"top_p": 0.8}, [0.75, 0.25, 0, 0]),
        ({"temperature": 0.0}, [1, 0, 0, 0]),
    ],
    ids=str,
)
def test_the_lesson_of_the_tired_kitten(settings: dict, expected: list[float]) -> None:
    typed = parse("累 .6 ，困 20%；饿：0.1", "probs")
    np.testing.assert_allclose(run_pipeline(typed.logits, SamplingParams(**settings))[-1].probs, expected, atol=1e-6)


def test_logits_are_taken_as_they_are() -> None:
    typed = parse("a 2\nb=1\nc -inf\n two words 1e2", "logits")
    assert typed.texts == ("a", "b", "c", "two words")
    np.testing.assert_array_equal(typed.logits, np.array([2, 1, -np.inf, 100], dtype=np.float32))
    assert typed.rest == 0


def test_probabilities_that_add_up_to_one_leave_no_rest() -> None:
    assert parse("a 0.1, b 0.2, c 0.7", "probs").texts == ("a", "b", "c")


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("", "probs", "There are 0 entries; from 1 to 200 can be used"),
        (", ".join(f"t{i} 0" for i in range(201)), "probs", "There are 201 entries"),
        ("a 0.5, b", "probs", "Entry 2 is not a text followed by a number: b"),
        ("0.5", "probs", "Entry 1 is not a text followed by a number: 0.5"),
        ("a 0.5, b x", "probs", "Entry 2: x is not a number"),
        ("a 0.5, b nan", "probs", "Entry 2: a probability lies between 0 and 1, not nan"),
        ("a 0.5, b -0.1", "probs", "Entry 2: a probability lies between 0 and 1, not -0.1"),
        ("a 1.5", "probs", "Entry 1: a probability lies between 0 and 1, not 1.5"),
        ("a 0.7, b 0.5", "probs", "The probabilities add up to 1.2; together they can be at most 1"),
        ("a 0, b 0", "probs", "Every probability is 0"),
        ("a 0.1, a 0.2", "probs", "Entry 2 has the same text as an earlier one: a"),
        ("x" * 41 + " 0.1", "probs", "The text of entry 1 has 41 characters; 40 are allowed"),
        ("a 1, b nan", "logits", "Entry 2: a logit is a number of any size, or -inf, not nan"),
        ("a inf", "logits", "Entry 1: a logit is a number of any size, or -inf, not inf"),
        ("a 1e39", "logits", "Entry 1: a logit is a number of any size, or -inf, not 1e39"),
        ("a -inf", "logits", "Every logit is -inf"),
    ],
)
def test_the_entry_that_is_wrong_is_named(text: str, kind: str, said: str) -> None:
    with pytest.raises(SamplingError) as error:
        parse(text, kind)
    assert str(error.value).startswith(said)
