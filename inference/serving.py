"""Several requests on one machine, one at a time, in static batches or in a continuous batch: a simulation.

Nothing is run here. The clock moves by what each pass costs (`inference.step_costs`: measured on the machine), and
the rules are exact. The prefill gives a request's first token, each decode step one more; a request of N tokens takes
N − 1 steps, the k-th after prompt + k − 1 positions. Requests are served in the order of their arrival.

- Static: when the machine is free, up to `slots` waiting requests are taken as one batch, padded to its longest
  prompt, and run until the longest answer has ended; rows that have ended go on costing their place. The machine waits
  for a full batch at most `max_wait_s` after the first request's arrival.
- Continuous (Orca, Yu et al., OSDI 2022): a request joins as soon as a slot is free, at the border between two
  passes, and leaves with its last token. Its prefill is a pass of its own, during which the others stand still; with
  `chunk`, the oldest unfinished prefill is fed in pieces, and the others take a step after each (Sarathi-Serve,
  Agrawal et al., OSDI 2024, puts both into one pass; two are counted here, because that is what was measured).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from inference.errors import N_, RequestError
from inference.step_costs import StepCosts

MAX_REQUESTS, MAX_PROMPT, MAX_NEW, MAX_ARRIVAL_S = 16, 4096, 512, 600.0
LEAST_CHUNK = 16

Kind = Literal["waiting", "prefill", "decode", "stalled", "padding"]


@dataclass(frozen=True, slots=True)
class ServingRequest:
    """A request of `n_prompt` tokens that arrives at `arrival_s` and is answered with `n_new` tokens."""

    arrival_s: float
    n_prompt: int
    n_new: int


class Span(NamedTuple):
    """What became of a request from one time to another; `padding` is a place that it no longer needs."""

    kind: Kind
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Served:
    """One request: when each of its tokens was known, and what became of it from its arrival until its place was free.

    Spans follow each other without gaps.
    """

    request: ServingRequest
    token_s: tuple[float, ...]
    spans: tuple[Span, ...]

    @property
    def queue_s(self) -> float:
        """From its arrival until its prefill began."""
        return next(span.start_s for span in self.spans if span.kind == "prefill") - self.request.arrival_s

    @property
    def ttft_s(self) -> float:
        """From its arrival to its first token."""
        return self.token_s[0] - self.request.arrival_s

    @property
    def tpot_s(self) -> float | None:
        """(t_N − t_1) ÷ (N − 1), which needs two tokens."""
        n = len(self.token_s)
        return (self.token_s[-1] - self.token_s[0]) / (n - 1) if n > 1 else None

    @property
    def finish_s(self) -> float:
        """When its last token was known."""
        return self.token_s[-1]


@dataclass(frozen=True, slots=True)
class Schedule:
    """What a policy made of the requests, in their order.

    Attributes:
        n_fed: positions that all passes fed, each row's own; `n_padded` of them were padding or rows that had ended.
    """

    policy: str
    served: tuple[Served, ...]
    n_fed: int
    n_padded: int

    @property
    def n_tokens(self) -> int:
        """Tokens that all requests got."""
        return sum(len(one.token_s) for one in self.served)

    @property
    def makespan_s(self) -> float:
        """From the first arrival to the last token."""
        return max(one.finish_s for one in self.served) - min(one.request.arrival_s for one in self.served)

    @property
    def throughput(self) -> float:
        """Tokens a second of all requests together, over the makespan."""
        return self.n_tokens / self.makespan_s

    @property
    def padded_share(self) -> float:
        """Share of the fed positions that nobody needed."""
        return self.n_padded / self.n_fed


def one_at_a_time(requests: Sequence[ServingRequest], costs: StepCosts) -> Schedule:
    """Each request alone, the next when it has ended; raises as `static`."""
    return replace(continuous(requests, costs, 1), policy="one")


def static(requests: Sequence[ServingRequest], costs: StepCosts, slots: int, max_wait_s: float = 0.0) -> Schedule:
    """Whole batches, one after the other.

    Raises:
        RequestError: a number is out of its range; the message names the request.
    """
    _check(requests, costs, slots)
    server, queue = _Server(requests, costs), deque(_by_arrival(requests))
    while queue:
        due = [requests[i].arrival_s for i in queue][:slots]
        full = due[-1] if len(due) == slots else float("inf")
        server.now = max(server.now, due[0], min(full, due[0] + max_wait_s))
        rows: list[int] = []
        while queue and len(rows) < slots and requests[queue[0]].arrival_s <= server.now:
            rows.append(queue.popleft())
        longest = max(requests[i].n_prompt for i in rows)
        server.prefill(rows, longest, longest)
        for step in range(max(requests[i].n_new for i in rows) - 1):
            server.decode(rows, [longest + step] * len(rows))
    return server.schedule("static")


def continuous(requests: Sequence[ServingRequest], costs: StepCosts, slots: int, chunk: int | None = None) -> Schedule:
    """Requests join and leave at every step; `chunk` is the most tokens of a prefill between two steps.

    Raises:
        RequestError: as `static`.
    """
    _check(requests, costs, slots, chunk)
    server, queue = _Server(requests, costs), deque(_by_arrival(requests))
    fed: dict[int, int] = {}  # prompt tokens fed, of the requests that hold a slot; in the order of their arrival
    while queue or fed:
        while queue and len(fed) < slots and requests[queue[0]].arrival_s <= server.now:
            fed[queue.popleft()] = 0
        if not fed:
            server.now = requests[queue[0]].arrival_s
            continue
        running = [i for i in fed if fed[i] == requests[i].n_prompt]
        newcomer = next((i for i in fed if fed[i] < requests[i].n_prompt), None)
        if newcomer is not None:
            left = requests[newcomer].n_prompt - fed[newcomer]
            piece = left if chunk is None else min(chunk, left)
            server.prefill([newcomer], piece, requests[newcomer].n_prompt, fed[newcomer])
            fed[newcomer] += piece
        if running and (newcomer is None or chunk is not None):
            server.decode(running, [requests[i].n_prompt + server.n_tokens(i) - 1 for i in running])
        fed = {i: n for i, n in fed.items() if server.n_tokens(i) < requests[i].n_new}
    return server.schedule("continuous" if chunk is None else "chunked")


class _Server:
    """The clock, and what every pass did to each request."""

    def __init__(self, requests: Sequence[ServingRequest], costs: StepCosts) -> None:
        self._requests, self._costs = requests, costs
        self._tokens: list[list[float]] = [[] for _ in requests]
        self._spans: list[list[Span]] = [[] for _ in requests]
        self._n_fed = self._n_padded = 0
        self.now = 0.0

    def n_tokens(self, row: int) -> int:
        """Tokens that a request has got so far."""
        return len(self._tokens[row])

    def prefill(self, rows: Sequence[int], n: int, length: int, done: int = 0) -> None:
        """Feed `n` positions of each row's prompt of `length`, padding included, after `done`; the last give tokens."""
        began, self.now = self.now, self.now + self._costs.prefill_s(n, len(rows), done)
        self._n_fed += n * len(rows)
        for row in rows:
            self._n_padded += length - self._requests[row].n_prompt
            self._add(row, "prefill", began)
            if done + n == length:
                self._tokens[row].append(self.now)

    def decode(self, rows: Sequence[int], contexts: Sequence[int]) -> None:
        """One step of all rows; those that have all their tokens only keep their places."""
        began, self.now = self.now, self.now + self._costs.decode_s(contexts)
        self._n_fed += len(rows)
        for row in rows:
            if self.n_tokens(row) < self._requests[row].n_new:
                self._add(row, "decode", began)
                self._tokens[row].append(self.now)
            else:
                self._n_padded += 1
                self._add(row, "padding", began)

    def schedule(self, policy: str) -> Schedule:
        """All requests with their gaps named: before the prefill they waited, later they stood still for others."""
        served = tuple(
            Served(request, tuple(tokens), tuple(_without_gaps(request.arrival_s, spans)))
            for request, tokens, spans in zip(self._requests, self._tokens, self._spans, strict=True)
        )
        return Schedule(policy, served, self._n_fed, self._n_padded)

    def _add(self, row: int, kind: Kind, began: float) -> None:
        """A span until now, in one with the one before if it goes on with it."""
        spans = self._spans[row]
        if spans and spans[-1].kind == kind and spans[-1].end_s == began:
            began = spans.pop().start_s
        spans.append(Span(kind, began, self.now))


def _without_gaps(arrival_s: float, spans: Sequence[Span]) -> list[Span]:
    found: list[Span] = []
    at = arrival_s
    for span in spans:
        if span.start_s > at:
            found.append(Span("stalled" if found else "waiting", at, span.start_s))
        found.append(span)
        at = span.end_s
    return found


def _by_arrival(requests: Sequence[ServingRequest]) -> list[int]:
    return sorted(range(len(requests)), key=lambda i: requests[i].arrival_s)


def _check(requests: Sequence[ServingRequest], costs: StepCosts, slots: int, chunk: int | None = None) -> None:
    if not 1 <= len(requests) <= MAX_REQUESTS:
        raise RequestError(
            N_("There are {n} requests; 1 to {limit} can be scheduled."), n=len(requests), limit=MAX_REQUESTS
        )
    if not 1 <= slots <= costs.largest_batch:
        raise RequestError(
            N_("A batch of {n} was not measured; the slots are 1 to {limit}."), n=slots, limit=costs.largest_batch
        )
    if chunk is not None and chunk < LEAST_CHUNK:
        raise RequestError(N_("A chunk has {n} tokens; it needs at least {limit}."), n=chunk, limit=LEAST_CHUNK)
    for number, one in enumerate(requests, start=1):
        ranges = ((one.n_prompt, 1, MAX_PROMPT), (one.n_new, 1, MAX_NEW), (one.arrival_s, 0, MAX_ARRIVAL_S))
        if not all(low <= value <= high for value, low, high in ranges):
            raise RequestError(
                N_(
                    "Request {n} arrives at {arrival} s with {prompt} prompt tokens and {new} new ones; an arrival is "
                    "0 to {latest:g} s, a prompt 1 to {longest}, an answer 1 to {most} tokens."
                ),
                N_("Correct its row."),
                n=number, arrival=one.arrival_s, prompt=one.n_prompt, new=one.n_new, latest=MAX_ARRIVAL_S,
                longest=MAX_PROMPT, most=MAX_NEW,
            )  # fmt: skip
