"""The run worker: order, cancelling, leaving, faults; driven by events, never by sleeping."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable

import pytest

from inference import GenerationRequest, SamplingParams
from inference.engine import generate
from inference.errors import MemoryLimitError, ModelError
from tests.scripted import scripted, tiny_model
from ui.models import MAX_LOADED, ModelStore
from ui.shelf import Shelf
from ui.worker import GRACE_S, SILENCE_S, Job, Worker, asking

REQUEST = GenerationRequest(prompt="ab", max_new_tokens=6, sampling=SamplingParams(greedy=True), ignore_eos=True)


class Gate:
    """Holds a run before each forward pass until it is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Semaphore(0), threading.Semaphore(0)
        self.model = scripted(self._wait)

    def _wait(self, call, logits):
        self.reached.release()
        assert self.opened.acquire(timeout=20)
        return logits

    def step(self, times: int = 1) -> None:
        """Let the run make `times` passes, each once it waits for it."""
        for _ in range(times):
            self.wait()
            self.opened.release()

    def wait(self) -> None:
        assert self.reached.acquire(timeout=20)

    def open(self) -> None:
        for _ in range(100):
            self.opened.release()


def job(owner: str = "one", start=None, model: str = "m") -> Job:
    return Job(owner, model, start or asking(REQUEST), REQUEST.max_new_tokens)


def ended(*jobs: Job) -> None:
    """Wait until the jobs have ended."""
    until(lambda: all(j.ended for j in jobs))


def until(true: Callable[[], bool]) -> None:
    for _ in range(2000):
        if true():
            return
        threading.Event().wait(0.01)
    pytest.fail("nothing happened in 20 s")


def test_a_job_runs_to_its_trace_and_its_steps_can_be_read_meanwhile() -> None:
    gate = Gate()
    worker = Worker(lambda name, say: gate.model)
    mine = job()
    worker.submit(mine)
    gate.step(2)
    gate.wait()
    assert (mine.state, mine.trace) == ("running", None)
    assert [s.index for s in mine.steps] == [0, 1]
    gate.open()
    ended(mine)
    assert (mine.state, len(mine.trace.steps), mine.trace.finish.reason) == ("done", 6, "length")


def test_jobs_are_served_first_come_first_served_with_their_place_in_the_queue() -> None:
    gate, order = Gate(), []
    worker = Worker(lambda name, say: gate.model)

    def noting(name: str):
        def start(model):
            order.append(name)
            return generate(model, REQUEST)

        return start

    jobs = [job(name, noting(name)) for name in ("first", "second", "third")]
    for one in jobs:
        worker.submit(one)
    gate.wait()
    assert [worker.ahead(one) for one in jobs] == [0, 1, 2]
    assert worker.wait_s(jobs[2]) is None  # no run has shown a speed yet
    gate.open()
    ended(*jobs)
    assert order == ["first", "second", "third"]
    assert worker.ahead(jobs[2]) == 0


def test_the_expected_wait_is_the_tokens_ahead_at_the_speed_so_far() -> None:
    gate, now = Gate(), [0.0]
    worker = Worker(lambda name, say: gate.model, clock=lambda: now[0])
    first = job()
    worker.submit(first)
    gate.wait()
    now[0] = 12.0  # 6 tokens in 12 s
    gate.open()
    ended(first)
    held = Gate()
    gate.model = held.model
    second, third, fourth = job(), job(), job()
    for one in (second, third, fourth):
        worker.submit(one)
    held.step(2)
    held.wait()
    assert worker.wait_s(fourth) == pytest.approx(2.0 * (4 + 6))
    held.open()
    ended(second, third, fourth)


def test_a_queued_job_can_be_cancelled_before_it_begins_and_a_running_one_keeps_its_steps() -> None:
    gate = Gate()
    worker = Worker(lambda name, say: gate.model)
    running, queued = job(), job()
    worker.submit(running)
    worker.submit(queued)
    gate.step()
    gate.wait()
    queued.cancel()
    running.cancel()
    gate.open()
    ended(running, queued)
    assert (running.state, queued.state, queued.trace) == ("cancelled", "cancelled", None)
    assert running.trace.finish.reason == "cancelled"
    assert 1 <= len(running.trace.steps) <= 2


def test_a_closed_tab_cancels_after_a_grace_and_a_reload_within_it_does_not() -> None:
    gate, now = Gate(), [0.0]
    worker = Worker(lambda name, say: gate.model, clock=lambda: now[0])
    gone, back = job("gone"), job("back")
    worker.submit(gone)
    gate.step()
    gate.wait()
    worker.leave(gone)
    now[0] = GRACE_S + 1
    gate.open()
    ended(gone)
    assert gone.state == "cancelled"
    worker.submit(back)
    worker.leave(back)
    now[0] += 1
    worker.claim(back, "back again")
    now[0] += GRACE_S + 1
    gate.open()
    ended(back)
    assert (back.state, back.owner) == ("done", "back again")


def test_a_second_page_that_opened_the_link_and_was_closed_does_not_cancel_the_first_ones_run() -> None:
    gate, now = Gate(), [0.0]
    worker = Worker(lambda name, say: gate.model, clock=lambda: now[0])
    mine = job("first")
    worker.submit(mine)
    gate.step()
    gate.wait()
    worker.claim(mine, "second")
    worker.leave(mine)
    now[0] = GRACE_S - 1
    worker.beat(mine)
    now[0] += GRACE_S
    gate.open()
    ended(mine)
    assert mine.state == "done"


def test_a_page_that_falls_silent_cancels_its_run_and_one_that_is_heard_does_not() -> None:
    gate, now = Gate(), [0.0]
    worker = Worker(lambda name, say: gate.model, clock=lambda: now[0])
    heard, silent = job("heard"), job("silent")
    worker.submit(heard)
    gate.step()
    gate.wait()
    now[0] = SILENCE_S - 1
    worker.beat(heard)
    now[0] += SILENCE_S - 1
    gate.open()
    ended(heard)
    assert (heard.state, len(heard.trace.steps)) == ("done", 6)
    held = Gate()
    gate.model = held.model
    worker.submit(silent)
    held.step()
    held.wait()
    now[0] += SILENCE_S + 1
    held.open()
    ended(silent)
    assert (silent.state, silent.trace.finish.reason) == ("cancelled", "cancelled")


def test_a_failed_job_says_why_and_the_next_one_is_served() -> None:
    def load(name, say):
        if name == "missing":
            raise ModelError("There is no such model.")
        return tiny_model()

    worker = Worker(load)
    bad, good = job(model="missing"), job()
    broken = job(start=lambda model: 1 / 0)
    after = job()
    for one in (bad, good, broken, after):
        worker.submit(one)
    ended(bad, good, broken, after)
    assert (bad.state, str(bad.error)) == ("failed", "There is no such model.")
    assert (good.state, after.state) == ("done", "done")
    assert "ZeroDivisionError: division by zero" in str(broken.error)


def test_an_error_in_the_middle_keeps_the_steps_before_it() -> None:
    def script(call, logits):
        return logits if call < 3 else logits * float("nan")

    worker, mine = Worker(lambda name, say: scripted(script)), job()
    worker.submit(mine)
    ended(mine)
    assert (mine.state, len(mine.trace.steps), mine.trace.finish.reason) == ("failed", 3, "error")
    assert str(mine.error).startswith("Step 3:")


@pytest.mark.parametrize("fails_at", [None, 2], ids=["done", "failed"])
def test_an_ended_job_keeps_its_trace_and_lets_the_model_go(fails_at: int | None) -> None:
    models = [scripted(lambda call, logits: logits * float("nan") if call == fails_at else logits)]
    alive = weakref.ref(models[0].forward)
    worker, mine = Worker(lambda name, say: models[0]), job()
    worker.submit(mine)
    ended(mine)
    assert (mine.state, len(mine.steps)) == (("done", 6) if fails_at is None else ("failed", 2))
    models.clear()
    mine.cache = None
    until(lambda: all(thread.name != "runs of m" for thread in threading.enumerate()))
    gc.collect()
    assert alive() is None


def of_work(work, n_new: int = 4) -> Job:
    return Job("one", "m", None, n_new, work=work)


def test_other_work_waits_in_the_queue_of_its_model_and_gives_its_result() -> None:
    gate, order = Gate(), []
    worker = Worker(lambda name, say: gate.model)

    def work(model, progress, cancelled):
        order.append((model is gate.model, running.state))
        progress(0.5)
        return "what came of it"

    running, mine = job(), of_work(work)
    worker.submit(running)
    worker.submit(mine)
    gate.wait()
    assert (worker.ahead(mine), mine.state, order) == (1, "queued", [])
    gate.open()
    ended(running, mine)
    assert order == [(True, "done")]
    assert (mine.state, mine.result, mine.share, mine.trace) == ("done", "what came of it", 0.5, None)


def test_work_that_is_cancelled_stops_at_its_next_look_and_has_no_result() -> None:
    looked, go = threading.Semaphore(0), threading.Semaphore(0)

    def work(model, progress, cancelled):
        for _ in range(100):
            if cancelled():
                return None
            looked.release()
            assert go.acquire(timeout=20)
        return "all of it"

    worker, mine = Worker(lambda name, say: tiny_model()), of_work(work)
    worker.submit(mine)
    assert looked.acquire(timeout=20)
    mine.cancel()
    go.release()
    ended(mine)
    assert (mine.state, mine.result, mine.error) == ("cancelled", None, None)


def test_work_that_fails_says_why_and_the_next_run_is_served() -> None:
    def work(model, progress, cancelled):
        raise ModelError("This model cannot do that.")

    worker, bad, good = Worker(lambda name, say: tiny_model()), of_work(work), job()
    worker.submit(bad)
    worker.submit(good)
    ended(bad, good)
    assert (bad.state, str(bad.error), bad.result) == ("failed", "This model cannot do that.", None)
    assert good.state == "done"


def test_the_expected_wait_behind_work_shrinks_with_its_share_done() -> None:
    now, reached, go = [0.0], threading.Semaphore(0), threading.Semaphore(0)
    gate = Gate()
    worker = Worker(lambda name, say: gate.model, clock=lambda: now[0])
    first = job()
    worker.submit(first)
    gate.wait()
    now[0] = 12.0  # 6 tokens in 12 s
    gate.open()
    ended(first)

    def work(model, progress, cancelled):
        progress(0.25)
        reached.release()
        assert go.acquire(timeout=20)
        return True

    mine, behind = of_work(work, n_new=8), job()
    worker.submit(mine)
    worker.submit(behind)
    assert reached.acquire(timeout=20)
    assert worker.wait_s(behind) == pytest.approx(2.0 * 8 * 0.75)
    go.release()
    ended(mine, behind)


def test_work_leaves_the_cache_of_the_run_that_is_on_show_and_counts_the_bytes_of_its_result() -> None:
    class Result:
        nbytes = 1000

    worker, shelf = Worker(lambda name, say: tiny_model()), Shelf()
    run, mine = job(), of_work(lambda model, progress, cancelled: Result())
    for one in (run, mine):
        shelf.put(one)
        worker.submit(one)
    ended(run, mine)
    assert run.cache is not None
    assert mine.nbytes == 1000


def test_two_models_have_a_lane_each() -> None:
    gate = Gate()
    worker = Worker(lambda name, say: gate.model if name == "slow" else tiny_model())
    slow, fast = job(model="slow"), job(model="fast")
    worker.submit(slow)
    gate.wait()
    worker.submit(fast)
    ended(fast)
    assert not slow.ended
    gate.open()
    ended(slow)


def test_at_most_two_models_stay_loaded_and_the_least_recently_used_goes() -> None:
    loaded: list[str] = []
    store = ModelStore(lambda name, progress: loaded.append(name) or name)
    for name in ("a", "b", "a", "c", "a", "b"):
        store.get(name, print)
    assert MAX_LOADED == 2
    assert loaded == ["a", "b", "c", "b"]


def test_a_model_that_does_not_fit_beside_another_gets_its_room() -> None:
    def load(name, progress):
        if name == "large" and store.loaded("small"):
            raise MemoryLimitError("no room")
        return name

    store = ModelStore(load)
    store.get("small", print)
    assert store.get("large", print) == "large"
    assert store.loaded("small") is None
    with pytest.raises(MemoryLimitError):
        ModelStore(lambda name, progress: (_ for _ in ()).throw(MemoryLimitError("never"))).get("x", print)


def test_traces_past_the_limits_of_a_session_or_of_all_are_given_back_oldest_first() -> None:
    worker = Worker(lambda name, say: tiny_model())
    jobs = [job(owner) for owner in ("one", "one", "two", "one")]
    for one in jobs:
        worker.submit(one)
    ended(*jobs)
    size = jobs[0].nbytes
    shelf = Shelf(session_bytes=2 * size, all_bytes=10 * size)
    for one in jobs:
        shelf.put(one)
    assert shelf.of("one") == [jobs[1], jobs[3]]
    assert shelf.find(jobs[2].key) is jobs[2]
    shelf = Shelf(session_bytes=10 * size, all_bytes=2 * size)
    for one in jobs:
        shelf.put(one)
    assert shelf.of("one") == [jobs[3]]
    shelf.drop(jobs[3])
    assert shelf.of("one") == []


def test_the_traces_of_a_closed_tab_are_given_back_after_the_grace_but_not_those_of_a_reload() -> None:
    now = [0.0]
    worker, shelf = Worker(lambda name, say: tiny_model(), clock=lambda: now[0]), Shelf()
    gone, back, there = job("gone"), job("back"), job("there")
    for one in (gone, back, there):
        worker.submit(one)
        shelf.put(one)
    ended(gone, back, there)
    worker.leave(gone)
    worker.leave(back)
    worker.claim(back, "back again")
    shelf.sweep(GRACE_S)
    assert shelf.find(gone.key) is gone
    shelf.sweep(GRACE_S + 1)
    assert [shelf.find(one.key) for one in (gone, back, there)] == [None, back, there]


def test_only_the_newest_run_of_a_session_keeps_its_cache_for_branches() -> None:
    worker, shelf = Worker(lambda name, say: tiny_model()), Shelf()
    jobs = [job(), job(), job("other")]
    for one in jobs:
        worker.submit(one)
        ended(one)
        shelf.put(one)
    assert [one.cache is not None for one in jobs] == [False, True, True]
    assert jobs[1].nbytes == jobs[1].trace.nbytes + int(jobs[1].trace.kv.nbytes[-1].sum())


def test_a_job_knows_how_long_it_waited_for_its_model_queue_and_loading_together() -> None:
    gate, now = Gate(), [100.0]

    def load(name, say):
        now[0] += 3.0
        return gate.model

    worker = Worker(load, clock=lambda: now[0])
    first, second = job(), job()
    worker.submit(first)
    gate.wait()
    assert (first.waited_s, second.waited_s) == (3.0, None)
    worker.submit(second)
    now[0] += 20.0
    gate.open()
    ended(first, second)
    assert second.waited_s == 23.0  # 20 s behind the first, and loading again
