"""Helpers of these tests: stores in separate namespaces, and a second client to inspect them."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import redis

from headway.contract.claims import ClaimReply, ClaimRequest
from headway.contract.outcomes import SettleRequest, Succeeded, Verdict
from headway.contract.store import Clock
from headway.core.job import NewJob
from headway.stores.redis.options import parse_url
from headway.stores.redis.store import RedisStore


def new_url(url: str, **options: object) -> str:
    """Return the URL of a store that is not used yet."""
    more = "".join(f"&{name}={value}" for name, value in options.items())
    return f"{url}?namespace=t{uuid4().hex}{more}"


def opened(url: str, clock: Clock | None = None) -> RedisStore:
    """Open a store at a URL."""
    return RedisStore(parse_url(url), clock)


def admin(url: str) -> Any:
    """Return a client of another library, for use in a `with`."""
    make: Any = redis.Redis
    return make.from_url(url.partition("?")[0])


def new_job(**fields: object) -> NewJob:
    """Return a job with a new id."""
    return NewJob(id=str(uuid4()), kind="call", **fields)  # pyright: ignore[reportArgumentType]


async def claim(store: RedisStore, request: int = 1, n: int = 10) -> ClaimReply:
    """Claim from the lane main, as worker w."""
    return await store.claim(
        ClaimRequest(worker="w", request=request, lanes=(("main", 1),), n=n, free=n)
    )


async def settle(store: RedisStore, claimed: ClaimReply) -> list[Verdict]:
    """Settle everything that was claimed as succeeded."""
    outcomes = tuple(Succeeded(job.id, job.run) for job in claimed.jobs)
    return await store.settle(SettleRequest(worker="w", outcomes=outcomes))
