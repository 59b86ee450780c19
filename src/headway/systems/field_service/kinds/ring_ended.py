"""What follows a call or a message that has ended: who waited for it, and whom it did not reach."""

from __future__ import annotations

from headway.contract.signals import Decided, Heard, Signal
from headway.contract.views import JobQuery, JobView
from headway.core.job import derived_id
from headway.core.state import State
from headway.runtime.job import Job
from headway.systems.field_service.desk import Desk
from headway.systems.field_service.kinds.asking import UNSURE
from headway.systems.field_service.names import LOOK_OVER
from headway.systems.field_service.ring_args import offer_of
from headway.systems.field_service.seen.tally import OfferEnd
from headway.systems.field_service.standing import run_of
from headway.systems.telephony.voice import CallStatus

_MISSED = frozenset({CallStatus.BUSY, CallStatus.NO_ANSWER, CallStatus.FAILED, CallStatus.CANCELED})


class RingEnded:
    """The handler of `ring_ended`."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def ended(self, me: Job, job: str, state: str, reason: str) -> None:
        """Lets the offer go on to the next candidate, if its own could not be reached.

        Whoever was on the telephone can be asked about other requests again: they are looked at.

        Args:
            me: this job.
            job: the call or message.
            state: what became of it.
            reason: why.
        """
        del state, reason
        store = self._desk.app.store
        ring = await store.read(JobQuery(id=job))
        if ring is None or not (offer := offer_of(ring)):
            return
        missed = _missed(ring)
        if missed:
            reply = await store.signal(
                Signal(
                    key=offer,
                    event=f"missed:{job}",
                    decided=Decided.DECLINED,
                    reason=missed,
                    offer=True,
                )
            )
            if reply.answer is Heard.APPLIED:
                self._desk.tally.ended(OfferEnd.MISSED)
        elif all(run.handed_at is None for run in ring.runs):
            return
        request, _ = run_of(offer)
        me.then(
            self._desk.kind(LOOK_OVER).make(
                job_id=derived_id(LOOK_OVER, me.id), subject=request, request=request
            )
        )


def _missed(ring: JobView) -> str:
    """Why the technician was not reached; empty if he was, or nobody knows."""
    if ring.state is State.SUCCEEDED:
        return ring.reason if ring.reason in _MISSED else ""
    if ring.state is not State.DEAD or ring.reason == UNSURE:
        return ""
    return "no line was free" if ring.reason == "expired" else ring.reason
