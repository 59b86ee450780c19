"""A look over a request between turns: ends calls of ended offers, passes over the assigned."""

from __future__ import annotations

from datetime import UTC, datetime

from headway.contract.views import JobQuery
from headway.core.cascade import Answer
from headway.runtime.answers import Snooze
from headway.runtime.job import Job
from headway.systems.field_service.desk import Desk
from headway.systems.field_service.hanging_up import hang_up_others
from headway.systems.field_service.passing_over import look_at_those_who_wait, pass_over_assigned
from headway.systems.field_service.seen.tally import OfferEnd
from headway.systems.field_service.standing import is_open

LAG_MS = 500
"""After a deadline, until a sweep has seen it."""
AGAIN = "3s"
MOST_LOOKS = 40


class LookOver:
    """The handler of `offer_look_over`."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def look(self, me: Job, request: str, after_run: int = 0) -> object:
        """Brings order into what an ended turn leaves behind.

        Args:
            me: this job.
            request: the request's id.
            after_run: it waits for the end of this run's offer; 0 waits for none.
        """
        view = await self._desk.app.store.read(JobQuery(id=request))
        if view is None:
            return None
        if after_run and view.run == after_run and is_open(view):
            at = max(view.deadline_at or 0, self._desk.timing.wall_at()) + LAG_MS
            return Snooze(until=datetime.fromtimestamp(at / 1000, UTC))
        done = await hang_up_others(self._desk, view)
        await pass_over_assigned(self._desk.app.store, view)
        await look_at_those_who_wait(self._desk.app.store, view)
        if not done and me.run < MOST_LOOKS:
            return Snooze(after=AGAIN)
        ended = next((one.outcome for one in view.runs if one.run == after_run), None)
        if ended == Answer.TIMEOUT:
            # Time alone ends such an offer: this look is what is made of it, once.
            self._desk.tally.ended(OfferEnd.TIMEOUT)
        return None
