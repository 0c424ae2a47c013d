"""The pool of blocks: counts by hand, published cases, and what is given up first."""

from __future__ import annotations

import pytest

from inference.blocks import Pool, PoolRequest, n_blocks, simulate
from inference.errors import CalculatorError
from inference.prefix import prefix_sharing


def asked(name: str, prefix: int, own: int, text: str = "A", stays: bool = False) -> PoolRequest:
    return PoolRequest(name, text, prefix, own, stays)


def test_blocks_are_counted_up_to_the_next_whole_one() -> None:
    assert [n_blocks(tokens, 16) for tokens in (1, 16, 17, 8192, 8193)] == [1, 1, 2, 512, 513]


def test_eight_requests_with_a_prefix_of_1000_take_94_blocks_and_not_528() -> None:
    placed = simulate([asked(str(i), 1000, 50, stays=True) for i in range(8)], size=600)
    assert len({block for one in placed for block in one.blocks}) == 94
    assert sum(len(one.blocks) for one in placed) == 528
    assert [one.hits for one in placed] == [0] + [62] * 7
    assert placed[1].reused_tokens == 992
    assert placed[1].computed_tokens == 58


@pytest.mark.parametrize(
    ("prefix", "own", "n", "size"), [(1000, 50, 8, 16), (15, 10, 4, 16), (64, 1, 3, 8), (7, 9, 5, 4)]
)
def test_running_requests_take_what_the_formula_says(prefix: int, own: int, n: int, size: int) -> None:
    placed = simulate([asked(str(i), prefix, own, stays=True) for i in range(n)], size=10_000, block_size=size)
    expected = prefix_sharing(prefix, own, n, size)
    assert len({block for one in placed for block in one.blocks}) == expected.total
    assert sum(len(one.blocks) for one in placed) == expected.without


def test_the_last_prompt_token_is_always_computed() -> None:
    # the same 32 tokens again: floor(31 / 16) = 1 block is found, though both are there
    first, second = simulate([asked("a", 32, 0), asked("b", 32, 0)], size=8)
    assert (first.hits, second.hits) == (0, 1)
    assert second.computed_tokens == 16


def test_a_prefix_that_ends_inside_a_block_is_shared_up_to_the_block_before() -> None:
    placed = simulate([asked("a", 20, 12), asked("b", 20, 12)], size=8)
    assert [one.hits for one in placed] == [0, 1]
    assert placed[1].wasted_tokens == 0
    assert simulate([asked("a", 20, 3)], size=8)[0].wasted_tokens == 9


def test_other_texts_and_own_tokens_are_never_shared_whatever_the_names() -> None:
    placed = simulate([asked("same", 32, 32), asked("same", 32, 32, text="B"), asked("same", 0, 64)], size=20)
    assert [one.hits for one in placed] == [0, 0, 0]


def test_a_full_pool_gives_up_the_least_recently_used_contents_and_the_ends_of_sequences_first() -> None:
    # four blocks: A takes 0 1, B takes 2 3; C needs two and gives up A's, its end first
    a, b, c, again_b, again_a = simulate(
        [
            asked("a", 32, 0),
            asked("b", 32, 0, "B"),
            asked("c", 32, 0, "C"),
            asked("b2", 32, 8, "B"),
            asked("a2", 32, 8),
        ],
        size=4,
    )
    assert (a.blocks, b.blocks) == ((0, 1), (2, 3))
    assert set(c.evicted) == {0, 1}
    assert c.evicted[0] == 1
    assert again_b.hits == 2  # it was used later than A, so it is still there
    assert again_a.hits == 0


def test_a_running_request_is_not_given_up_and_what_does_not_fit_is_refused_with_the_number_of_blocks() -> None:
    _, second, third = simulate([asked("a", 48, 0, stays=True), asked("b", 0, 20), asked("c", 48, 16)], size=4)
    assert (second.blocks, second.lacking) == ((), 1)
    assert third.hits == 3
    assert third.lacking == 0
    assert second.computed_tokens == 0


def test_a_shared_block_stays_in_use_until_its_last_user_ends() -> None:
    pool = Pool(4, block_size=4)
    first = pool.place(asked("a", 8, 1))
    second = pool.place(asked("b", 8, 1))
    assert (first.blocks, second.blocks, pool.in_use) == ((0, 1, 2), (0, 1, 3), 4)
    pool.release(first)
    assert pool.in_use == 3
    pool.release(second)
    assert pool.in_use == 0


@pytest.mark.parametrize(
    ("requests", "size", "said"),
    [
        ([asked("a", 0, 0)], 4, "Request a has 0 and 0 tokens"),
        ([asked("a", -5, 9)], 4, "neither below 0"),
        ([asked("a", 1, 1)], 0, "pool must be a whole number from 1"),
        ([asked("a", 1, 1)] * 65, 4, "There are 65 requests; at most 64"),
    ],
)
def test_numbers_that_make_no_sense_are_refused_in_words(requests: list[PoolRequest], size: int, said: str) -> None:
    with pytest.raises(CalculatorError, match=said):
        simulate(requests, size)
