"""A store that reports its calls and replies to the witness."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from headway.contract.claims import BeatReply, BeatRequest, ClaimReply, ClaimRequest
from headway.contract.outcomes import HandedOver, SettleRequest, Verdict
from headway.contract.store import Sent, Store
from headway.core.job import NewJob
from tests.torture.random_kills import RandomKills
from tests.torture.witness import Witness

WORDS = {
    "Succeeded": "succeeded",
    "Failed": "failed",
    "Died": "died",
    "Released": "released",
    "HandedOver": "handed over",
    "Returned": "returned",
}


class RecordedStore:
    """Forwards everything.

    Args:
        store: the real store.
        witness: the witness to report to.
        kills: random kills, met before and after each call.
    """

    def __init__(self, store: Store, witness: Witness, kills: RandomKills) -> None:
        self._store = store
        self._witness = witness
        self._kills = kills

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Sent]:
        self._kills.meet("before enqueue")
        reply = await self._store.enqueue(jobs)
        self._kills.meet("after enqueue")
        return reply

    async def enqueue_ahead(self, jobs: Sequence[NewJob], sent: Callable[[], None]) -> list[Sent]:
        del sent
        return await self.enqueue(jobs)

    async def claim(self, request: ClaimRequest) -> ClaimReply:
        reply = await self._store.claim(request)
        if reply.jobs:
            self._kills.meet("after claim")
        return reply

    async def settle(self, request: SettleRequest) -> list[Verdict]:
        handing = any(isinstance(one, HandedOver) for one in request.outcomes)
        self._kills.meet("before hand-over" if handing else "before settle")
        since = time.monotonic_ns()
        reply = await self._store.settle(request)
        self._kills.meet("after settle")
        self._witness.note(
            "settled",
            since=since,
            verdicts=[
                (one.job, one.run, WORDS.get(type(one).__name__, "other"), str(verdict))
                for one, verdict in zip(request.outcomes, reply, strict=True)
            ],
        )
        return reply

    async def beat(self, request: BeatRequest) -> BeatReply:
        since = time.monotonic_ns()
        reply = await self._store.beat(request)
        self._witness.note(
            "beat",
            since=since,
            worker=request.worker,
            lease_ms=request.lease_ms,
            lost=reply.lost,
        )
        return reply
