"""Early signals, for jobs that do not await them yet: no store keeps more than a fixed number."""

from __future__ import annotations

from headway.contract.operate import ActRequest, Verb
from headway.contract.signals import Signal, SignalKind, SignalResult
from headway.core.job import JobPolicy
from headway.stores.sqlite import SqliteStore
from headway.testing.clock import FakeClock
from tests.plain_jobs import assert_clean, job


async def kept(store: SqliteStore) -> int:
    return await store._decide(lambda ledger: ledger.signals.kept_count())


async def test_signals_kept_for_a_forgotten_job_are_no_longer_counted(
    store: SqliteStore, clock: FakeClock
) -> None:
    jobs = [job(n, policy=JobPolicy(keep_ms=1_000)) for n in range(3)]
    await store.enqueue(jobs)
    # Under the job's bare id, which names none of its runs.
    for one in jobs:
        for event in ("first", "second"):
            signal = Signal(key=one.id, event=event, kind=SignalKind.FINAL)
            assert (await store.signal(signal)).answer is SignalResult.KEPT
    assert await kept(store) == 6
    ids = tuple(one.id for one in jobs[:2])
    await store.act(ActRequest(request="1", ids=ids, verb=Verb.CANCEL, author="ann"))
    clock.advance(2_000)
    await store.sweep(100)
    assert await kept(store) == 2
    await assert_clean(store)
