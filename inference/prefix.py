"""How many blocks requests with a common prefix need when full blocks are shared."""

from __future__ import annotations

from dataclasses import dataclass

from inference.kv_layers import MAX_BATCH, MAX_PAGE, MAX_TOKENS, whole


@dataclass(frozen=True, slots=True)
class PrefixSharing:
    """Blocks of requests that share a prefix.

    Attributes:
        shared: kept once for all.
        private: kept by each request.
        total: shared, and private ones of all requests.
        without: what the requests take when nothing is shared.
    """

    shared: int
    private: int
    total: int
    without: int


def prefix_sharing(prefix: int, suffix: int, requests: int, page_size: int = 16) -> PrefixSharing:
    """Blocks that `requests` need which have `prefix` tokens in common and `suffix` tokens of their own.

    Only full blocks are shared (vLLM, automatic prefix caching). The bytes of a block are those of
    `page_size` tokens.

    Raises:
        CalculatorError: a number is out of its range.
    """
    prefix = whole(prefix, "prefix", low=0, high=MAX_TOKENS)
    suffix = whole(suffix, "suffix", high=MAX_TOKENS)
    requests = whole(requests, "requests", high=MAX_BATCH)
    page_size = whole(page_size, "page_size", high=MAX_PAGE)
    shared = prefix // page_size
    blocks = -(-(prefix + suffix) // page_size)
    private = blocks - shared
    return PrefixSharing(shared, private, shared + requests * private, requests * blocks)
