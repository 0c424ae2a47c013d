"""Lengths of sequences: read from what a person typed, or drawn from a distribution."""

from __future__ import annotations

import re

import numpy as np

from inference.errors import N_, CalculatorError
from inference.kv_layers import MAX_TOKENS, whole

MOST_LENGTHS = 10_000
MAX_SEED = 2**32 - 1
SPREAD = 1.0  # standard deviation of the logarithm of a length: some requests are many times longer than most
DISTRIBUTIONS = ("lognormal", "exponential", "uniform")


def parse_lengths(text: str) -> tuple[int, ...]:
    """Whole numbers with commas, semicolons, spaces or line breaks between them.

    Raises:
        CalculatorError: there are none or too many, or one, named by its place, is not a whole number in its range.
    """
    entries = [entry for entry in re.split(r"[\s,;，、；]+", text) if entry]
    if not entries:
        raise CalculatorError(N_("The list has no lengths."), N_("Type one length a sequence: 4096, 100, 7."))
    if len(entries) > MOST_LENGTHS:
        raise CalculatorError(
            N_("The list has {count:,} lengths; at most {limit:,} are taken."),
            N_("Give fewer, or one length and a batch."),
            count=len(entries),
            limit=MOST_LENGTHS,
        )
    return tuple(_length(entry, at) for at, entry in enumerate(entries, start=1))


def _length(entry: str, at: int) -> int:
    # a number of more digits than the limit has is out of range, whatever they are
    number = int(entry) if re.fullmatch(r"[0-9]{1,10}", entry) else 0
    if not 1 <= number <= MAX_TOKENS:
        raise CalculatorError(
            N_("Entry {at} of the list is {entry}, which is no whole number from 1 to {limit:,}."),
            N_("Correct or remove it."),
            at=at,
            entry=repr(entry[:40]),
            limit=MAX_TOKENS,
        )
    return number


def draw_lengths(distribution: str, count: int, mean: int, seed: int) -> tuple[int, ...]:
    """`count` lengths with about that mean, at least 1 each; the same seed draws the same ones.

    Raises:
        CalculatorError: the distribution is not known, or a number is out of its range.
    """
    count = whole(count, "count", high=MOST_LENGTHS)
    mean = whole(mean, "mean", high=MAX_TOKENS // 1000)
    generator = np.random.default_rng(whole(seed, "seed", low=0, high=MAX_SEED))
    if distribution == "lognormal":
        drawn = generator.lognormal(np.log(mean) - SPREAD**2 / 2, SPREAD, count)
    elif distribution == "exponential":
        drawn = generator.exponential(mean, count)
    elif distribution == "uniform":
        drawn = generator.uniform(0, 2 * mean, count)
    else:
        raise CalculatorError(
            N_("There is no distribution {name}."),
            N_("Choose one of: {known}."),
            name=repr(distribution)[:40],
            known=tuple(DISTRIBUTIONS),
        )
    return tuple(int(n) for n in np.clip(np.rint(drawn), 1, MAX_TOKENS))
