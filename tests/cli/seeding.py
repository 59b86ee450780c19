"""Real jobs in a real file, created through the contract."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar
from uuid import uuid4

from headway.contract.claims import Claimed, ClaimRequest
from headway.contract.outcomes import Outcome, SettleRequest, Verdict
from headway.contract.store import Store
from headway.core.job import NewJob
from headway.stores import open_store

Result = TypeVar("Result")

URL = "sqlite:///headway.db"
WORKER = "w" * 32


def with_store(work: Callable[[Store], Awaitable[Result]], url: str = URL) -> Result:
    """Run work on the store that the command finds in the working folder."""

    async def whole() -> Result:
        store = open_store(url)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(whole())


def new_job(**fields: object) -> NewJob:
    """Return a job with a new id."""
    return NewJob(**{"id": str(uuid4()), "kind": "noop", **fields})  # type: ignore[arg-type]  (any field)


def enqueue(*jobs: NewJob) -> list[str]:
    """Create jobs, and return their ids."""

    async def work(store: Store) -> list[str]:
        return [reply.id for reply in await store.enqueue(jobs)]

    return with_store(work)


def claim(*lanes: str, n: int = 1) -> list[Claimed]:
    """Start jobs, as a worker does."""

    async def work(store: Store) -> list[Claimed]:
        request = ClaimRequest(
            worker=WORKER,
            request=1,
            lanes=tuple((lane, 1) for lane in lanes),
            n=n,
            free=n,
            lease_ms=600_000,
        )
        return (await store.claim(request)).jobs

    return with_store(work)


def settle(*outcomes: Outcome) -> list[Verdict]:
    """Settle jobs that `claim` started."""

    async def work(store: Store) -> list[Verdict]:
        return await store.settle(SettleRequest(worker=WORKER, outcomes=outcomes))

    return with_store(work)
