"""A caller without an event loop is served on its own thread, and serves others waiting with it."""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path

import pytest

from headway.contract.claims import ClaimRequest
from headway.contract.outcomes import SettleRequest, Succeeded, Verdict
from headway.contract.views import StatsQuery
from headway.core.errors import StoreUnavailable, UnknownGate
from headway.core.gates.spec import GateUse
from headway.stores.ledger.calls import deliver
from headway.stores.sqlite import SqliteStore
from headway.stores.sqlite.caches import WAKES
from headway.stores.sqlite.call_queue import AnyCall, Call, CallQueue
from tests.plain_jobs import LANE, job, jobs
from tests.sqlite.rig import door_shut, drive, number, options

LIMIT = 120


def test_every_operation_completes_without_suspending(path: Path) -> None:
    store = SqliteStore(options(path))
    assert store.runs_inline
    assert drive(store.enqueue(jobs(0, 3)))[2].created
    claimed = drive(
        store.claim(ClaimRequest(worker="w", request=1, lanes=((LANE, 1),), n=10, free=1))
    )
    outcomes = tuple(Succeeded(one.id, one.run) for one in claimed.jobs)
    assert drive(store.settle(SettleRequest(worker="w", outcomes=outcomes))) == [Verdict.DONE] * 3
    assert drive(store.read(StatsQuery())).counts == {"succeeded": 3}
    assert drive(store.sweep(10)).lost == 0
    drive(store.close())
    assert not [one for one in threading.enumerate() if one.name == "headway-writer"]


def test_error_of_a_verb_reaches_its_caller(path: Path) -> None:
    store = SqliteStore(options(path))
    with pytest.raises(UnknownGate):
        drive(store.enqueue([job(1, gates=(GateUse(name="x", template="x", shared=True),))]))
    assert drive(store.enqueue([job(1)]))[0].created
    drive(store.close())


def test_concurrent_threads_share_commits(path: Path) -> None:
    store = SqliteStore(options(path))
    drive(store.enqueue([job(0)]))
    before = number(path, WAKES)
    threads = [
        threading.Thread(target=lambda n=n: drive(store.enqueue([job(n)]))) for n in range(1, 25)
    ]
    with door_shut(path):
        for one in threads:
            one.start()
        while len(store._writer.queue._calls) < 24:
            threading.Event().wait(0.001)
    for one in threads:
        one.join(LIMIT)
    assert drive(store.read(StatsQuery())).counts == {"waiting": 25}
    assert number(path, WAKES) - before <= 3
    drive(store.close())


def test_call_that_a_caller_leaves_is_served_by_the_queues_thread() -> None:
    """The thread was woken for it while the caller had it, found nothing, and sleeps again."""
    first, own, left = (Call[None](lambda _: None) for _ in range(3))

    def serve(may_wait: bool) -> bool:
        taken = queue.take(9)
        served = taken if may_wait else [own]
        deliver(served)
        queue.put_back([call for call in taken if call not in served])
        return True

    queue = CallQueue("of-a-test", serve, lambda: None)
    queue.submit(first)
    first.wait()
    while not queue._idle:
        threading.Event().wait(0.001)
    queue._accept(left)
    queue.serve_here(own)
    assert left.done_lock is not None
    assert left.done_lock.acquire(timeout=LIMIT)
    queue.close()


def test_caller_behind_a_stopped_process_is_refused_in_time(path: Path) -> None:
    store = SqliteStore(options(path, patience_ms=200))
    with door_shut(path), pytest.raises(StoreUnavailable, match="held"):
        drive(store.enqueue([job(1)]))
    assert drive(store.enqueue([job(2)]))[0].created
    assert drive(store.read(StatsQuery())).counts == {"waiting": 1}
    drive(store.close())


def test_caller_is_refused_while_another_thread_closes_the_store(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It passed the check, but the store's thread exited before the call was queued."""
    store = SqliteStore(options(path))
    queue = store._writer.queue

    class ClosedFirst(tuple[deque[AnyCall], ...]):
        __slots__ = ()

        def __getitem__(self, rank: int) -> deque[AnyCall]:  # type: ignore[override]
            queue.close()
            return super().__getitem__(rank)

    monkeypatch.setattr(queue, "_by_rank", ClosedFirst(queue._by_rank))
    errors: list[BaseException] = []

    def send() -> None:
        try:
            drive(store.enqueue([job(1)]))
        except StoreUnavailable as error:
            errors.append(error)

    caller = threading.Thread(target=send, daemon=True)
    with door_shut(path):
        caller.start()
        caller.join(LIMIT)
    assert [str(error) for error in errors] == [
        "the store is closed (open it again; nothing was written)"
    ]
    drive(store.close())


def test_interrupted_caller_leaves_the_store_usable(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the serving thread is raised there, and nothing of the step is written."""
    store = SqliteStore(options(path))
    drive(store.enqueue([job(0)]))

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(store._writer._open().session), "fix_time", interrupted)
        with pytest.raises(KeyboardInterrupt):
            drive(store.enqueue([job(1)]))
    assert drive(store.enqueue([job(1)]))[0].created
    assert drive(store.read(StatsQuery())).counts == {"waiting": 2}
    drive(store.close())
