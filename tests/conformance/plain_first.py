"""A PostgreSQL store that attempts every claim of one lane as a plain claim, and counts those."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headway.contract.claims import BeatRequest, Claimed, ClaimReply, ClaimRequest
from headway.core.job import JobPolicy
from headway.stores.ledger.verbs.claim import check_claim
from headway.stores.postgres.ledger import PostgresLedger
from headway.stores.postgres.shared import Done
from headway.stores.postgres.store import PostgresStore
from tests.forwarding import forward_extensions

_FLOWS = (
    "SELECT DISTINCT flow FROM @job WHERE state = 1"
    " AND lane = (SELECT no FROM @lane WHERE name = $1) ORDER BY flow"
)
_PLAIN = Claimed(
    "", 1, 1, "", "", "", "", None, b"", 0, 0, JobPolicy(), gated=False, members={}, candidate=""
)
"""Represents what an exclusive claim has started from a lane: a job without gates."""


@dataclass(slots=True)
class Counted:
    """Counts of plain claims.

    Attributes:
        stores: stores that were claimed from.
        claims: plain claims that succeeded.
        started: jobs that they started.
        refused: plain claims that were attempted, then repeated in an exclusive step.
    """

    stores: int = 0
    claims: int = 0
    started: int = 0
    refused: int = 0


@dataclass
class PlainFirstStore:
    """Gives the store before each claim what it would have learned from exclusive claims.

    A process learns from its exclusive claims which lanes are plain, and which workers have claimed
    before. In a test with few claims, that comes too late.

    Args:
        inner: the store.
        counted: where to count.
        greets: whether a worker beats before its first claim, so that this claim can be plain, too.
    """

    inner: PostgresStore
    counted: Counted
    greets: bool = True
    _claimed: bool = False
    _met: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        forward_extensions(self, self.inner)
        plain = self.inner._plain
        claim = plain.claim

        def counting(request: ClaimRequest) -> tuple[ClaimReply | None, Done]:
            reply, done = claim(request)
            if reply is None:
                self.counted.refused += 1
            else:
                self.counted.claims += 1
                self.counted.started += len(reply.jobs)
            return reply, done

        self.inner._plain = _Counting(plain, counting)  # pyright: ignore[reportAttributeAccessIssue]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def claim(self, request: ClaimRequest) -> ClaimReply:
        """Make a plain claim if the store accepts it; see `Store.claim`."""
        self.counted.stores += not self._claimed
        self._claimed = True
        check_claim(request)
        if len(request.lanes) == 1:
            await self._teach(request)
        return await self.inner.claim(request)

    async def _teach(self, request: ClaimRequest) -> None:
        (lane, _) = request.lanes[0]

        def read_seqs(ledger: PostgresLedger) -> list[int]:
            # A process also caches these when it reads them for an exclusive claim.
            ledger.gates.templates()
            ledger.lanes.load([lane])
            return [flow for (flow,) in ledger.session.fetch(_FLOWS, (lane,))]

        if self.greets and request.worker not in self._met:
            self._met.add(request.worker)
            lanes = (lane,)
            greeting = BeatRequest(worker=request.worker, lanes=lanes, lease_ms=request.lease_ms)
            await self.inner.beat(greeting)
        found = await self.inner._read(read_seqs)
        reply = ClaimReply(jobs=[_PLAIN], now=0, lease_until=0, next_at=None)
        self.inner._plain.learn(request, reply, found)
        known = self.inner._plain._lanes.get(lane)
        if known is not None:
            known.failed = known.pause = 0


class _Counting:
    """Plain claims with a replaced `claim`."""

    def __init__(self, plain: Any, claim: Any) -> None:
        self._plain = plain
        self.claim = claim

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)
