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
from headway.contract.outcomes import Outcome, SettleRequest, Verdict
from headway.contract.store import Store

LEASE_MS = 30_000
LANE = "calls"
"""The lane of the job factory."""


class ClaimFields(TypedDict, total=False):
    """What a test may say in a claim.

    Attributes:
        free: the most gated jobs; by default as many as jobs.
        after: from the last reply.
    """

    free: int
    order: LaneOrder
    after: Mapping[str, int]
    lease_ms: int


class PlayedWorker:
    """One start of a worker.

    Args:
        name: its random id, as a test names it.

    Attributes:
        request: the number of its last claim.
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
            lanes: names, or names with weights; none for the lane of the job factory.
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
        """Claim under the number of the last claim, or under the one given; else as `ask`."""
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
        """Claim, and return what starts, in order."""
        return (await self.ask(n, *lanes, **more)).jobs

    async def claims(
        self, times: int, n: int, *lanes: str | tuple[str, int]
    ) -> AsyncIterator[ClaimReply]:
        """Claim so many times, each time from where the last claim stopped."""
        after: Mapping[str, int] = {}
        for _ in range(times):
            reply = await self.ask(n, *lanes, after=after)
            after = reply.after
            yield reply

    async def take_ids(self, n: int = 1, *lanes: str | tuple[str, int]) -> list[str]:
        """Claim, and return the ids of what starts, in order."""
        return [job.id for job in await self.take(n, *lanes)]

    async def take_one(self, *lanes: str | tuple[str, int]) -> Claimed:
        """Claim one job, which there must be."""
        jobs = await self.take(1, *lanes)
        assert len(jobs) == 1, "a job was expected to start, and none did"
        return jobs[0]

    async def take_and_report(self, outcome: Callable[..., Outcome], **fields: object) -> Claimed:
        """Claim one job, and report an outcome of its run, which is written."""
        run = await self.take_one()
        assert await self.report(outcome(run.id, run.run, **fields)) is Verdict.DONE
        return run

    async def settle(self, *outcomes: Outcome) -> list[Verdict]:
        """Report outcomes of runs; returns a verdict for each."""
        return await self._store.settle(SettleRequest(worker=self.id, outcomes=outcomes))

    async def report(self, outcome: Outcome) -> Verdict:
        """Report one outcome, and return its verdict."""
        return (await self.settle(outcome))[0]

    async def beat(
        self,
        *running: Claimed | tuple[str, int],
        request: int = 0,
        lease_ms: int = LEASE_MS,
        progress: Sequence[tuple[str, int, bytes]] = (),
        leaving: bool = False,
    ) -> BeatReply:
        """Report that the worker lives, and what it holds.

        Args:
            request: the last claim whose reply it holds; 0 for no claim.
            progress: as (job, run, JSON).
            leaving: it stops, and holds nothing.
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
