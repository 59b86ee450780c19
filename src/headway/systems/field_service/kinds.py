"""The kinds of this system, and the handler of a candidate's turn."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from headway.contract.signals import Decided, Signal
from headway.core.errors import StoreUnavailable
from headway.core.gates.pool import Pool
from headway.core.gates.slots import Slots
from headway.core.job import NewJob, derived_id
from headway.core.retry import Backoff
from headway.runtime.app import App
from headway.runtime.handler_results import Snooze, Unfit
from headway.runtime.job import Job
from headway.runtime.records import encode
from headway.systems.field_service.cells import distance_km
from headway.systems.field_service.context import DIRECTORY_RETRY, FieldContext
from headway.systems.field_service.follow_ups import FollowUps
from headway.systems.field_service.messages import (
    assigned_text,
    given_away_text,
    offer_spoken,
    offer_written,
)
from headway.systems.field_service.offer_calls import (
    ASK_WITHIN,
    CALL,
    CHOOSE,
    DispatcherAlert,
    Ring,
)
from headway.systems.field_service.records import Channel, Technician, missing_skills
from headway.systems.field_service.request import (
    AFTER,
    ALERT,
    CALL_TO,
    FORMER_REVIEW,
    LINES,
    OFFER,
    OFFER_ENDED,
    OFFER_TAKEN,
    OFFERS,
    PRIORITIES,
    REVIEW,
    RING,
    RING_ENDED,
    RINGS,
    TECHNICIAN,
    TEXT,
    Assigned,
    Customer,
    Position,
    Request,
    Urgency,
    read_request,
)
from headway.systems.field_service.settings import current_times

ASSIGNING = "1m"
"""Timeout of a dispatcher's assignment. Never reached: the acceptance precedes the offer."""
_ROUNDING_KM = 0.001
"""Tolerance for a technician at the edge of the radius."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Candidate:
    """The candidate whose turn it is, as currently stored in the directory.

    Attributes:
        technician: None if the directory has no technician with this id.
        timeout_ms: how long this offer stays open.
        had: technician from whom a dispatcher took the request; None if there is none.
    """

    technician: Technician | None
    timeout_ms: int
    had: Technician | None


class Turn:
    """The handler of `offer`."""

    def __init__(self, context: FieldContext) -> None:
        self._context = context

    async def turn(  # noqa: PLR0913  (the job's arguments)
        self,
        job: Job,
        *,
        customer: Customer,
        position: Position,
        skills: tuple[str, ...] = (),
        urgency: Urgency = Urgency.NORMAL,
        address: str = "",
        description: str = "",
        assigned: Assigned | None = None,
    ) -> object:
        """Offer the request to the candidate whose lock this run holds.

        Directory records are read once per offer; later changes apply to the next offer. If the
        directory is unavailable, the turn is snoozed, which uses no attempt.
        """
        del customer, position, skills, urgency, address, description
        request = read_request(job.claimed.args)
        try:
            found = await self._read_candidate(job, request)
        except StoreUnavailable:
            return Snooze(after=DIRECTORY_RETRY)
        technician = found.technician
        if technician is None:
            return self._pass_over(job, "unknown")
        if assigned is not None:
            return await self._assign(job, request, assigned, technician, found.had)
        reason = self._unfit(request, technician)
        if reason:
            return self._pass_over(job, reason)
        return await self._offer(job, request, technician, found.timeout_ms)

    def _pass_over(self, job: Job, reason: str) -> Unfit:
        """End the turn as unfit, and check whether the remaining candidates are busy."""
        job.then(self._context.review_job(job.id, job.ref, "unfit"))
        return Unfit(reason)

    async def _read_candidate(self, job: Job, request: Request) -> _Candidate:
        context = self._context
        times = await current_times(context.directory, context.settings.times)
        had = request.assigned.had if request.assigned is not None else ""
        async with context.directory.read() as session:
            return _Candidate(
                technician=await session.get(Technician, job.candidate),
                timeout_ms=times.of(request.urgency),
                had=await session.get(Technician, had) if had else None,
            )

    def _unfit(self, request: Request, technician: Technician) -> str:
        """Return why the candidate cannot be asked, or an empty string."""
        if not technician.on_duty:
            return "off duty"
        missing = missing_skills(technician.skills, request.skills)
        if missing:
            return f"lacks {', '.join(missing)}"
        away_km, most_km = _distance_to_km(request, technician), self._context.settings.radius_km
        if away_km > most_km + _ROUNDING_KM:
            return f"is {away_km:.0f} km away"
        return ""

    async def _offer(
        self, job: Job, request: Request, technician: Technician, timeout_ms: int
    ) -> None:
        context = self._context
        away_km = _distance_to_km(request, technician)
        by_text = context.settings.texts and (
            technician.channel is Channel.TEXT or not context.settings.lines
        )
        stands_ms = timeout_ms
        if by_text:
            text = offer_written(request, away_km)
            why = (TEXT, job.ref)
            job.then(context.message(job.id, technician.phone, text, *why, offer=job.ref))
        elif context.settings.lines:
            stands_ms += context.settings.line_wait
            job.then(
                context.app.kind(RING).make(
                    job_id=derived_id(RING, job.ref),
                    subject=job.id,
                    priority=PRIORITIES[request.urgency],
                    to=technician.phone,
                    text=offer_spoken(request, away_km),
                    offer=job.ref,
                    stands_ms=timeout_ms,
                    candidate=technician.id,
                )
            )
        job.then(*await self._reviews(job, stands_ms))
        await job.offer(timeout=timedelta(milliseconds=stands_ms))

    async def _reviews(self, job: Job, stands_ms: int) -> list[NewJob]:
        """Return jobs that review the request: now, after an earlier turn; and when this ends."""
        context = self._context
        at = await context.now() + stands_ms
        due = datetime.fromtimestamp(at / 1000, UTC)
        later = context.review_job(job.id, job.ref, "end", due=due, after_run=job.run)
        return [later] if job.run == 1 else [context.review_job(job.id, job.ref, "now"), later]

    async def _assign(
        self,
        job: Job,
        request: Request,
        assigned: Assigned,
        technician: Technician,
        had: Technician | None,
    ) -> None:
        """Accept on behalf of the candidate, whom a dispatcher assigned.

        The candidate gets a message, and so does a technician who loses the request.
        """
        context = self._context
        # The store keeps the signal until the hand-over, and applies it in the same step.
        await context.store.signal(
            Signal(
                key=job.ref,
                event=f"assigned:{job.ref}",
                decided=Decided.ACCEPTED,
                candidate=technician.id,
                body=encode("body", {"by": assigned.by, "assigned": True}),
            )
        )
        if context.settings.texts:
            messages = [(technician.phone, assigned_text(request))]
            if had is not None and had.id != technician.id:
                messages.append((had.phone, given_away_text(request)))
            job.then(
                *(
                    context.message(job.id, to, text, "assigned", job.ref, to)
                    for to, text in messages
                )
            )
        await job.offer(timeout=ASSIGNING)


def _distance_to_km(request: Request, technician: Technician) -> float:
    here = request.position
    return distance_km(here.lat, here.lon, technician.lat, technician.lon)


# A worker that dies during a turn uses an attempt, and a request has many turns. Follow-ups such
# as alerts must survive any number of dead workers.
_TURN_RETRY = Backoff(attempts=1_000, base="1s", cap="30s")
_CALL_RETRY = Backoff(attempts=3, base="1s", cap="10s")
_ALERT_RETRY = Backoff(attempts=12, base="10s", cap="10m")

LEASE = "10s"
"""Time after which another worker takes over from one that died."""


def declare(app: App, context: FieldContext) -> None:
    """Declare the kinds of this system."""
    settings = context.settings
    lines = Pool(LINES, settings.lines)
    call_to = Slots(CALL_TO, 1)
    for lane in (OFFERS, AFTER, RINGS):
        app.lane(lane, lease=LEASE)
    after, ring, alert = FollowUps(context), Ring(context), DispatcherAlert(context)
    app.job(name=OFFER_ENDED, lane=AFTER, retry=_TURN_RETRY)(after.ended)
    app.job(name=OFFER_TAKEN, lane=AFTER, retry=_TURN_RETRY)(after.taken)
    app.job(name=RING_ENDED, lane=AFTER)(after.ring_ended)
    for name in (REVIEW, FORMER_REVIEW):
        app.job(name=name, lane=AFTER, retry=_TURN_RETRY)(after.review)
    app.job(
        name=OFFER,
        lane=OFFERS,
        # A turn starts only while there is no call to the technician. After the hand-over, the
        # turn's own call holds this gate.
        gates=[Slots(TECHNICIAN, 1), call_to.take(hold="run")],
        cascade=True,
        retry=_TURN_RETRY,
        keep=f"{settings.keep}ms",
        on_accepted=OFFER_TAKEN,
        on_final=OFFER_ENDED,
        on_final_states=("succeeded", "dead", "cancelled"),
    )(Turn(context).turn)
    app.job(
        name=RING,
        lane=RINGS,
        gates=[lines, call_to],
        retry=_CALL_RETRY,
        expires=f"{settings.line_wait}ms",
        on_final=RING_ENDED,
        on_final_states=("succeeded", "dead", "cancelled"),
        reconcile=ring.ask,
        reconcile_within=ASK_WITHIN,
    )(ring.ring)
    app.job(
        name=TEXT,
        lane=RINGS,
        retry=_CALL_RETRY,
        on_final=RING_ENDED,
        on_final_states=("dead",),
    )(ring.text)
    alerting = app.job(
        name=ALERT,
        lane=AFTER,
        stages={CHOOSE: [], CALL: [lines]},
        retry=_ALERT_RETRY,
        on_deadline="retry",
    )(alert.choose)
    alerting.stage(CALL)(alert.call)
    context.declared = app
