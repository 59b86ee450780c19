"""What follows an acceptance: others are told, and nobody waits for the winner any more."""

from __future__ import annotations

from headway.contract.views import JobQuery, JobsQuery, JobView
from headway.core.cascade import Answer
from headway.core.errors import StoreUnavailable, UnknownRecord
from headway.core.job import MAX_BATCH, NewJob, derived_id
from headway.core.state import QUEUED
from headway.runtime.answers import Snooze
from headway.runtime.job import Job
from headway.systems.field_service.desk import Desk
from headway.systems.field_service.kinds.turn import AWAY_AGAIN
from headway.systems.field_service.names import LOOK_OVER, OFFER, TEXT
from headway.systems.field_service.request import read_request
from headway.systems.field_service.technicians.book import find_technician
from headway.systems.field_service.words import taken_words

_MOST = MAX_BATCH - 100


class Taken:
    """The handler of `offer_taken`."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def taken(self, me: Job, job: str, state: str, candidate: str, run: int) -> Snooze | None:
        """Tells those whose offers ran out that it is taken, and ends what still rings.

        Args:
            me: this job.
            job: the request.
            state: "accepted".
            candidate: who has it.
            run: of the acceptance.
        """
        del state
        desk = self._desk
        view = await desk.app.store.read(JobQuery(id=job))
        if view is None:
            return None
        try:
            messages = await self._messages(view, candidate, run)
        except StoreUnavailable:
            return Snooze(after=AWAY_AGAIN)
        look = desk.kind(LOOK_OVER)
        others = [one for one in await self._waiting_for(candidate) if one != job]
        me.then(
            *messages,
            *(
                look.make(
                    job_id=derived_id(LOOK_OVER, "taken", me.id, one), subject=one, request=one
                )
                for one in (job, *others)
            ),
        )
        return None

    async def _messages(self, view: JobView, winner: str, run: int) -> list[NewJob]:
        desk = self._desk
        if not desk.settings.texts or view.cascade is None:
            return []
        silent = {one.candidate for one in view.cascade.asked if one.answer is Answer.TIMEOUT}
        found: list[NewJob] = []
        async with desk.directory.read() as session:
            for name in sorted(silent - {winner}):
                try:
                    technician = await find_technician(session, name)
                except UnknownRecord:
                    continue
                found.append(
                    desk.kind(TEXT).make(
                        job_id=derived_id("taken", view.id, run, name),
                        subject=view.id,
                        to=technician.phone,
                        text=taken_words(read_request(view.args)),
                    )
                )
        return found

    async def _waiting_for(self, technician: str) -> list[str]:
        """The queued requests that the technician is left for."""
        store, cursor = self._desk.app.store, None
        found: list[str] = []
        while len(found) < _MOST:
            page = await store.read(
                JobsQuery(
                    lane=self._desk.kind(OFFER).lane,
                    kind=OFFER,
                    states=QUEUED_STATES,
                    cursor=cursor,
                    limit=1_000,
                )
            )
            found += [
                one.id
                for one in page.rows
                if one.cascade is not None and technician in one.cascade.left
            ]
            cursor = page.cursor
            if cursor is None:
                break
        return found[:_MOST]


QUEUED_STATES = tuple(QUEUED)
