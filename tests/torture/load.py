"""A small load in one process: several stores work concurrently while something fails.

Each store has its own connections, as a process has. A call that is refused or gets no reply is
repeated; in the end the record is compared with what was acknowledged, job by job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count

from headway.contract.claims import BeatRequest, ClaimReply, ClaimRequest
from headway.contract.definitions import DeclareGate, DefineRequest
from headway.contract.outcomes import SettleRequest, Succeeded
from headway.contract.store import Store
from headway.contract.views import AuditQuery, GatesQuery, JobQuery, StatsQuery
from headway.core.gates.slots import Slots
from headway.core.job import NewJob, derived_id
from headway.testing.jobs import use_of
from tests.torture.retrying import retry_until_reported

LANE = "calls"
LINES = Slots("lines", 6)
PHONE = Slots("phone:{phone}", 1)
PHONES = 20
AT_ONCE = 8


class Load:
    """Producers and workers that never give up.

    Args:
        stores: one store per simulated process; all on the same namespace.

    Attributes:
        acked: acknowledged ids.
        done: how many runs were settled, as far as their workers know.
    """

    def __init__(self, stores: Sequence[Store]) -> None:
        self.acked: list[str] = []
        self.done = 0
        self._stores = stores
        self._numbers = count(1)
        self._enough = False
        self._settled = asyncio.Event()

    async def run(self, faults: Sequence[Callable[[], object]], between: int = 40) -> None:
        """Work while faults occur one after the other, then finish the remaining jobs.

        Args:
            faults: each is over when it returns; it is called in its own thread.
            between: runs that must be settled between two faults, which reveals a fault after which
                work does not resume.
        """
        define = DefineRequest(
            items=(DeclareGate(spec=LINES), DeclareGate(spec=PHONE)), author="ann"
        )
        await retry_until_reported(lambda: self._stores[0].define(define))
        async with asyncio.TaskGroup() as crew:
            for n, store in enumerate(self._stores):
                crew.create_task(self._produce(store))
                crew.create_task(self._work(store, f"worker {n}"))
            for fault in faults:
                await self._until(self.done + between)
                await asyncio.to_thread(fault)
            await self._until(self.done + between)
            self._enough = True

    async def _until(self, done: int) -> None:
        while self.done < done:
            self._settled.clear()
            await self._settled.wait()

    async def _produce(self, store: Store) -> None:
        while not self._enough:
            if len(self.acked) - self.done > 10 * AT_ONCE:
                await asyncio.sleep(0)
                continue
            number = next(self._numbers)
            uses = (use_of(LINES), use_of(PHONE, phone=number % PHONES))
            job = NewJob(
                id=derived_id("load", number),
                kind="dial",
                lane=LANE,
                key=f"order-{number}",
                gates=uses if number % 2 else (),
            )
            replies, _ = await retry_until_reported(lambda: store.enqueue([job]))  # noqa: B023  (awaited here)
            self.acked.append(replies[0].id)

    async def _work(self, store: Store, worker: str) -> None:
        for request in count(1):
            wanted = ClaimRequest(
                worker=worker, request=request, lanes=((LANE, 1),), n=AT_ONCE, free=AT_ONCE
            )
            claimed: ClaimReply
            claimed, _ = await retry_until_reported(lambda: store.claim(wanted))  # noqa: B023  (awaited here)
            if claimed.jobs:
                outcomes = tuple(Succeeded(job.id, job.run) for job in claimed.jobs)
                said = SettleRequest(worker=worker, outcomes=outcomes)
                verdicts, unknown = await retry_until_reported(lambda: store.settle(said))  # noqa: B023  (awaited here)
                known = {"done", "already"} if unknown else {"done"}
                assert {str(one) for one in verdicts} <= known, verdicts
                self.done += len(verdicts)
                self._settled.set()
            elif self._enough and not claimed.again:
                return
            else:
                beat = BeatRequest(worker=worker, request=request, lanes=(LANE,))
                await retry_until_reported(lambda: store.beat(beat))  # noqa: B023  (awaited here)

    async def check(self, store: Store) -> None:
        """Check that what was acknowledged has been done once, and nothing else exists.

        Args:
            store: a store without disturbances.
        """
        stats = await store.read(StatsQuery())
        assert {str(state): n for state, n in stats.counts.items() if n} == {
            "succeeded": len(self.acked)
        }
        assert stats.totals.get("succeeded") == len(self.acked) == len(set(self.acked))
        assert self.done == len(self.acked)
        for job in self.acked:
            view = await store.read(JobQuery(id=job))
            assert view is not None, job
            assert (view.run, view.attempt, len(view.runs)) == (1, 1, 1), job
        assert (await store.read(AuditQuery())).differences == ()
        gates = (await store.read(GatesQuery())).rows
        assert [gate.name for gate in gates if gate.used or gate.parked] == []
