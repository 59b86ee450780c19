"""A process's name caches are bounded, and jobs of any number of tenants are kept apart."""

from __future__ import annotations

import gc
from uuid import uuid4

import psycopg
import pytest

from headway.contract.claims import ClaimRequest
from headway.contract.definitions import DeclareGate, DefineRequest
from headway.contract.outcomes import SettleRequest, Succeeded
from headway.contract.views import JobsQuery
from headway.core.gates.slots import Slots
from headway.core.job import NewJob
from headway.stores import open_store
from headway.stores.ledger.rows import ClosedPeriod
from headway.stores.postgres.options import parse_url
from headway.stores.sql.interned import Interned
from headway.testing.jobs import use_of
from tests.servers.stores import NewUrl

TENANTS = 40
MOST = 8


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_cache_of_flows_is_bounded_and_loses_nothing(
    kind: str, new_url: NewUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.stores.sql.interned.MOST_KNOWN", MOST)
    monkeypatch.setattr("headway.stores.postgres.registry.AHEAD", MOST // 4)
    store = open_store(new_url(kind))
    made: dict[str, str] = {}
    for n in 2 * list(range(TENANTS)):
        job = NewJob(id=str(uuid4()), kind="k", lane="a", tenant=f"t{n}")
        await store.enqueue([job])
        made[job.id] = job.tenant
    claim = ClaimRequest(worker="w" * 32, request=1, lanes=(("a", 1),), n=200, free=200)
    assert {job.id: job.tenant for job in (await store.claim(claim)).jobs} == made
    rows = (await store.read(JobsQuery(limit=200))).rows
    assert {job.id: job.tenant for job in rows} == made
    cached = [len(one._values) for one in gc.get_objects() if isinstance(one, Interned)]
    assert 0 < max(cached) <= MOST
    await store.close()


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgresql"])
async def test_remembered_waits_at_closed_gates_are_bounded(
    kind: str, new_url: NewUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.stores.ledger.lane_claim.MOST_CLOSED_PERIODS", MOST)
    store = open_store(new_url(kind))
    line = Slots("line", 1)
    await store.define(DefineRequest(items=(DeclareGate(spec=line),), author="ann"))
    gates = (use_of(line),)
    jobs = [
        NewJob(id=str(uuid4()), kind="k", lane="a", tenant=f"t{n}", gates=gates)
        for n in range(TENANTS)
    ]
    await store.enqueue(jobs)
    started: set[str] = set()
    for n in range(1, TENANTS + 1):
        claim = ClaimRequest(worker="w" * 32, request=n, lanes=(("a", 1),), n=9, free=9)
        (job,) = (await store.claim(claim)).jobs
        started.add(job.id)
        await store.settle(SettleRequest(worker="w" * 32, outcomes=(Succeeded(job.id, job.run),)))
    assert started == {job.id for job in jobs}
    periods = [one for one in gc.get_objects() if isinstance(one, dict) and _holds_spells(one)]
    assert 0 < max(map(len, periods)) <= MOST
    await store.close()


def _holds_spells(found: dict[object, object]) -> bool:
    return isinstance(next(iter(found.values()), None), ClosedPeriod)


async def test_known_flows_use_up_no_numbers(new_url: NewUrl) -> None:
    url = new_url("postgresql")
    for tenants in (TENANTS, TENANTS + 1):
        # As another process would: it knows no flow yet.
        store = open_store(url)
        jobs = [NewJob(id=str(uuid4()), kind="k", lane="a", tenant=f"t{n}") for n in range(tenants)]
        await store.enqueue(jobs)
        await store.close()
    options = parse_url(url)
    asked = f'SELECT count(*), max(no) FROM "{options.namespace}".flow'  # noqa: S608
    with psycopg.connect(options.conninfo) as db:
        row = db.execute(asked.encode()).fetchone()
    assert row == (TENANTS + 1, TENANTS + 1)
