"""Claims: a look first where the last one found nothing, then a step with the turn."""

from __future__ import annotations

from headway.contract.claims import ClaimReply, ClaimRequest
from headway.contract.repair import Suspicion
from headway.stores.ledger.verbs import claim
from headway.stores.postgres.done import Done
from headway.stores.postgres.ledger import PostgresLedger
from headway.stores.postgres.mode import Mode, NeedsMore
from headway.stores.postgres.plain_claims import PlainClaims
from headway.stores.postgres.steps import Steps

MOST_IDLE = 256
"""Kinds of claims of which it is known that the last found nothing."""


class Claims:
    """The claims of one process.

    Args:
        steps: on the connection that takes the turn.
        plain: those of plain lanes, which learns here which those are.
    """

    def __init__(self, steps: Steps, plain: PlainClaims) -> None:
        self._steps = steps
        self._plain = plain
        self._idle: set[object] = set()

    def claim(self, request: ClaimRequest) -> tuple[ClaimReply | Suspicion, Done]:
        """See `Store.claim`.

        Returns:
            The reply, or why nothing may be claimed; and what the step has done.
        """

        def verb(ledger: PostgresLedger) -> ClaimReply | Suspicion:
            # The step goes on, so that what was found out is kept.
            return ledger.facts.suspicion() or claim(ledger, request)

        lanes = tuple(lane for lane, _ in request.lanes)
        kind = ("claim", request.worker, lanes, min(request.n, request.free), request.n)
        if kind in self._idle:
            try:
                return self._steps.run(Mode.PEEK, verb, kind=kind)
            except NeedsMore:
                self._idle.discard(kind)
        reply, done = self._steps.run(Mode.TURN, verb, kind=kind)
        if isinstance(reply, ClaimReply):
            self._plain.learn(request, reply, self._steps.session.found)
        if isinstance(reply, ClaimReply) and not reply.jobs and not done.wrote:
            if len(self._idle) >= MOST_IDLE:
                self._idle.clear()
            self._idle.add(kind)
        return reply, done
