"""Store proxies: a base class that forwards every operation, and one that fails on demand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import TypeVar

from headway.contract.claims import BeatReply, BeatRequest, ClaimReply, ClaimRequest, SweepReply
from headway.contract.definitions import DefineRequest, FireReply, FireRequest
from headway.contract.operate import ActReply, ActRequest
from headway.contract.outcomes import SettleRequest, Verdict
from headway.contract.signals import Signal, SignalReply
from headway.contract.store import InFlight, Sent, Store
from headway.contract.views import Query
from headway.core.errors import OutcomeUnknown, StoreUnavailable
from headway.core.job import TRAIL_KEPT_MS, NewJob

Reply = TypeVar("Reply")


class StoreProxy:
    """Forwards every operation to the `inner` store through `_call`, which a subclass overrides."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    async def _call(self, name: str, operation: Callable[[], Awaitable[Reply]]) -> Reply:
        del name
        return await operation()

    @property
    def runs_inline(self) -> bool:
        return self.inner.runs_inline

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Sent]:
        return await self._call("enqueue", lambda: self.inner.enqueue(jobs))

    async def claim(self, request: ClaimRequest) -> ClaimReply:
        return await self._call("claim", lambda: self.inner.claim(request))

    async def settle(self, request: SettleRequest) -> list[Verdict]:
        return await self._call("settle", lambda: self.inner.settle(request))

    async def beat(self, request: BeatRequest) -> BeatReply:
        return await self._call("beat", lambda: self.inner.beat(request))

    async def signal(self, signal: Signal) -> SignalReply:
        return await self._call("signal", lambda: self.inner.signal(signal))

    async def restore(self, jobs: Sequence[InFlight]) -> list[Sent]:
        return await self._call("restore", lambda: self.inner.restore(jobs))

    async def act(self, request: ActRequest) -> list[ActReply]:
        return await self._call("act", lambda: self.inner.act(request))

    async def define(self, request: DefineRequest) -> int:
        return await self._call("define", lambda: self.inner.define(request))

    async def release_permit(
        self, gate: str, job: str, author: str, reason: str, *, request: str = ""
    ) -> bool:
        return await self._call(
            "release_permit",
            lambda: self.inner.release_permit(gate, job, author, reason, request=request),
        )

    async def fire(self, request: FireRequest) -> FireReply:
        return await self._call("fire", lambda: self.inner.fire(request))

    async def sweep(self, n: int, *, keep_trail_ms: int = TRAIL_KEPT_MS) -> SweepReply:
        return await self._call("sweep", lambda: self.inner.sweep(n, keep_trail_ms=keep_trail_ms))

    async def lead(self, role: str, holder: str, lease_ms: int) -> int | None:
        return await self._call("lead", lambda: self.inner.lead(role, holder, lease_ms))

    async def wait(self, lanes: Sequence[str], until_at: int | None, seen: int) -> None:
        await self._call("wait", lambda: self.inner.wait(lanes, until_at, seen))

    async def read(self, query: Query[Reply]) -> Reply:
        return await self._call("read", lambda: self.inner.read(query))

    async def close(self) -> None:
        """Close the inner store."""
        await self.inner.close()


class Fault(StrEnum):
    """How an operation fails."""

    CUT = "cut"
    """It is executed, but its reply is lost: OutcomeUnknown."""
    REFUSE = "refuse"
    """It is not executed: StoreUnavailable."""


class FaultyStore(StoreProxy):
    """A real store behind a connection that fails on demand; `close` never fails.

    Attributes:
        calls: names of the operations that were called, in order.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.calls: list[str] = []
        self._planned: list[tuple[str | None, int, Fault]] = []

    def plan(self, fault: Fault, *, operation: str | None = None, nth: int = 1) -> None:
        """Make a later operation fail, once.

        Args:
            operation: name of the operation, such as "claim"; None for any.
            nth: which of these operations fails, 1 for the next.
        """
        self._planned.append((operation, nth, fault))

    async def _call(self, name: str, operation: Callable[[], Awaitable[Reply]]) -> Reply:
        self.calls.append(name)
        fault = self._due(name)
        if fault is Fault.REFUSE:
            message = f"the connection refused {name}, as planned"
            raise StoreUnavailable(message, hint="nothing was written; call again")
        reply = await operation()
        if fault is Fault.CUT:
            message = f"the reply of {name} was cut off, as planned"
            raise OutcomeUnknown(message, hint="repeat the call")
        return reply

    def _due(self, name: str) -> Fault | None:
        found: Fault | None = None
        left: list[tuple[str | None, int, Fault]] = []
        for operation, nth, fault in self._planned:
            if operation not in {None, name}:
                left.append((operation, nth, fault))
            elif nth > 1 or found is not None:
                left.append((operation, max(nth - 1, 1), fault))
            else:
                found = fault
        self._planned = left
        return found
