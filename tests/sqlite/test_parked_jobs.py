"""Gates that were found without parked jobs have some again as soon as a job is parked there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headway.core.state import State
from headway.stores.ledger.ledger import ReadAhead
from headway.stores.ledger.rows import JobRow
from headway.stores.sqlite import SqliteStore
from headway.stores.sqlite.ledger import SqliteLedger
from headway.testing.clock import FakeClock
from tests.plain_jobs import claim, job, jobs
from tests.sqlite.rig import options

GATE = "phone:1"


def _park(ledger: SqliteLedger, row: JobRow) -> None:
    ledger.jobs.park([row.seq], GATE, unfit=0)


def _save(ledger: SqliteLedger, row: JobRow) -> None:
    row.state, row.parked_at, row.parked_since = State.PARKED, GATE, 1
    ledger.jobs.save([row])


@pytest.mark.parametrize("park", [_park, _save])
async def test_job_parked_after_its_gate_was_read_is_found_in_the_same_step(
    store: SqliteStore, park: Callable[[SqliteLedger, JobRow], None]
) -> None:
    await store.enqueue([job(1)])

    def verb(ledger: SqliteLedger) -> None:
        jobs, (row,) = ledger.jobs, ledger.jobs.load([job(1).id]).values()
        ledger.read_ahead(ReadAhead(gates=[GATE]))
        assert jobs.parked_flows(GATE, -1, 9) == []
        assert jobs.parked_order(GATE, row.flow) is None
        assert jobs.parked_heads(GATE, row.flow, 9) == []
        park(ledger, row)
        assert jobs.parked_flows(GATE, -1, 9) == [row.flow]
        assert jobs.parked_order(GATE, row.flow) == (row.priority, row.due_at, row.seq)
        assert [head.id for head in jobs.parked_heads(GATE, row.flow, 9)] == [row.id]

    await store._decide(verb)


@pytest.mark.parametrize("own", [True, False], ids=["own", "another process"])
async def test_job_parked_by_another_step_is_found(
    store: SqliteStore, path: Path, clock: FakeClock, own: bool
) -> None:
    await store.enqueue([job(1)])
    other = store if own else SqliteStore(options(path), clock)

    def look(ledger: SqliteLedger) -> list[int]:
        ledger.read_ahead(ReadAhead(gates=[GATE]))
        return ledger.jobs.parked_flows(GATE, -1, 9)

    assert await store._decide(look) == []
    await other._decide(lambda ledger: _park(ledger, *ledger.jobs.load([job(1).id]).values()))
    assert len(await store._decide(look)) == 1
    await other.close()


async def test_jobs_held_by_several_workers_are_listed_by_id(store: SqliteStore) -> None:
    await store.enqueue(jobs(0, 6))
    for n in range(6):
        await claim(store, worker=f"w{n % 2}", request=n + 1, n=1)

    def pages(ledger: SqliteLedger) -> list[str]:
        found: list[str] = []
        while page := ledger.jobs.held(found[-1] if found else "", 2):
            found += [row.id for row in page]
        return found

    assert await store._decide(pages) == sorted(one.id for one in jobs(0, 6))
