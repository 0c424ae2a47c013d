"""Teacher forcing: a whole text is fed at once, and every position is asked for the token that does follow.

At position t the model is given the tokens 0 … t, however badly it guessed before, and scored on token t + 1: loss
-ln p (cross-entropy, as transformers' `labels=` computes it with its targets shifted by one). Perplexity is e to the
power of the mean loss (Jelinek et al., 1977). The causal mask hides every later token from a position, so that one pass
scores all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inference.errors import N_, NumericalError, RequestError
from inference.request import GenerationRequest
from inference.sampling import rank_of
from inference.tokens import Token, Vocabulary
from inference.within_memory import within_memory

if TYPE_CHECKING:
    from inference.models import LoadedModel

N_TOP = 5
CHUNK_BYTES = 32 * 2**20  # of logits at a time
CHUNK = 256  # positions at most
WHOLE_BYTES = 512 * 2**20  # of logits, where a text must be fed in one pass


@dataclass(frozen=True, eq=False)
class Forcing:
    """A text of T tokens, scored.

    Attributes:
        ids: [T] int64.
        logprobs: [T-1] natural log of the probability that position t gave to token t + 1.
        ranks: [T-1] rank of that token, 1 = likeliest.
        entropy: [T] in nats: the loss that the position expected.
        top_ids: [T, n] likeliest next tokens of each position, likeliest first, and `top_probs` [T, n].
    """

    model_name: str
    vocabulary: Vocabulary
    ids: NDArray[np.int64]
    logprobs: NDArray[np.float64]
    ranks: NDArray[np.int64]
    entropy: NDArray[np.float64]
    top_ids: NDArray[np.int64]
    top_probs: NDArray[np.float32]

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        """The T tokens of the text."""
        return tuple(self.vocabulary.token(int(i)) for i in self.ids)

    @property
    def losses(self) -> NDArray[np.float64]:
        """[T-1] loss of each position in nats."""
        return -self.logprobs

    @property
    def mean_loss(self) -> float:
        """Mean loss in nats."""
        return float(self.losses.mean())

    @property
    def perplexity(self) -> float:
        """e to the power of the mean loss."""
        return float(np.exp(self.mean_loss))

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        arrays = (self.ids, self.logprobs, self.ranks, self.entropy, self.top_ids, self.top_probs)
        return sum(array.nbytes for array in arrays)


def text_ids(model: LoadedModel, text: str) -> list[int]:
    """Token ids of a text, with the special tokens that the tokenizer puts around one.

    Raises:
        RequestError: the text holds half of a surrogate pair.
    """
    return [int(i) for i in model.tokenizer.encode(GenerationRequest(prompt=text))]


def force(
    model: LoadedModel,
    ids: Sequence[int],
    progress: Callable[[float], None] = lambda share: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Forcing | None:
    """Score a text of T tokens in passes over some positions at a time; `None` where it was cancelled.

    Memory is bounded: the logits of one part are held at a time, never [T, V].

    Args:
        progress: told the share that is done after each part.

    Raises:
        RequestError: the text has fewer than two tokens, or more than the model reads, with both numbers.
        NumericalError: the model gives logits that are no numbers.
        MemoryLimitError: there is not enough memory for the passes.
    """
    fed = np.array(ids, dtype=np.int64)
    size = chunk_size(model, len(fed))
    cache, parts = model.forward.new_cache(), []
    for start in range(0, len(fed), size):
        if cancelled():
            return None
        logits = logits_of(model, fed[start : start + size], cache)
        parts.append(_score(logits, fed[start + 1 : start + size + 1], start))
        progress(min(1.0, (start + size) / len(fed)))
    joined = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
    return Forcing(model.facts.name, model.tokenizer.vocabulary, fed, *joined)


def chunk_size(model: LoadedModel, n: int) -> int:
    """How many of a text's n positions are fed at a time, so that the memory for their logits is bounded.

    Raises:
        RequestError: as `force`.
    """
    if n < 2:
        raise RequestError(
            N_("The text has {n} tokens; scoring needs at least 2, one to read and one to guess."),
            N_("Type a longer text."),
            n=n,
        )
    row = 4 * model.facts.vocab_size
    most = model.facts.context_length or n
    if not model.forward.takes_chunks:  # its recurrent state cannot be continued by several positions
        most = min(most, WHOLE_BYTES // row)
    if n > most:
        raise RequestError(
            N_("The text has {n} tokens; {model} can score at most {limit}."),
            N_("Shorten the text by {over} tokens."),
            n=n,
            limit=most,
            over=n - most,
            model=model.facts.name,
        )
    return max(1, min(CHUNK, CHUNK_BYTES // row)) if model.forward.takes_chunks else n


def logits_of(model: LoadedModel, ids: NDArray[np.int64], cache: Any) -> NDArray[np.float32]:
    """[Q, V] logits of positions fed after what is in the cache.

    Raises:
        MemoryLimitError: there is not enough memory for the pass.
    """
    from inference.recorder import Recorder

    nothing = Recorder(attention=False, hidden=False, router=False)

    def run() -> NDArray[np.float32]:
        result = model.forward(ids, cache, nothing, weights=False, last_only=False)
        logits: NDArray[np.float32] = result.logits.float().cpu().numpy()
        return logits

    return within_memory(
        model,
        len(ids),
        run,
        N_("There was not enough memory on {device} to score {n} positions at a time."),
        N_("Use a shorter text or a smaller model."),
    )


def _score(logits: NDArray[np.float32], targets: NDArray[np.int64], first: int) -> tuple[NDArray[Any], ...]:
    """Of Q positions from `first` on: log-probabilities and ranks of their targets, entropies, top ids and probs.

    `targets` is [Q], or one shorter where the text ends: what follows its last token is not known.
    """
    highest = logits.max(axis=1, keepdims=True)
    if not (highest < np.inf).all():  # NaN or +inf
        raise NumericalError(
            N_("The model's logits at position {position} are no numbers, so it cannot be scored."),
            N_("Load the model in float32, or use another checkpoint."),
            position=first + int(np.flatnonzero(~(highest[:, 0] < np.inf))[0]),
        )
    shares = np.exp(logits - highest)
    mass = shares.sum(axis=1, dtype=np.float64)
    log_z = highest[:, 0] + np.log(mass)
    at_zero = np.where(shares > 0, logits, 0)  # what cannot come adds nothing, not 0 times infinity
    entropy = log_z - np.einsum("qv,qv->q", shares, at_zero, dtype=np.float64) / mass
    scores = logits[np.arange(len(targets)), targets]
    ranks = np.array([rank_of(row, int(target)) for row, target in zip(logits, targets, strict=False)], dtype=np.int64)
    top, probs = _top(logits, log_z)
    return scores - log_z[: len(targets)], ranks, entropy, top, probs


def _top(logits: NDArray[np.float32], log_z: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Ids [Q, n] and probabilities [Q, n] of the likeliest tokens; equal ones stand in id order."""
    n = min(N_TOP, logits.shape[1])
    ids = np.argpartition(-logits, n - 1, axis=1)[:, :n].astype(np.int64)
    values = np.take_along_axis(logits, ids, axis=1)
    order = np.lexsort((ids, -values))
    ids, values = np.take_along_axis(ids, order, axis=1), np.take_along_axis(values, order, axis=1)
    return ids, np.exp(values - log_z[:, None]).astype(np.float32)
