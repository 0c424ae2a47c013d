"""A distribution typed by hand: "累 0.6, 困 0.2, 饿 0.1" to logits, or a sentence about the entry that is wrong."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from inference.errors import N_, SamplingError

Kind = Literal["probs", "logits"]
LARGEST = float(np.finfo(np.float32).max)
MOST_ENTRIES, LONGEST = 200, 40  # entries, characters of a text
SUM_TOLERANCE = 1e-6
_SEPARATORS = re.compile(r"[,，、;；\n]+")
_ENTRY = re.compile(r"(?P<text>.*?)\s*[\s:：=]\s*(?P<number>\S+)")


@dataclass(frozen=True, slots=True, eq=False)
class Typed:
    """Typed tokens: their `texts` and `logits` [V] float32; of probabilities, logarithms.

    `rest` is the probability that the entries leave over; where there is any, a last token without text holds it.
    """

    texts: tuple[str, ...]
    logits: NDArray[np.float32]
    rest: float


def parse(text: str, kind: Kind) -> Typed:
    """Read entries "text number", separated by commas, semicolons or line breaks.

    Args:
        kind: what the numbers are: probabilities (also as "60%"), which may add up to less than 1, or logits.

    Raises:
        SamplingError: names the entry that is wrong, and the limit.
    """
    parts = [part.strip() for part in _SEPARATORS.split(text) if part.strip()]
    if not 1 <= len(parts) <= MOST_ENTRIES:
        raise SamplingError(
            N_("There are {n} entries; from 1 to {limit} can be used."),
            N_("Write each as a text and a number: cat 0.6, dog 0.2"),
            n=len(parts),
            limit=MOST_ENTRIES,
        )
    texts: list[str] = []
    numbers: list[float] = []
    for at, part in enumerate(parts, 1):
        name, number = _entry(at, part, kind)
        if name in texts:
            raise SamplingError(N_("Entry {at} has the same text as an earlier one: {text}."), at=at, text=name)
        texts.append(name)
        numbers.append(number)
    return _of_probs(texts, numbers) if kind == "probs" else _of_logits(texts, numbers)


def _entry(at: int, part: str, kind: Kind) -> tuple[str, float]:
    found = _ENTRY.fullmatch(part)
    if found is None or not found["text"]:
        raise SamplingError(
            N_("Entry {at} is not a text followed by a number: {text}."),
            N_("Write each as a text and a number: cat 0.6, dog 0.2"),
            at=at,
            text=part[:LONGEST],
        )
    if len(found["text"]) > LONGEST:
        raise SamplingError(
            N_("The text of entry {at} has {n} characters; {limit} are allowed."),
            at=at,
            n=len(found["text"]),
            limit=LONGEST,
        )
    return found["text"], _number(at, found["number"], kind)


def _number(at: int, written: str, kind: Kind) -> float:
    share = kind == "probs" and written.endswith("%")
    try:
        value = float(written[:-1]) / 100 if share else float(written)
    except ValueError:
        raise SamplingError(
            N_("Entry {at}: {text} is not a number."), N_("Write it as 0.6."), at=at, text=written[:LONGEST]
        ) from None
    if kind == "probs" and not 0 <= value <= 1:
        raise SamplingError(
            N_("Entry {at}: a probability lies between 0 and 1, not {value}."), at=at, value=written[:LONGEST]
        )
    if math.isnan(value) or (abs(value) > LARGEST and value != -math.inf):
        raise SamplingError(
            N_("Entry {at}: a logit is a number of any size, or -inf, not {value}."), at=at, value=written[:LONGEST]
        )
    return value


def _of_probs(texts: list[str], probs: list[float]) -> Typed:
    rest = 1 - math.fsum(probs)
    if rest < -SUM_TOLERANCE:
        raise SamplingError(
            N_("The probabilities add up to {total:.6g}; together they can be at most 1."),
            N_("Lower one of them, or type logits instead."),
            total=1 - rest,
        )
    if max(probs) == 0:
        raise SamplingError(N_("Every probability is 0, so there is nothing to choose from."), N_("Raise one of them."))
    if rest <= SUM_TOLERANCE:
        rest = 0.0
    shares = np.array([*probs, *([rest] if rest else [])], dtype=np.float64)
    with np.errstate(divide="ignore"):
        return Typed((*texts, *([""] if rest else [])), np.log(shares).astype(np.float32), rest)


def _of_logits(texts: list[str], logits: list[float]) -> Typed:
    if max(logits) == -math.inf:
        raise SamplingError(N_("Every logit is -inf, so there is nothing to choose from."), N_("Raise one of them."))
    return Typed(tuple(texts), np.array(logits, dtype=np.float32), 0.0)
