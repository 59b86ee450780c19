"""A store that already has many jobs, and the cost of single claims and enqueues there."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from uuid_utils import uuid7

from headway.contract.claims import BeatRequest, ClaimRequest
from headway.contract.definitions import DeclareGate, DefineRequest
from headway.contract.outcomes import SettleRequest, Succeeded
from headway.contract.store import Store
from headway.core.gates.spec import GateSpec, GateUse
from headway.core.job import MAX_BATCH, NewJob

LANE = "bench"
ARGS = b'{"number": 1}'
MINUTE_MS = 60_000
LEASE_MS = 600_000


@dataclass(slots=True)
class Held:
    """A store under measurement, with one worker.

    Attributes:
        now: The store's time at the last claim, ms UTC.
        costs: Durations of the measured operations in ms, by name.
    """

    store: Store
    worker: str = "bench"
    now: int = 0
    costs: dict[str, list[float]] = field(default_factory=dict)
    requests: count[int] = field(default_factory=lambda: count(1))

    async def declare(self, *specs: GateSpec) -> None:
        items = tuple(DeclareGate(spec=spec) for spec in specs)
        await self.store.define(DefineRequest(items=items, author="bench"))

    async def add(
        self, n: int, gates: Sequence[GateUse] = (), due_in_ms: int | None = None
    ) -> None:
        """Enqueue jobs; scheduled ones are spread over the hour after `due_in_ms`."""
        first = None if due_in_ms is None else time.time_ns() // 1_000_000 + due_in_ms
        left, made = n, 0
        while left > 0:
            jobs: list[NewJob] = []
            for _ in range(min(left, MAX_BATCH)):
                due_at = None if first is None else first + made * 7_919 % (60 * MINUTE_MS)
                jobs.append(_job(gates=tuple(gates), due_at=due_at))
                made += 1
            await self.store.enqueue(jobs)
            left -= len(jobs)

    async def claim(self, n: int, free: int = MAX_BATCH) -> list[tuple[str, int]]:
        reply = await self.store.claim(
            ClaimRequest(
                worker=self.worker,
                request=next(self.requests),
                lanes=((LANE, 1),),
                n=n,
                free=free,
                lease_ms=LEASE_MS,
            )
        )
        self.now = reply.now
        return [(job.id, job.run) for job in reply.jobs]

    async def settle(self, runs: Sequence[tuple[str, int]]) -> None:
        outcomes = tuple(Succeeded(job, run) for job, run in runs)
        await self.store.settle(SettleRequest(worker=self.worker, outcomes=outcomes))

    async def beat(self) -> None:
        await self.store.beat(BeatRequest(worker=self.worker, lease_ms=LEASE_MS))

    # Measurements ----------------------------------------------------------------------------

    async def measure_enqueue(self) -> None:
        """Time one awaited enqueue of a scheduled job."""
        due_at = time.time_ns() // 1_000_000 + 30 * MINUTE_MS
        job = _job(due_at=due_at)
        begin = time.perf_counter()
        await self.store.enqueue([job])
        self._note("enqueue one", begin)

    async def measure_claims(self, sizes: Sequence[int] = (1, 100)) -> None:
        """Time claims of jobs that were just enqueued; settling them is not timed."""
        for size in sizes:
            await self.add(size)
            begin = time.perf_counter()
            runs = await self.claim(size)
            self._note(f"claim {size}", begin)
            if len(runs) != size:
                message = f"{len(runs)} of {size} jobs were claimed"
                raise RuntimeError(message)
            await self.settle(runs)

    def _note(self, what: str, begin: float) -> None:
        self.costs.setdefault(what, []).append((time.perf_counter() - begin) * 1e3)


def settle_memory() -> None:
    """Collect and freeze garbage, so that no collection falls into a measurement."""
    gc.collect()
    gc.freeze()


def _job(gates: tuple[GateUse, ...] = (), due_at: int | None = None) -> NewJob:
    return NewJob(id=str(uuid7()), kind="step", lane=LANE, args=ARGS, gates=gates, due_at=due_at)
