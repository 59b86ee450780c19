"""On servers, too, an operation does the same work with many jobs as with a few."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import psycopg
import pytest

from headway.contract.claims import ClaimRequest
from headway.contract.definitions import CloseGate, DeclareGate, DefineRequest
from headway.contract.outcomes import SettleRequest, Succeeded
from headway.contract.store import Store
from headway.contract.views import FlowsQuery, StatsQuery
from headway.core.gates.slots import Slots
from headway.core.job import NewJob, derived_id
from headway.stores import open_store
from headway.testing.jobs import use_of
from tests.redis.admin import admin, new_url
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database
from tests.servers.redis import GivenRedis, RedisServer

FEW = 1_000
MANY = [
    pytest.param(10_000),
    pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
]
AT_ONCE = 20
PARKED, FLOWS = 300, 60
LANE = "calls"
_TURNS = count(1)
_NUMBERS = count(1)

_OTHERS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""
# Our own backends report their counts on request; there is no need to wait for them.
_READ = """
SELECT coalesce(sum(seq_tup_read), 0)::bigint, coalesce(sum(idx_tup_fetch), 0)::bigint
FROM pg_stat_user_tables WHERE relname = 'job'
"""


async def add(store: Store, n: int, due_at: int | None = None) -> None:
    """Add jobs to one flow, scheduled for a distant day if requested."""
    for begin in range(0, n, 1_000):
        jobs = [
            NewJob(id=derived_id("deep", next(_NUMBERS)), kind="dial", lane=LANE, due_at=due_at)
            for _ in range(min(1_000, n - begin))
        ]
        await store.enqueue(jobs)


async def work(store: Store) -> None:
    """Claim jobs and settle them."""
    reply = await store.claim(
        ClaimRequest(worker="w", request=next(_TURNS), lanes=((LANE, 1),), n=AT_ONCE, free=AT_ONCE)
    )
    assert len(reply.jobs) == AT_ONCE
    outcomes = tuple(Succeeded(job.id, job.run) for job in reply.jobs)
    await store.settle(SettleRequest(worker="w", outcomes=outcomes))


async def read_flow(store: Store) -> None:
    """List the jobs waiting in the lane."""
    (flow,) = (await store.read(FlowsQuery(lane=LANE, first=AT_ONCE))).rows
    assert len(flow.first) == AT_ONCE


async def cost(
    store: Store,
    statistics: Callable[[], Awaitable[dict[str, int]]],
    once: Callable[[Store], Awaitable[None]] = work,
) -> dict[str, int]:
    """Return what ten claims and settlements, or ten reads, add to the server's counts."""
    for _ in range(10):
        await once(store)  # cached data is not queried again
    before = await statistics()
    for _ in range(10):
        await once(store)
    after = await statistics()
    return {name: after[name] - before.get(name, 0) for name in after}


def _wait_for_others(db: psycopg.Connection[Any]) -> None:
    """Return when all other backends of the database have exited, and so reported their counts."""
    for _ in range(3_000):
        row = db.execute(_OTHERS).fetchone()
        if row is None or not row[0]:
            return
        db.execute("SELECT pg_sleep(0.01)")
    pytest.fail("a backend of the store never ended")


@pytest.mark.parametrize("many", MANY)
async def test_claims_on_postgresql_read_no_more_rows_beside_many_jobs(
    fast_postgres_server: PostgresServer | GivenPostgres, many: int
) -> None:
    with fresh_database(fast_postgres_server.url) as url:

        async def statistics() -> dict[str, int]:
            # A backend's counts are certain to be reported when it exits.
            nonlocal store
            await store.close()
            with psycopg.connect(url, autocommit=True) as db:
                _wait_for_others(db)
                row = db.execute(_READ).fetchone()
            assert row is not None
            store = open_store(url)
            return {"scanned": row[0], "fetched": row[1]}

        class Reopened:
            """The store that is currently open."""

            def __getattr__(self, name: str) -> Any:
                return getattr(store, name)

        store = open_store(url)
        now: Any = Reopened()
        await add(now, FEW)
        few, few_flow_reads = await cost(now, statistics), await cost(now, statistics, read_flow)
        await add(now, many)
        await add(now, many, due_at=2**41)
        beside, flow_reads = await cost(now, statistics), await cost(now, statistics, read_flow)
        await store.close()
    assert beside["scanned"] == 0
    assert few["fetched"] > 0
    # Ten or a hundred times the jobs; a step may repeat a query for data it had cached, and a step
    # that conflicted with another is retried.
    assert beside["fetched"] <= 2.5 * few["fetched"]
    assert flow_reads["scanned"] == 0
    assert flow_reads["fetched"] <= 2.5 * few_flow_reads["fetched"]


@pytest.mark.parametrize("many", MANY)
async def test_claims_on_redis_call_no_more_commands_beside_many_jobs(
    redis_server: RedisServer | GivenRedis, many: int
) -> None:
    store = open_store(new_url(redis_server.url))
    with admin(redis_server.url) as other:

        async def statistics() -> dict[str, int]:
            stats = other.info("commandstats")
            return {
                name: one["calls"]
                for name, one in stats.items()
                if name not in {"cmdstat_info", "cmdstat_publish"}
            }

        await add(store, FEW)
        few, few_flow_reads = (
            await cost(store, statistics),
            await cost(store, statistics, read_flow),
        )
        await add(store, many)
        await add(store, many, due_at=2**41)
        beside, flow_reads = await cost(store, statistics), await cost(store, statistics, read_flow)
    await store.close()
    assert few["cmdstat_evalsha"] == 20
    assert beside["cmdstat_evalsha"] == 20
    # Counts are aggregated and folded occasionally, and jobs are stored in buckets that fill up.
    assert sum(beside.values()) <= 1.1 * sum(few.values()) + 20
    assert sum(flow_reads.values()) <= 1.1 * sum(few_flow_reads.values()) + 20


async def test_one_of_many_flows_parks_its_jobs_in_few_rounds_on_redis(
    redis_server: RedisServer | GivenRedis,
) -> None:
    store = open_store(new_url(redis_server.url))
    phone = Slots("phone:{phone}", 1)
    items = (DeclareGate(spec=phone), CloseGate(name="phone:busy"))
    await store.define(DefineRequest(items=items, author="test"))
    numbers = [0] * PARKED + [*range(1, FLOWS)] * 20
    jobs = [
        NewJob(
            id=derived_id("parked", n),
            kind="dial",
            lane=LANE,
            tenant=f"t{number}",
            gates=(use_of(phone, phone=str(number or "busy")),),
        )
        for n, number in enumerate(numbers)
    ]
    for begin in range(0, len(jobs), 1_000):
        await store.enqueue(jobs[begin : begin + 1_000])
    with admin(redis_server.url) as other:
        before = other.info("commandstats")
        claim = ClaimRequest(worker="w", request=1, lanes=((LANE, 1),), n=1, free=1)
        assert len((await store.claim(claim)).jobs) == 1
        after = other.info("commandstats")
    assert (await store.read(StatsQuery())).counts["parked"] == PARKED
    await store.close()
    calls = {
        name: one["calls"] - before.get(name, {"calls": 0})["calls"] for name, one in after.items()
    }
    # Each round reads four times as many heads of this flow, of the others a few more.
    assert sum(calls.values()) <= 900, calls
