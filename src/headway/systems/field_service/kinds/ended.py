"""What follows the end of a request: dispatchers are alerted, calls hung up, the idle noted."""

from __future__ import annotations

import logging

from headway.contract.views import JobQuery, JobView
from headway.core.errors import StoreUnavailable, UnknownRecord
from headway.core.job import NewJob, derived_id
from headway.core.state import State
from headway.runtime.answers import Snooze
from headway.runtime.job import Job
from headway.systems.field_service.desk import Desk
from headway.systems.field_service.kinds.turn import AWAY_AGAIN
from headway.systems.field_service.names import ALERT, LOOK_OVER, TEXT
from headway.systems.field_service.request import read_request
from headway.systems.field_service.standing import acceptor
from headway.systems.field_service.technicians.book import became_idle, find_technician
from headway.systems.field_service.users.book import users_with_role
from headway.systems.field_service.words import alert_words, withdrawn_words

DISPATCHER = "dispatcher"
REASSIGNED = "given to "
"""With this begins the reason of a request that a dispatcher takes from whoever has it."""
SOON = "10s"
"""After which a request that was to be given to somebody else should be."""
MOST_WAITS = 3

_log = logging.getLogger("headway.field_service")


class Ended:
    """The handler of `offer_ended`."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def ended(self, me: Job, job: str, state: str, reason: str) -> Snooze | None:
        """Makes what the end of a request asks for, in one step with its own.

        Args:
            me: this job.
            job: the request.
            state: what became of it.
            reason: why.
        """
        view = await self._desk.app.store.read(JobQuery(id=job))
        if view is None:
            return None
        try:
            match state:
                case State.SUCCEEDED:
                    await self._note_idle(view)
                case State.CANCELLED:
                    me.then(*await self._told_withdrawn(view))
                case _ if view.state is not State.DEAD:
                    pass  # it lives again: somebody has seen to it
                case _ if reason.startswith(REASSIGNED) and me.run <= MOST_WAITS:
                    return Snooze(after=SOON)
                case _:
                    me.then(*await self._alerts(view, reason))
        except StoreUnavailable:
            return Snooze(after=AWAY_AGAIN)
        me.then(
            self._desk.kind(LOOK_OVER).make(
                job_id=derived_id(LOOK_OVER, "ended", me.id), subject=job, request=job
            )
        )
        return None

    async def _alerts(self, view: JobView, reason: str) -> list[NewJob]:
        """One for each dispatcher, the same for the same life of the request."""
        desk = self._desk
        async with desk.directory.read() as session:
            users = await users_with_role(session, DISPATCHER)
        if not users:
            _log.error("nobody takes the request %s, and no user is a dispatcher", view.id)
        text = alert_words(read_request(view.args), view.id, reason)
        return [
            desk.kind(ALERT).make(
                job_id=derived_id(ALERT, view.id, view.life, one.id),
                subject=view.id,
                user=one.id,
                text=text,
            )
            for one in users
        ]

    async def _note_idle(self, view: JobView) -> None:
        technician = acceptor(view)
        if not technician or view.finished_at is None:
            return
        async with self._desk.directory.change() as session:
            try:
                await became_idle(session, technician, view.finished_at)
            except UnknownRecord:
                return

    async def _told_withdrawn(self, view: JobView) -> list[NewJob]:
        desk, technician = self._desk, acceptor(view)
        if not technician or not desk.settings.texts:
            return []
        async with desk.directory.read() as session:
            try:
                found = await find_technician(session, technician)
            except UnknownRecord:
                return []
        return [
            desk.kind(TEXT).make(
                job_id=derived_id("withdrawn", view.id, view.run),
                subject=view.id,
                to=found.phone,
                text=withdrawn_words(read_request(view.args)),
            )
        ]
