"""The operations of a store whose verbs run over tables, each in one step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from headway.contract.claims import BeatReply, BeatRequest, SweepReply
from headway.contract.definitions import DefineRequest, FireReply, FireRequest
from headway.contract.extensions import ExportChunk
from headway.contract.operate import ActReply, ActRequest
from headway.contract.outcomes import SettleRequest, Verdict
from headway.contract.signals import Signal, SignalReply
from headway.contract.store import InFlight, Sent
from headway.contract.views import Query
from headway.core.job import TRAIL_KEPT_MS, NewJob
from headway.stores.ledger import verbs
from headway.stores.ledger.ledger import Ledger

Answer = TypeVar("Answer")
Tables = TypeVar("Tables", bound=Ledger)


class LedgerStore(ABC, Generic[Tables]):
    """The part of `Store` and `Movable` that only runs a verb; a store adds the others."""

    @abstractmethod
    async def _decide(self, verb: Callable[[Tables], Answer], *, adds: bool = False) -> Answer:
        """Run a verb in an exclusive step.

        Args:
            verb: is called with the tables within the step.
            adds: whether it adds jobs, which may be refused while the device is nearly full.
        """

    @abstractmethod
    async def _read(self, verb: Callable[[Tables], Answer]) -> Answer:
        """Run a verb that only reads."""

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Sent]:
        return await self._decide(lambda ledger: verbs.enqueue(ledger, jobs), adds=True)

    async def restore(self, jobs: Sequence[InFlight]) -> list[Sent]:
        return await self._decide(lambda ledger: verbs.restore(ledger, jobs), adds=True)

    async def fire(self, request: FireRequest) -> FireReply:
        return await self._decide(lambda ledger: verbs.fire(ledger, request), adds=True)

    async def settle(self, request: SettleRequest) -> list[Verdict]:
        return await self._decide(lambda ledger: verbs.settle(ledger, request))

    async def beat(self, request: BeatRequest) -> BeatReply:
        return await self._decide(lambda ledger: verbs.beat(ledger, request))

    async def signal(self, signal: Signal) -> SignalReply:
        return await self._decide(lambda ledger: verbs.signal(ledger, signal))

    async def act(self, request: ActRequest) -> list[ActReply]:
        return await self._decide(lambda ledger: verbs.act(ledger, request))

    async def define(self, request: DefineRequest) -> int:
        return await self._decide(lambda ledger: verbs.define(ledger, request))

    async def release_permit(
        self, gate: str, job: str, author: str, reason: str, *, request: str = ""
    ) -> bool:
        return await self._decide(
            lambda ledger: verbs.release_permit(ledger, gate, job, author, reason, request)
        )

    async def sweep(self, n: int, *, keep_trail_ms: int = TRAIL_KEPT_MS) -> SweepReply:
        return await self._decide(lambda ledger: verbs.sweep(ledger, n, keep_trail_ms))

    async def lead(self, role: str, holder: str, lease_ms: int) -> int | None:
        return await self._decide(lambda ledger: verbs.lead(ledger, role, holder, lease_ms))

    async def read(self, query: Query[Answer]) -> Answer:
        return await self._read(lambda ledger: verbs.read(ledger, query))

    async def export_chunk(self, cursor: str | None) -> ExportChunk:
        return await self._read(lambda ledger: verbs.export_chunk(ledger, cursor))

    async def import_chunk(self, chunk: ExportChunk) -> None:
        await self._decide(lambda ledger: verbs.import_chunk(ledger, chunk), adds=True)
