"""A pool of cache blocks that requests share: prefix hits by content, and the least recently used block given up first.

The rules are those of vLLM's automatic prefix caching: a full block is found again by its tokens and all tokens
before it; at least the last prompt token is always computed; blocks of a request that has ended stay findable until
they are needed, the ends of sequences given up before their beginnings.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from inference.errors import N_, CalculatorError
from inference.kv_layers import MAX_PAGE, whole

MAX_REQUESTS = 64
MAX_REQUEST_TOKENS = 100_000
MAX_BLOCKS = 100_000


@dataclass(frozen=True, slots=True)
class PoolRequest:
    """One request: `prefix_tokens` tokens of the text named `prefix`, then `own_tokens` that no other request has.

    Attributes:
        stays: it is still running when the next one comes, so its blocks cannot be given up.
    """

    name: str
    prefix: str
    prefix_tokens: int
    own_tokens: int
    stays: bool = False

    @property
    def tokens(self) -> int:
        """All of them."""
        return self.prefix_tokens + self.own_tokens


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a request was put.

    Attributes:
        blocks: numbers of its blocks in the pool, in the order of its tokens; none where it did not fit.
        hits: so many of them, from the first on, were found with their contents.
        evicted: blocks whose contents were given up for it.
        lacking: blocks that there was no room for; it was refused if there are any.
    """

    request: PoolRequest
    blocks: tuple[int, ...]
    hits: int
    evicted: tuple[int, ...]
    lacking: int
    block_size: int

    @property
    def reused_tokens(self) -> int:
        """Tokens whose prefill is saved."""
        return self.hits * self.block_size

    @property
    def computed_tokens(self) -> int:
        """Tokens that are prefilled."""
        return 0 if self.lacking else self.request.tokens - self.reused_tokens

    @property
    def wasted_tokens(self) -> int:
        """Places in its last block that no token takes."""
        return len(self.blocks) * self.block_size - self.request.tokens if self.blocks else 0


def n_blocks(tokens: int, block_size: int) -> int:
    """Blocks that hold so many tokens, the last one perhaps in part."""
    return -(-tokens // block_size)


class Pool:
    """Blocks, what they hold, and who uses them.

    Raises:
        CalculatorError: a number is out of its range.
    """

    def __init__(self, size: int, block_size: int = 16) -> None:
        self.size = whole(size, "pool", high=MAX_BLOCKS)
        self.block_size = whole(block_size, "block_size", high=MAX_PAGE)
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(self.size))  # the first is given up first
        self._users = [0] * self.size
        self._n_placed = 0
        self._key_of: dict[int, bytes] = {}
        self._block_of: dict[bytes, int] = {}

    @property
    def in_use(self) -> int:
        """Blocks that a running request holds."""
        return self.size - len(self._free)

    def place(self, request: PoolRequest) -> Placement:
        """Give a request its blocks, found or free; nothing where the pool has too few."""
        self._n_placed += 1
        keys = _keys(request, f"request {self._n_placed}", self.block_size)
        found = self._found(keys, (request.tokens - 1) // self.block_size)
        needed = n_blocks(request.tokens, self.block_size) - len(found)
        free = len(self._free) - sum(block in self._free for block in found)
        if needed > free:
            return Placement(request, (), 0, (), needed - free, self.block_size)
        for block in found:
            self._take(block)
        fresh = list(self._free)[:needed]
        for block in fresh:
            self._take(block)
        evicted = tuple(block for block in fresh if self._forget(block))
        blocks = (*found, *fresh)
        for block, key in zip(blocks, keys, strict=False):
            if key not in self._block_of:
                self._block_of[key], self._key_of[block] = block, key
        return Placement(request, blocks, len(found), evicted, 0, self.block_size)

    def release(self, placement: Placement) -> None:
        """The request has ended: blocks that nobody else uses may be given up, the last one first."""
        for block in reversed(placement.blocks):
            self._users[block] -= 1
            if not self._users[block]:
                self._free[block] = None

    def _found(self, keys: Sequence[bytes], most: int) -> list[int]:
        """Blocks that hold the beginning of a request, as far as they go on without a gap."""
        found: list[int] = []
        for key in keys[:most]:
            if key not in self._block_of:
                break
            found.append(self._block_of[key])
        return found

    def _take(self, block: int) -> None:
        self._users[block] += 1
        self._free.pop(block, None)

    def _forget(self, block: int) -> bool:
        """Give a block's contents up; whether it had any that could have been found."""
        key = self._key_of.pop(block, None)
        if key is None:
            return False
        del self._block_of[key]
        return True


def simulate(requests: Sequence[PoolRequest], size: int, block_size: int = 16) -> tuple[Placement, ...]:
    """Serve requests in their order; one that does not stay ends before the next one comes.

    Raises:
        CalculatorError: a number is out of its range; the message names the request.
    """
    if len(requests) > MAX_REQUESTS:
        raise CalculatorError(
            N_("There are {n} requests; at most {limit} are served."),
            N_("Remove some."),
            n=len(requests),
            limit=MAX_REQUESTS,
        )
    for request in requests:
        _check(request)
    pool, placements = Pool(size, block_size), []
    for request in requests:
        placements.append(pool.place(request))
        if not request.stays:
            pool.release(placements[-1])
    return tuple(placements)


def _check(request: PoolRequest) -> None:
    if not 1 <= request.tokens <= MAX_REQUEST_TOKENS or min(request.prefix_tokens, request.own_tokens) < 0:
        raise CalculatorError(
            N_("Request {name} has {prefix} and {own} tokens; the two must add up to 1 to {limit:,}, neither below 0."),
            N_("Correct its row."),
            name=request.name,
            prefix=request.prefix_tokens,
            own=request.own_tokens,
            limit=MAX_REQUEST_TOKENS,
        )


def _keys(request: PoolRequest, own: str, block_size: int) -> list[bytes]:
    """One key a full block: a digest of its tokens and of the key before it.

    Args:
        own: names the tokens that no other request has.
    """
    keys: list[bytes] = []
    for start in range(0, request.tokens - block_size + 1, block_size):
        shared = max(0, min(block_size, request.prefix_tokens - start))
        contents = repr((request.prefix, start, shared, "" if shared == block_size else own))
        parent = keys[-1] if keys else b""
        keys.append(hashlib.blake2b(parent + contents.encode("utf-8", "surrogatepass"), digest_size=16).digest())
    return keys
