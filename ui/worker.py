"""The run worker: one thread a loaded model, first come first served; no Streamlit call is ever made here.

A job is a run that is recorded step by step, or any other work that needs the model; both wait in one queue. It is
shared between the page that asked for it and the thread that runs it: the page reads, the thread writes, and every
field is replaced whole. A job outlives the click, the page and the reload of its owner; when its owner has been gone
for `GRACE_S`, or silent for `SILENCE_S`, it is cancelled.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from inference.errors import N_, InferenceError, MemoryLimitError
from inference.request import GenerationRequest
from inference.trace import StepRecord, Trace

if TYPE_CHECKING:  # torch is imported by the thread that runs a model, so that a page can be shown before
    from inference.engine import Generation
    from inference.forward import Cache
    from inference.models import LoadedModel

State = Literal["queued", "loading", "running", "done", "cancelled", "failed"]
ENDED = ("done", "cancelled", "failed")
GRACE_S = 15.0
SILENCE_S = 180.0  # browsers slow the timers of a hidden tab down to one a minute

Start = Callable[["LoadedModel"], "Generation"]
# work(model, progress, cancelled): tells its share done (0 to 1), asks between its passes whether to stop, and returns
# its result, or `None` where it did stop
Work = Callable[["LoadedModel", Callable[[float], None], Callable[[], bool]], Any]


@dataclass
class Job:
    """One run on its way from the click to its trace, or one piece of work on its way to its result.

    Attributes:
        model_name: by which it is loaded, with its element type, see `ui.model_key`; empty for a run from a file.
        key: unguessable name, by which a reloaded page finds its run again.
        start: makes the generation once the model is there; given up then, because it may hold another run's cache.
        n_new: most tokens of the run; for other work, the tokens whose time it takes, for those who wait behind it.
        work: what is done instead of a run; `share` of it is done, and `result` is what came of it.
        name: of work, under which its session finds the latest one again, also after a reload.
        about: the run that the work is about, if it is about one.
        note: what is being done, as a template to translate.
        error: what went wrong, when `state` is `"failed"`; the steps up to there are in `trace`.
        generation: while it runs only, because it holds the model.
        cache: the KV cache as the run left it, for branches, until the session's next run.
        parent, left_at: the run that a branch left, and the step where it did.
        gone_since: when its owner left, or `None`.
        seen_at: when its owner's page last asked for it.
        submitted_at: when it was put in the queue.
        waited_s: seconds from then until its model worked for it: the queue, and loading; `None` till then.
    """

    owner: str
    model_name: str
    start: Start | None
    n_new: int
    key: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    state: State = "queued"
    note: str = ""
    error: InferenceError | None = None
    generation: Generation | None = None
    trace: Trace | None = None
    cache: Cache | None = None
    parent: str | None = None
    left_at: int | None = None
    work: Work | None = None
    name: str = ""
    about: weakref.ref[Trace] | None = None
    share: float = 0.0
    result: Any = None
    gone_since: float | None = None
    seen_at: float = math.inf
    submitted_at: float = math.inf
    waited_s: float | None = None
    _cancelled: bool = False

    @property
    def steps(self) -> list[StepRecord]:
        """The records so far; a copy."""
        source = self.generation or self.trace
        return [] if source is None else list(source.steps)

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.state in ENDED

    @property
    def nbytes(self) -> int:
        """Bytes of the trace and of the cache kept for branches, or of a result that counts its own `nbytes`."""
        if self.trace is None:
            return int(getattr(self.result, "nbytes", 0))
        cached = int(self.trace.steps[-1].kv.nbytes.sum()) if self.cache is not None and self.trace.steps else 0
        return self.trace.nbytes + cached

    def cancel(self) -> None:
        """End the run before its next forward pass, or take it out of the queue."""
        self._cancelled = True
        generation = self.generation
        if generation is not None:
            generation.cancel()


def asking(request: GenerationRequest, check_prompt: Callable[[int], None] = lambda n: None) -> Start:
    """The start of a plain request; `check_prompt` may refuse a prompt by its number of tokens."""

    def start(model: LoadedModel) -> Generation:
        from inference.engine import generate

        generation = generate(model, request)
        check_prompt(len(generation.prompt_ids))
        return generation

    return start


class Worker:
    """All lanes of a server.

    Args:
        load: gives a loaded model by name, telling its progress; it raises `InferenceError`.
    """

    def __init__(
        self,
        load: Callable[[str, Callable[[str], None]], LoadedModel],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._load, self._clock = load, clock
        self._lanes: dict[str, _Lane] = {}
        self._lock = threading.Lock()

    def submit(self, job: Job) -> None:
        """Put a job at the end of its model's queue."""
        self.beat(job)
        job.submitted_at = self._clock()
        with self._lock:
            lane = self._lanes.setdefault(job.model_name, _Lane(job.model_name, self._load, self._clock))
            lane.put(job)

    def ahead(self, job: Job) -> int:
        """How many jobs will be served before this one; 0 when it is being served."""
        lane = self._lanes.get(job.model_name)
        return 0 if lane is None else lane.ahead(job)

    def wait_s(self, job: Job) -> float | None:
        """Expected seconds until the job is served, from the speed of the lane so far; `None` before there is one."""
        lane = self._lanes.get(job.model_name)
        return None if lane is None else lane.wait_s(job)

    def leave(self, job: Job) -> None:
        """Its owner's page was closed, or is being reloaded."""
        job.gone_since = self._clock()

    def claim(self, job: Job, owner: str) -> None:
        """Its owner is back, perhaps as a new session."""
        job.owner = owner
        self.beat(job)

    def beat(self, job: Job) -> None:
        """A page that shows it is there, also if another one that had opened its link was closed."""
        job.seen_at, job.gone_since = self._clock(), None


class _Lane:
    """One model's queue and thread. The thread ends when the queue is empty and starts again with the next job."""

    def __init__(self, model_name: str, load: Callable[..., LoadedModel], clock: Callable[[], float]) -> None:
        self._name, self._load, self._clock = model_name, load, clock
        self._queue: deque[Job] = deque()
        self._serving: Job | None = None
        self._lock = threading.Lock()
        self._running = False
        self._seconds_a_token: float | None = None

    def put(self, job: Job) -> None:
        with self._lock:
            self._queue.append(job)
            if not self._running:
                self._running = True
                threading.Thread(target=self._serve, name=f"runs of {self._name}", daemon=True).start()

    def ahead(self, job: Job) -> int:
        with self._lock:
            waiting = list(self._queue)
            serving = self._serving
        return waiting.index(job) + (serving is not None) if job in waiting else 0

    def wait_s(self, job: Job) -> float | None:
        with self._lock:
            before = [j for j in self._queue if j is not job][: self._queue.index(job)] if job in self._queue else []
            serving = self._serving
        if self._seconds_a_token is None:
            return None
        left = 0 if serving is None else max(0.0, serving.n_new * (1 - serving.share) - len(serving.steps))
        return self._seconds_a_token * (left + sum(j.n_new for j in before))

    def _serve(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self._running, self._serving = False, None
                    return
                self._serving = job = self._queue.popleft()
            self._run(job)

    def _run(self, job: Job) -> None:
        """Serve one job; whatever happens becomes its state, so that the next one is served."""
        try:
            if self._abandoned(job):
                job.state = "cancelled"
                return
            job.state = "loading"
            model = self._load(self._name, lambda text: setattr(job, "note", text))
            job.waited_s = self._clock() - job.submitted_at
            if job.work is not None:
                self._work(job, job.work, model)
            else:
                self._generate(job, model)
        except InferenceError as error:
            job.error, job.state = _bare(error), "failed"
        except MemoryError:
            job.error = MemoryLimitError(N_("There is not enough memory for this run."), N_("Use a shorter prompt."))
            job.state = "failed"
        except Exception as error:  # noqa: BLE001 (a fault must not stop the queue; it is shown with its own words)
            job.error, job.state = _unexpected(error), "failed"

    def _generate(self, job: Job, model: LoadedModel) -> None:
        start, job.start = job.start, None
        assert start is not None  # a job is served once
        job.generation = generation = start(model)
        job.state, job.note = "running", ""
        began = self._clock()
        try:
            for _ in generation:
                if self._abandoned(job):
                    generation.cancel()
        finally:
            job.cache = generation.cache
            generation.close()
            job.trace, job.generation = generation.trace(), None
            if generation.steps:
                self._seconds_a_token = (self._clock() - began) / len(generation.steps)
        job.state = "cancelled" if job.trace.finish.reason == "cancelled" else "done"

    def _work(self, job: Job, work: Work, model: LoadedModel) -> None:
        job.work, job.state, job.note = None, "running", ""
        job.result = work(model, lambda share: setattr(job, "share", share), lambda: self._abandoned(job))
        job.state = "cancelled" if job.result is None else "done"

    def _abandoned(self, job: Job) -> bool:
        now = self._clock()
        gone = job.gone_since is not None and now - job.gone_since > GRACE_S
        return job._cancelled or gone or now - job.seen_at > SILENCE_S


def _bare(error: InferenceError) -> InferenceError:
    """The error without the frames that it passed through: they would keep the model and its tensors alive."""
    error.__traceback__ = error.__cause__ = error.__context__ = None
    return error


def _unexpected(error: Exception) -> InferenceError:
    kind: Any = type(error).__name__
    return InferenceError(
        N_("The run stopped with a fault of the program ({kind}: {reason})."),
        N_("Your earlier runs are kept; try again, or report it."),
        kind=kind,
        reason=str(error)[:300],
    )
