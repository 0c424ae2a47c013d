"""Where tokens went, against hand-made routers and against transformers' own routers of several families."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from inference.errors import TraceError
from inference.experts import (
    by_kind,
    by_line,
    distance,
    imbalance,
    kind_of,
    layer_load,
    load_of,
    routed_layers,
    routing,
    routing_at,
)
from inference.tokens import Token
from inference.trace import RouterRecord, Trace
from tests.charts.runs import run
from tests.tiny import N_NEW, PROMPT, greedy


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float64))
    return e / e.sum(-1, keepdims=True)


def routed(logits: list[np.ndarray]) -> Trace:
    """A hand-made run with a router in layer 1: [Q, E] logits a step, two experts a token, weights normalised."""
    steps = []
    for step, rows in zip(run(chosen=(3,) * len(logits)).steps, logits, strict=True):
        experts = np.argsort(-rows, axis=1, kind="stable")[:, :2]
        picked = np.take_along_axis(softmax(rows), experts, 1)
        weights = (picked / picked.sum(1, keepdims=True)).astype(np.float32)
        steps.append(replace(step, router=(RouterRecord(1, rows.astype(np.float32), experts, weights),)))
    return replace(run(chosen=(3,) * len(logits)), steps=tuple(steps))


def test_prefill_and_decode_are_joined_in_order_of_position() -> None:
    prefill = np.array([[2, 1, 0], [0, 2, 1], [1, 0, 2], [2, 1, 0]], dtype=np.float32)
    found = routing(routed([prefill, np.array([[0, 1, 2]], dtype=np.float32)]), 1)
    assert found.experts.tolist() == [[0, 1], [1, 2], [2, 0], [0, 1], [2, 1]]
    assert found.load.tolist() == [3, 4, 3]
    assert found.gate == "softmax"
    assert found.gates[4] == pytest.approx([0.0900, 0.2447, 0.6652], abs=1e-4)
    assert found.weights[4] == pytest.approx([0.7311, 0.2689], abs=1e-4)


def test_a_run_without_router_choices_has_no_routed_layer_and_says_which_it_lacks() -> None:
    assert routed_layers(run()) == ()
    with pytest.raises(TraceError, match="no router choices of layer 1"):
        routing(run(), 1)


@pytest.mark.parametrize(
    ("name", "gate"),
    [
        ("mixtral", "softmax"), ("qwen3_moe", "softmax"), ("gpt_oss", "softmax"), ("deepseek_v2", "softmax"),
        ("deepseek_v3", "sigmoid"),
    ],
)  # fmt: skip
def test_the_gate_of_each_family_is_the_function_that_its_code_has(name: str, gate: str) -> None:
    trace = greedy(name)
    for layer in routed_layers(trace):
        found = routing(trace, layer)
        assert found.gate == gate
        assert len(found.experts) == len(PROMPT) + N_NEW - 1
        assert all(len(set(row)) == len(row) for row in found.experts.tolist())
        if gate == "softmax":
            np.testing.assert_allclose(found.gates, softmax(found.logits), atol=1e-6)
        else:
            np.testing.assert_allclose(found.gates, 1 / (1 + np.exp(-found.logits)), atol=1e-6)


def test_weights_that_follow_from_no_gate_are_called_unknown() -> None:
    trace = routed([np.array([[3, 1, 0], [0, 4, 1], [1, 0, 2], [2, 1, 0]], dtype=np.float32)])
    record = trace.steps[0].router[0]
    other = replace(record, weights=np.full_like(record.weights, 0.5))
    changed = replace(trace, steps=(replace(trace.steps[0], router=(other,)),))
    assert routing(changed, 1).gate == "unknown"


def test_imbalance_is_one_when_even_and_the_number_of_experts_when_all_go_to_one() -> None:
    assert imbalance(np.array([5, 5, 5, 5])) == 1
    assert imbalance(np.array([0, 20, 0, 0])) == 4
    assert imbalance(load_of(np.array([[0, 1], [0, 2], [0, 1]]), 4)) == 2


def test_distance_counts_the_share_of_choices_that_would_have_to_move() -> None:
    assert distance(np.array([1, 1, 0]), np.array([3, 3, 0])) == 0
    assert distance(np.array([4, 0, 0]), np.array([0, 1, 1])) == 1
    assert distance(np.array([3, 1]), np.array([1, 3])) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"42", "digit"), (b" cat", "latin"), ("猫".encode(), "han"), ("мир".encode(), "letter"), (b"+", "sign"),
        (b"\n  ", "space"), (b"\xe5\x9b", "piece"), ("é".encode(), "latin"), (b"_x", "sign"),
    ],
)  # fmt: skip
def test_a_token_is_of_the_kind_of_its_first_character(data: bytes, kind: str) -> None:
    assert kind_of(Token(1, data)) == kind
    assert kind_of(Token(1, data, special=True)) == "special"


def tokens(*pieces: bytes) -> tuple[Token, ...]:
    return tuple(Token(i, piece, special=piece == b"<s>") for i, piece in enumerate(pieces))


def test_lines_end_with_the_token_that_holds_the_line_break_and_blank_ones_are_left_out() -> None:
    groups = by_line(tokens(b"<s>", b"1", b"+1", b"\n", b"\n", b"ab", b"c\n ", b"d"))
    assert [(g.name, g.positions.tolist()) for g in groups] == [("1+1", [1, 2, 3]), ("abc", [5, 6]), ("d", [7])]


def test_kinds_split_all_positions_between_them() -> None:
    groups = by_kind(tokens(b"<s>", b"1", b" a", b"2", "猫".encode()))
    assert [(g.name, g.positions.tolist()) for g in groups] == [
        ("special tokens", [0]), ("digits", [1, 3]), ("Chinese characters", [4]), ("Latin letters", [2]),
    ]  # fmt: skip


def test_one_position_alone_is_what_the_whole_run_has_there() -> None:
    trace = greedy("deepseek_v3")
    for position in (0, len(PROMPT) - 1, len(PROMPT), len(PROMPT) + N_NEW - 2):
        found = routing_at(trace, position, "sigmoid")
        assert [one.layer for one in found] == list(routed_layers(trace))
        for one in found:
            whole = routing(trace, one.layer)
            for name in ("logits", "gates", "experts", "weights"):
                np.testing.assert_array_equal(getattr(one, name)[0], getattr(whole, name)[position])


def test_a_position_after_the_last_that_was_fed_is_refused() -> None:
    n = len(PROMPT) + N_NEW - 1
    with pytest.raises(TraceError, match=f"no position {n}; {n} were fed"):
        routing_at(greedy("mixtral"), n, "softmax")


def test_a_layers_load_counts_its_choices_and_averages_the_strongest_part() -> None:
    prefill = np.array([[2, 1, 0], [0, 2, 1], [1, 0, 2], [2, 1, 0]], dtype=np.float32)
    found = layer_load(routed([prefill, np.array([[0, 1, 4]], dtype=np.float32)]), 1)
    assert (found.load.tolist(), found.n_chosen, found.n_tokens) == ([3, 4, 3], 2, 5)
    assert found.strongest == pytest.approx((4 * 0.7311 + 0.9526) / 5, abs=1e-4)
