"""Follow-up jobs after answers and ends: notify technicians, alert dispatchers, hang up calls."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from headway.contract.operate import Verb
from headway.contract.signals import Decided, Signal, SignalResult
from headway.contract.store import read_pages
from headway.contract.views import JobQuery, JobsQuery, JobView
from headway.core.cascade import Answer
from headway.core.errors import ProviderError, StoreUnavailable
from headway.core.job import MAX_BATCH, NewJob, derived_id
from headway.core.state import QUEUED, State
from headway.runtime.handler_results import Snooze
from headway.runtime.job import Job
from headway.systems.field_service.context import DIRECTORY_RETRY, FieldContext
from headway.systems.field_service.messages import alert_text, taken_text, withdrawn_text
from headway.systems.field_service.metrics import OFFER_ENDED, OfferEnd
from headway.systems.field_service.offer_calls import UNSURE
from headway.systems.field_service.passing_over import pass_over_assigned, reconsider_parked
from headway.systems.field_service.records import Technician
from headway.systems.field_service.request import (
    ALERT,
    NAME,
    OFFER,
    PRIORITIES,
    RING,
    RINGS,
    acceptor,
    is_open,
    is_request,
    last_run,
    offer_of,
    read_request,
    run_of,
)
from headway.systems.field_service.technicians import start_idle_time
from headway.systems.field_service.users import users_with_role
from headway.systems.jobs import act, find_run
from headway.systems.telephony.voice import CallStatus, call_of

DISPATCHER = "dispatcher"
REASSIGNED = "given to "
"""Prefix of the reason if a dispatcher takes a request from its technician."""
SOON = "10s"
"""Time for a request taken from its technician to be assigned to the next."""
MOST_WAITS = 3
_MISSED = frozenset({CallStatus.BUSY, CallStatus.NO_ANSWER, CallStatus.FAILED, CallStatus.CANCELED})
BY_CALL = "by call"
"""Reason of an answer given by pressing a key; that call ends by itself."""
_LIVE = (*QUEUED, State.RUNNING, State.AWAITING)
LAG_MS = 500
"""Time after a deadline until a sweep has applied it."""
AGAIN = "3s"
MOST_REVIEWS = 40

_log = logging.getLogger("headway.field_service")


class FollowUps:
    """The handlers of follow-up jobs."""

    def __init__(self, context: FieldContext) -> None:
        self._context = context

    async def _request(self, id: str) -> JobView | None:
        """Return a request's job; None if it is no longer there, or is no request."""
        found = await self._context.store.read(JobQuery(id=id))
        return found if found is not None and is_request(found) else None

    async def ended(self, me: Job, job: str, state: str, reason: str) -> Snooze | None:
        """Create the alerts or notices that a request's end requires, in one step with its own."""
        # The request may have ended again since: an alert gives the current reason.
        del reason
        view = await self._request(job)
        if view is None:
            return None
        try:
            match state:
                case State.SUCCEEDED:
                    await self._note_idle(view)
                case _ if view.state != state:
                    pass  # revived by a dispatcher
                case State.CANCELLED:
                    me.then(*await self._withdrawal_notices(view))
                case _ if view.reason.startswith(REASSIGNED) and me.run <= MOST_WAITS:
                    return Snooze(after=SOON)
                case _:
                    me.then(*await self._alerts(view))
        except StoreUnavailable:
            return Snooze(after=DIRECTORY_RETRY)
        me.then(self._context.review_job(job, "ended", me.id))
        return None

    async def _alerts(self, view: JobView) -> list[NewJob]:
        """Return one alert per dispatcher, the same for the same life of the request."""
        context = self._context
        async with context.directory.read() as session:
            users = await users_with_role(session, DISPATCHER)
        if not users:
            _log.error("alert has no recipient: no user is a dispatcher request=%s", view.id)
        request = read_request(view.args)
        text = alert_text(request, view.id, view.reason)
        return [
            context.app.kind(ALERT).make(
                job_id=derived_id(ALERT, view.id, view.life, one.id),
                subject=view.id,
                priority=PRIORITIES[request.urgency],
                user=one.id,
                text=text,
            )
            for one in users
        ]

    async def _note_idle(self, view: JobView) -> None:
        technician = acceptor(view)
        if not technician or view.finished_at is None:
            return
        async with self._context.directory.change() as session:
            await start_idle_time(session, technician, view.finished_at)

    async def _withdrawal_notices(self, view: JobView) -> list[NewJob]:
        context, request = self._context, read_request(view.args)
        # If a reassignment was under way, the previous technician has not been notified yet.
        had = request.assigned.had if request.assigned is not None else ""
        technician = acceptor(view) or had
        if not technician or not context.settings.texts:
            return []
        async with context.directory.read() as session:
            found = await session.get(Technician, technician)
        if found is None:
            return []
        text = withdrawn_text(request)
        return [context.message(view.id, found.phone, text, "withdrawn", view.id, view.run)]

    async def taken(self, me: Job, job: str, state: str, candidate: str, run: int) -> Snooze | None:
        """Notify technicians with expired offers, and review the requests that this affects."""
        del state
        context = self._context
        view = await self._request(job)
        if view is None:
            return None
        try:
            messages = await self._messages(view, candidate, run)
        except StoreUnavailable:
            return Snooze(after=DIRECTORY_RETRY)
        others = [one for one in await self._waiting_for(candidate) if one != job]
        reviews = (context.review_job(one, "taken", me.id, one) for one in (job, *others))
        jobs = [*messages, *reviews]
        # What a settlement has no room for; if this run is repeated, with the same ids.
        for start in range(MAX_BATCH, len(jobs), MAX_BATCH):
            await context.store.enqueue(jobs[start : start + MAX_BATCH])
        me.then(*jobs[:MAX_BATCH])
        return None

    async def _messages(self, view: JobView, winner: str, run: int) -> list[NewJob]:
        context = self._context
        if not context.settings.texts or view.cascade is None or view.run != run:
            # If it has had another run, a dispatcher has taken it from the winner since.
            return []
        silent = {one.candidate for one in view.cascade.asked if one.answer is Answer.TIMEOUT}
        found: list[NewJob] = []
        text = taken_text(read_request(view.args))
        async with context.directory.read() as session:
            for name in sorted(silent - {winner}):
                technician = await session.get(Technician, name)
                if technician is not None:
                    why = ("taken", view.id, run, name)
                    found.append(context.message(view.id, technician.phone, text, *why))
        return found

    async def _waiting_for(self, technician: str) -> list[str]:
        """Return the queued requests whose remaining candidates include the technician."""
        query = JobsQuery(
            lane=self._context.app.kind(OFFER).lane, kind=OFFER, states=tuple(QUEUED), limit=1_000
        )
        found: list[str] = []
        async for jobs in read_pages(self._context.store, query):
            found += [
                one.id
                for one in jobs.rows
                if one.cascade is not None and technician in one.cascade.left
            ]
        return found

    async def ring_ended(self, me: Job, job: str, state: str, reason: str) -> None:
        """Decline the offer if its technician could not be reached, so that the next one is asked.

        Also review the request, because the technician's phone is free for other offers again.
        """
        del state, reason
        store = self._context.store
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
                )
            )
            if reply.answer is SignalResult.APPLIED:
                self._context.tally.happened(OFFER_ENDED, OfferEnd.MISSED)
        elif all(run.handed_at is None for run in ring.runs):
            return
        request, _ = run_of(offer)
        me.then(self._context.review_job(request, me.id))

    async def review(self, me: Job, request: str, after_run: int = 0) -> object:
        """Clean up after a turn that has ended: hang up its calls, and reconsider waiting requests.

        Args:
            after_run: run whose offer must have ended first; 0 to wait for none.
        """
        view = await self._request(request)
        if view is None:
            return None
        if after_run and view.run == after_run and is_open(view):
            at = max(view.deadline_at or 0, await self._context.now()) + LAG_MS
            return Snooze(until=datetime.fromtimestamp(at / 1000, UTC))
        # Before hanging up, which can take seconds: meanwhile a dispatcher may assign the request.
        await pass_over_assigned(self._context.store, view)
        done = await hang_up_others(self._context, view)
        await reconsider_parked(self._context.store, view)
        if not done and me.run < MOST_REVIEWS:
            return Snooze(after=AGAIN)
        run = find_run(view, after_run)
        if run is not None and run.outcome == Answer.TIMEOUT:
            # Nothing else reports an offer that timed out, so it is counted here, once.
            self._context.tally.happened(OFFER_ENDED, OfferEnd.TIMEOUT)
        return None


def _missed(ring: JobView) -> str:
    """Return why the technician was not reached; empty if reached or unknown."""
    if ring.state is State.SUCCEEDED:
        return ring.reason if ring.reason in _MISSED else ""
    if ring.state is not State.DEAD or ring.reason == UNSURE:
        return ""
    return "no line was free" if ring.reason == "expired" else ring.reason


async def hang_up_others(context: FieldContext, request: JobView) -> bool:
    """Hang up the calls about a request, except the call of its open or accepted offer.

    Returns:
        Whether no call is left. A call that is just being placed can only be hung up later.
    """
    store = context.store
    query = JobsQuery(subject=request.id, tenant="", kind=RING, lane=RINGS, states=_LIVE, runs=True)
    page = await store.read(query)
    done = True
    for ring in page.rows:
        if not (offer := offer_of(ring)):
            continue
        _, run = run_of(offer)
        if not _is_over(request, run) or _ends_by_itself(request, run):
            continue
        if ring.state in QUEUED:
            await act(store, Verb.CANCEL, ring.id, author=NAME, reason="the offer is over")
            continue
        done = await _hang_up(context, ring) and done
    return done


def _is_over(request: JobView, run: int) -> bool:
    # A run later than the one that was read has started since.
    stands = request.state in {State.RUNNING, State.AWAITING, State.SUCCEEDED}
    return run < request.run or (run == request.run and not stands)


def _ends_by_itself(request: JobView, run: int) -> bool:
    offered = find_run(request, run)
    asked = request.cascade.asked if request.cascade is not None else ()
    return offered is not None and any(
        one.candidate == offered.candidate
        and one.answer is Answer.DECLINED
        and one.reason == BY_CALL
        for one in asked
    )


async def _hang_up(context: FieldContext, ring: JobView) -> bool:
    run = last_run(ring)
    call = call_of(run) if run is not None else None
    if call is None:
        return False
    provider, call_id = call
    try:
        await context.telephony.voice(provider).hang_up(call_id)
    except ProviderError as error:
        _log.warning("hang-up failed provider=%s error=%s", provider, error)
        return False
    return True
