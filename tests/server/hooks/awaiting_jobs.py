"""The outside world of these tests: jobs that await it, and webhooks sent to the server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from uuid import uuid4

import httpx

from headway.contract.claims import ClaimRequest
from headway.contract.outcomes import HandedOver, KnownAs, SettleRequest, Verdict
from headway.contract.store import Store
from headway.contract.views import JobQuery, JobView, StatsQuery
from headway.core.job import DEFAULT_POLICY, FollowUp, JobPolicy, NewJob
from tests.server.hooks.senders import Sent

AT_ONCE = 50
ALERTED = JobPolicy(on_final=FollowUp(kind="alert", lane="alerts"))
"""A job that dies creates an alert in the same step."""


async def awaiting(
    store: Store,
    *keys: str,
    tenant: str = "",
    lane: str = "calls",
    policy: JobPolicy = DEFAULT_POLICY,
) -> str:
    """Create a job, hand it over, add these keys to it, and return its reference."""
    own = str(uuid4())
    await store.enqueue([NewJob(id=own, kind="call", lane=lane, tenant=tenant, policy=policy)])
    return await begun(store, own, *keys, lane=lane)


async def begun(store: Store, own: str, *keys: str, lane: str = "calls") -> str:
    """Start a job's next run, hand it over, add these keys to it, and return its reference."""
    worker = uuid4().hex
    request = ClaimRequest(worker=worker, request=1, lanes=((lane, 1),), lease_ms=3_600_000)
    [job] = (await store.claim(request)).jobs
    assert job.id == own
    ref = f"{own}:{job.run}"
    told = [
        HandedOver(own, job.run, key=ref),
        *(KnownAs(own, job.run, key=key) for key in keys),
    ]
    verdicts = await store.settle(SettleRequest(worker=worker, outcomes=tuple(told)))
    assert Verdict.LOST not in verdicts
    return ref


async def seen(store: Store, ref: str) -> JobView:
    """Return the job of a reference."""
    job = await store.read(JobQuery(id=ref.partition(":")[0]))
    assert job is not None
    return job


async def labels(store: Store, ref: str) -> list[str]:
    """Return the labels on the job's trail, oldest first."""
    return [one.what for one in (await seen(store, ref)).trail]


async def applied(store: Store) -> tuple[int, int]:
    """Return how many signals had an effect, and how many were late."""
    totals = (await store.read(StatsQuery())).totals
    return totals.get("signals", 0), totals.get("late_signals", 0)


async def post(http: httpx.AsyncClient, sent: Sent) -> httpx.Response:
    """Send a webhook."""
    return await http.post(sent.url, content=sent.body, headers=list(sent.headers))


async def post_all(http: httpx.AsyncClient, sent: Iterable[Sent]) -> list[httpx.Response]:
    """Send webhooks concurrently."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(each: Sent) -> httpx.Response:
        async with gate:
            return await post(http, each)

    return await asyncio.gather(*map(one, sent))
