"""The jobs of a server and their traces, bounded in bytes a session and in all; the oldest go first."""

from __future__ import annotations

import threading
from collections import OrderedDict

from ui.worker import GRACE_S, Job

SESSION_BYTES = 2**30
ALL_BYTES = 4 * 2**30


class Shelf:
    """Jobs by key.

    Args:
        session_bytes, all_bytes: limits for the traces of one session and of all.
    """

    def __init__(self, session_bytes: int = SESSION_BYTES, all_bytes: int = ALL_BYTES) -> None:
        self._session_bytes, self._all_bytes = session_bytes, all_bytes
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, job: Job) -> None:
        """Keep a job; ended ones past the limits are given back, and so are the caches of the session's older runs."""
        with self._lock:
            for other in self._jobs.values():
                if other.owner == job.owner and job.work is None:
                    other.cache = None
            self._jobs[job.key] = job
            self._trim([j for j in self._jobs.values() if j.owner == job.owner], self._session_bytes, keep=job)
            self._trim(list(self._jobs.values()), self._all_bytes, keep=job)

    def find(self, key: str) -> Job | None:
        """The job of a key, if it is still here."""
        return self._jobs.get(key)

    def of(self, owner: str) -> list[Job]:
        """A session's jobs, oldest first."""
        with self._lock:
            return [job for job in self._jobs.values() if job.owner == owner]

    def drop(self, job: Job) -> None:
        """Give a job and its trace back."""
        with self._lock:
            self._jobs.pop(job.key, None)

    def sweep(self, now: float) -> None:
        """Give back the ended jobs whose owner has been gone for longer than the grace at time `now`."""
        with self._lock:
            for job in list(self._jobs.values()):
                if job.ended and job.gone_since is not None and now - job.gone_since > GRACE_S:
                    del self._jobs[job.key]

    def _trim(self, jobs: list[Job], limit: int, keep: Job) -> None:
        total = sum(job.nbytes for job in jobs)
        for job in jobs:
            if total <= limit:
                return
            if job.ended and job is not keep:
                total -= job.nbytes
                del self._jobs[job.key]
