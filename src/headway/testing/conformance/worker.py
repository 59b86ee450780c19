"""A worker driven by a test: it claims, settles and beats only when the test calls it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TypedDict, Unpack

from headway.contract.claims import (
    BeatReply,
    BeatRequest,
    Claimed,
    ClaimReply,
    ClaimRequest,
    LaneOrder,
)
from headway.contract.outcomes import Outcome, SettleRequest, Succeeded, Verdict
from headway.contract.store import Store

LEASE_MS = 30_000
LANE = "calls"
"""The lane of the job factory."""


class ClaimFields(TypedDict, total=False):
    """The fields of a claim that a test may set.

    Attributes:
        free: maximum number of gated jobs (default: as many as jobs).
        after: the cursor of the last reply.
    """

    free: int
    order: LaneOrder
    after: Mapping[str, int]
    lease_ms: int


class PlayedWorker:
    """One start of a worker.

    Args:
        name: the worker's id, which is random outside tests.

    Attributes:
        request: number of its last claim.
    """

    def __init__(self, store: Store, name: str) -> None:
        self.id = name
        self.request = 0
        self._store = store

    async def ask(
        self, n: int = 1, *lanes: str | tuple[str, int], **more: Unpack[ClaimFields]
    ) -> ClaimReply:
        """Claim under a new number.

        Args:
            lanes: names, or names with weights; defaults to the lane of the job factory.
        """
        self.request += 1
        return await self.repeat(n, *lanes, **more)

    async def repeat(
        self,
        n: int = 1,
        *lanes: str | tuple[str, int],
        request: int | None = None,
        **more: Unpack[ClaimFields],
    ) -> ClaimReply:
        """Claim as `ask` does, but under the number of the last claim or the one given."""
        weighted = tuple((lane, 1) if isinstance(lane, str) else lane for lane in lanes)
        fields: ClaimFields = {"free": n, "lease_ms": LEASE_MS, **more}
        return await self._store.claim(
            ClaimRequest(
                worker=self.id,
                request=self.request if request is None else request,
                lanes=weighted or ((LANE, 1),),
                n=n,
                **fields,
            )
        )

    async def take(
        self, n: int = 1, *lanes: str | tuple[str, int], **more: Unpack[ClaimFields]
    ) -> list[Claimed]:
        """Claim, and return the started jobs, in order."""
        return (await self.ask(n, *lanes, **more)).jobs

    async def claims(
        self, times: int, n: int, *lanes: str | tuple[str, int]
    ) -> AsyncIterator[ClaimReply]:
        """Claim several times, each time from where the last claim stopped."""
        after: Mapping[str, int] = {}
        for _ in range(times):
            reply = await self.ask(n, *lanes, after=after)
            after = reply.after
            yield reply

    async def take_ids(self, n: int = 1, *lanes: str | tuple[str, int]) -> list[str]:
        """Claim, and return the ids of the started jobs, in order."""
        return [job.id for job in await self.take(n, *lanes)]

    async def take_one(self, *lanes: str | tuple[str, int]) -> Claimed:
        """Claim one job; fail if there is none."""
        jobs = await self.take(1, *lanes)
        assert len(jobs) == 1, "expected a job to start, but none did"
        return jobs[0]

    async def take_and_report(self, outcome: Callable[..., Outcome], **fields: object) -> Claimed:
        """Claim one job, and report an outcome of its run; fail if the outcome is not written."""
        run = await self.take_one()
        assert await self.report(outcome(run.id, run.run, **fields)) is Verdict.DONE
        return run

    async def settle(self, *outcomes: Outcome) -> list[Verdict]:
        """Report outcomes of runs, and return a verdict for each."""
        return await self._store.settle(SettleRequest(worker=self.id, outcomes=outcomes))

    async def report(self, outcome: Outcome) -> Verdict:
        """Report one outcome, and return its verdict."""
        return (await self.settle(outcome))[0]

    async def finish(self, *runs: Claimed) -> list[Verdict]:
        """Report that runs have succeeded, and return a verdict for each."""
        return await self.settle(*(Succeeded(run.id, run.run) for run in runs))

    async def beat(
        self,
        *running: Claimed | tuple[str, int],
        request: int = 0,
        lease_ms: int = LEASE_MS,
        progress: Sequence[tuple[str, int, bytes]] = (),
        leaving: bool = False,
    ) -> BeatReply:
        """Report that the worker is alive, and which runs it holds.

        Args:
            request: number of the last claim whose reply it has; 0 if there is none.
            progress: as (job, run, JSON).
            leaving: whether it stops, and holds nothing.
        """
        held = tuple((one[0], one[1]) for one in running)
        return await self._store.beat(
            BeatRequest(
                worker=self.id,
                running=held,
                request=request,
                lease_ms=lease_ms,
                lanes=(LANE,),
                name=f"{self.id}@host",
                progress=tuple(progress),
                leaving=leaving,
            )
        )
