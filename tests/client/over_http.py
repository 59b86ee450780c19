"""A store accessed over HTTP for everything a client can request, and directly for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from headway.client.address import ServerAddress
from headway.client.remote_store import RemoteStore
from headway.contract.claims import BeatReply, BeatRequest, ClaimReply, ClaimRequest, SweepReply
from headway.contract.definitions import DefineRequest, FireReply, FireRequest
from headway.contract.operate import ActReply, ActRequest
from headway.contract.outcomes import SettleRequest, Verdict
from headway.contract.signals import Signal, SignalReply
from headway.contract.store import InFlight, Sent, Store
from headway.contract.views import (
    AuditQuery,
    FlowsQuery,
    GatesQuery,
    JobQuery,
    JobsQuery,
    JobView,
    LanesQuery,
    Page,
    Query,
    StatsQuery,
    WhyQuery,
    WorkersQuery,
    WorkerView,
)
from headway.core.job import TRAIL_KEPT_MS, NewJob
from tests.client.served import Served

OPEN = "open."
"""Prefix that an open server adds to the names of workers."""

OVER_HTTP = (
    AuditQuery,
    FlowsQuery,
    GatesQuery,
    JobQuery,
    JobsQuery,
    LanesQuery,
    StatsQuery,
    WhyQuery,
    WorkersQuery,
)


class HttpStore:
    """Both ways to access one store.

    Args:
        served: the server, set to serve this store before each call.
        store: the store itself.
    """

    def __init__(self, served: Served, store: Store) -> None:
        self._remote = RemoteStore(ServerAddress(url=served.url))
        self._served = served
        self.store = store

    @property
    def remote(self) -> RemoteStore:
        self._served.use(self.store)
        return self._remote

    @property
    def runs_inline(self) -> bool:
        return False

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Sent]:
        if any(job.entry is not None for job in jobs):
            return await self.store.enqueue(jobs)
        return await self.remote.enqueue(jobs)

    async def claim(self, request: ClaimRequest) -> ClaimReply:
        return await self.remote.claim(request)

    async def settle(self, request: SettleRequest) -> list[Verdict]:
        return await self.remote.settle(request)

    async def beat(self, request: BeatRequest) -> BeatReply:
        return await self.remote.beat(request)

    async def signal(self, signal: Signal) -> SignalReply:
        return await self.remote.signal(signal)

    async def act(self, request: ActRequest) -> list[ActReply]:
        return await self.store.act(request)

    async def define(self, request: DefineRequest) -> int:
        return await self.store.define(request)

    async def release_permit(
        self, gate: str, job: str, author: str, reason: str, *, request: str = ""
    ) -> bool:
        return await self.store.release_permit(gate, job, author, reason, request=request)

    async def restore(self, jobs: Sequence[InFlight]) -> list[Sent]:
        return await self.store.restore(jobs)

    async def fire(self, request: FireRequest) -> FireReply:
        return await self.store.fire(request)

    async def sweep(self, n: int, *, keep_trail_ms: int = TRAIL_KEPT_MS) -> SweepReply:
        return await self.store.sweep(n, keep_trail_ms=keep_trail_ms)

    async def lead(self, role: str, holder: str, lease_ms: int) -> int | None:
        return await self.store.lead(role, holder, lease_ms)

    async def wait(self, lanes: Sequence[str], until_at: int | None, seen: int) -> None:
        await self.remote.wait(lanes, until_at, seen)

    async def read(self, query: Query[Any]) -> Any:
        if not isinstance(query, OVER_HTTP):
            return await self.store.read(query)
        if isinstance(query, JobsQuery) and query.worker is not None:
            query = replace(query, worker=OPEN + query.worker)
        return _as_named(await self.remote.read(query))

    async def close(self) -> None:
        await self.remote.close()
        self._served.drop(self.store)
        await self.store.close()


def _as_named(answer: Any) -> Any:
    """Return the reply with the workers' own names, which the suite uses."""
    if isinstance(answer, Page):
        return replace(answer, rows=_as_named(answer.rows))
    if isinstance(answer, tuple):
        return tuple(map(_as_named, answer))
    if isinstance(answer, WorkerView):
        return replace(answer, id=answer.id.removeprefix(OPEN))
    if isinstance(answer, JobView):
        runs = tuple(replace(run, worker=run.worker.removeprefix(OPEN)) for run in answer.runs)
        worker = answer.worker and answer.worker.removeprefix(OPEN)
        return replace(answer, runs=runs, worker=worker)
    return answer
