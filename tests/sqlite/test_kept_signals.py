"""Early signals, for jobs that do not await them yet: no store keeps more than a fixed number."""

from __future__ import annotations

from headway.contract.operate import ActRequest, Verb
from headway.contract.outcomes import HandedOver, SettleRequest
from headway.contract.signals import Signal, SignalKind, SignalResult
from headway.core.job import JobPolicy
from headway.stores.ledger.rows import SignalRow
from headway.stores.sqlite import SqliteStore
from headway.stores.sqlite.ledger import SqliteLedger
from headway.testing.clock import FakeClock
from tests.plain_jobs import assert_clean, claim, job


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


async def test_forgotten_job_leaves_no_row(store: SqliteStore, clock: FakeClock) -> None:
    await store.enqueue([job(1, key="k", policy=JobPolicy(keep_ms=1_000, key_for_ms=1_000))])
    (run,) = (await claim(store)).jobs
    handed = HandedOver(run.id, run.run, key="call", timeout_ms=60_000)
    await store.settle(SettleRequest(worker="w", outcomes=(handed,)))
    await store.signal(Signal(key="call", event="done", kind=SignalKind.FINAL))
    clock.advance(2_000)
    await store.sweep(100)

    def left(ledger: SqliteLedger) -> dict[str, int]:
        db = ledger.session.db
        tables = ("job", "run", "dedupe", "known", "event")
        return {one: db.execute(f"SELECT count(*) FROM {one}").get for one in tables}  # noqa: S608

    assert not any((await store._decide(left)).values())


async def test_keys_and_events_are_paged_without_gaps_or_repeats(store: SqliteStore) -> None:
    events = [(scope, event) for scope in ("a", "b", "c") for event in ("1", "2")]

    def fill(ledger: SqliteLedger) -> None:
        for scope, event in events:
            ledger.signals.save(SignalRow(scope, event, scope, 1, None, b""))
            ledger.signals.make_known(scope + event, "job", 1)

    def pages(ledger: SqliteLedger) -> tuple[list[str], list[tuple[str, str]]]:
        keys: list[str] = []
        while page := ledger.signals.all_known(keys[-1] if keys else "", 2):
            keys += [key for key, _, _ in page]
        found: list[tuple[str, str]] = []
        while rows := ledger.signals.all_received(found[-1] if found else ("", ""), 3):
            found += [(row.scope, row.event) for row in rows]
        return keys, found

    await store._decide(fill)
    assert await store._decide(pages) == ([scope + event for scope, event in events], events)
