"""Plain work on any store: jobs without gates, and how a worker claims and settles them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headway.contract.claims import ClaimReply, ClaimRequest
from headway.contract.outcomes import SettleRequest, Succeeded, Verdict
from headway.contract.store import Store
from headway.contract.views import AuditQuery, StatsQuery
from headway.core.job import NewJob, derived_id

LANE = "main"


def job(number: int, **fields: Any) -> NewJob:
    """Return a plain job whose id is derived from its number."""
    return NewJob(id=derived_id("plain", number), kind="noop", **fields)


def jobs(first: int, count: int, **fields: Any) -> list[NewJob]:
    return [job(number, **fields) for number in range(first, first + count)]


async def claim(store: Store, worker: str = "w", request: int = 1, n: int = 1000) -> ClaimReply:
    return await store.claim(
        ClaimRequest(worker=worker, request=request, lanes=((LANE, 1),), n=n, free=n)
    )


async def succeed(
    store: Store, runs: Sequence[tuple[str, int]], worker: str = "w"
) -> list[Verdict]:
    outcomes = tuple(Succeeded(one, run) for one, run in runs)
    return await store.settle(SettleRequest(worker=worker, outcomes=outcomes))


async def count(store: Store, state: str) -> int:
    return (await store.read(StatsQuery())).counts.get(state, 0)


async def assert_clean(store: Store) -> None:
    audit = await store.read(AuditQuery())
    assert audit.differences == ()
