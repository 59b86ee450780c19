"""A connection to a store that can be cut: what a process that was killed has left of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

from headway.contract.claims import BeatReply, BeatRequest, ClaimReply, ClaimRequest
from headway.contract.definitions import DefineRequest, FireReply, FireRequest
from headway.contract.enqueue import Enqueued, InFlight
from headway.contract.operate import ActReply, ActRequest
from headway.contract.outcomes import SettleRequest, Verdict
from headway.contract.signals import Signal, SignalReply
from headway.contract.store import Store
from headway.contract.sweeps import SweepReply
from headway.contract.views import Query
from headway.core.job import TRAIL_KEPT_MS, NewJob

Reply = TypeVar("Reply")


class Severed:
    """A store behind a connection; once it is cut, every call is cancelled.

    Args:
        inner: the store that does the work.
    """

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self._cut = False

    @property
    def is_cut(self) -> bool:
        """Whether the process behind it is dead."""
        return self._cut

    @property
    def runs_inline(self) -> bool:
        """As the store."""
        return self._inner.runs_inline

    def cut(self) -> None:
        """From now on, nothing that its process does has an effect."""
        self._cut = True

    def _through(self) -> Store:
        if self._cut:
            raise asyncio.CancelledError
        return self._inner

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """As the store, unless cut."""
        return await self._through().enqueue(jobs)

    async def claim(self, request: ClaimRequest) -> ClaimReply:
        """As the store, unless cut."""
        return await self._through().claim(request)

    async def settle(self, request: SettleRequest) -> list[Verdict]:
        """As the store, unless cut."""
        return await self._through().settle(request)

    async def beat(self, request: BeatRequest) -> BeatReply:
        """As the store, unless cut."""
        return await self._through().beat(request)

    async def signal(self, signal: Signal) -> SignalReply:
        """As the store, unless cut."""
        return await self._through().signal(signal)

    async def restore(self, jobs: Sequence[InFlight]) -> list[Enqueued]:
        """As the store, unless cut."""
        return await self._through().restore(jobs)

    async def act(self, request: ActRequest) -> list[ActReply]:
        """As the store, unless cut."""
        return await self._through().act(request)

    async def define(self, request: DefineRequest) -> int:
        """As the store, unless cut."""
        return await self._through().define(request)

    async def release_permit(self, gate: str, job: str, author: str, reason: str) -> bool:
        """As the store, unless cut."""
        return await self._through().release_permit(gate, job, author, reason)

    async def fire(self, request: FireRequest) -> FireReply:
        """As the store, unless cut."""
        return await self._through().fire(request)

    async def sweep(self, n: int, *, keep_trail_ms: int = TRAIL_KEPT_MS) -> SweepReply:
        """As the store, unless cut."""
        return await self._through().sweep(n, keep_trail_ms=keep_trail_ms)

    async def lead(self, role: str, holder: str, lease_ms: int) -> int | None:
        """As the store, unless cut."""
        return await self._through().lead(role, holder, lease_ms)

    async def wait(self, lanes: Sequence[str], until_at: int | None, seen: int) -> None:
        """As the store, unless cut."""
        await self._through().wait(lanes, until_at, seen)

    async def read(self, query: Query[Reply]) -> Reply:
        """As the store, unless cut."""
        return await self._through().read(query)

    async def close(self) -> None:
        """Leave the store open: others use it."""
