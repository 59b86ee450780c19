"""A dispatcher's moves (complete, withdraw, assign, dispatch again), and the offer timeouts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fastapi import Response

from headway.contract.operate import Acted, Edit, Verb
from headway.contract.signals import Decided, Signal
from headway.contract.views import JobQuery, JobView
from headway.core.errors import InvalidState, StoreUnavailable, UnknownRecord
from headway.core.state import FINAL, QUEUED, State
from headway.server.access import Definer, Observer
from headway.server.replies import answer, reply_model
from headway.server.routes.moves import Operator
from headway.server.routing import TheService, router
from headway.server.sending import send_jobs
from headway.systems.field_service.bodies import AssignBody, TimesBody
from headway.systems.field_service.context import FieldContext, TheContext, check_caller
from headway.systems.field_service.follow_ups import REASSIGNED
from headway.systems.field_service.intake import candidates_for, review_now
from headway.systems.field_service.metrics import OFFER_ENDED, OfferEnd
from headway.systems.field_service.passing_over import lock_state
from headway.systems.field_service.request import (
    CALL_TO,
    OFFER,
    Assigned,
    Status,
    Urgency,
    acceptor,
    args_of,
    is_open,
    read_request,
    status_of,
)
from headway.systems.field_service.settings import OfferTimes, current_times, set_times
from headway.systems.field_service.technicians import TECHNICIANS
from headway.systems.field_service.views import REQUEST, RequestId, find_request, respond_with
from headway.systems.jobs import act, ref_of

_TRIES = 5
"""Attempts at a move if the request changes concurrently."""
LATER_MS = 600_000
NO_TECHNICIAN = "-"
"""A candidate id that no technician has."""
_HELD = frozenset({State.RUNNING, State.AWAITING})


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestMoves:
    """The moves of one caller."""

    context: FieldContext
    author: str

    async def read(self, request: str) -> JobView:
        """Return the request's job.

        Raises:
            UnknownRecord: the request no longer exists.
        """
        job = await self.context.store.read(JobQuery(id=request))
        if job is None:
            message = f"there is no request {request[:64]!r}"
            raise UnknownRecord(message)
        return job

    async def complete(self, job: JobView) -> JobView:
        """Complete the request, which frees its technician.

        Raises:
            InvalidState: no technician has the request, or it was just assigned again.
        """
        if status_of(job) is Status.ASSIGNED:
            await self.context.store.signal(
                Signal(
                    key=ref_of(job),
                    event=f"completed:{ref_of(job)}",
                    decided=Decided.SUCCEEDED,
                    reason=f"completed by {acceptor(job)}",
                )
            )
            job = await self.read(job.id)
            if status_of(job) is Status.ASSIGNED:
                message = f"the request was just assigned to {acceptor(job)}"
                raise InvalidState(message, hint="repeat this if it is completed nevertheless")
        if status_of(job) is not Status.COMPLETED:
            message = f"the request is {status_of(job)}: no technician has it"
            raise InvalidState(message, hint="only an assigned request can be completed")
        return job

    async def withdraw(self, job: JobView) -> JobView:
        """Withdraw the request, even if it is offered or assigned.

        Raises:
            InvalidState: the request is completed.
        """
        offered = is_open(job)
        for _ in range(_TRIES):
            if job.state is State.CANCELLED:
                self._count_if_withdrawn(offered, job)
                return job
            if job.state is State.SUCCEEDED:
                message = "the request is completed"
                raise InvalidState(message, hint="a completed request cannot be withdrawn")
            if job.state is State.DEAD:
                # Only a live job can be cancelled, so a pending request is revived first.
                later = await self.context.now() + LATER_MS
                alive = Edit(due_at=later, candidates=(NO_TECHNICIAN,))
                await self._act(job, Verb.RETRY, "withdrawn", alive)
            await self._act(job, Verb.CANCEL, "withdrawn")
            job = await self.read(job.id)
            if job.state is State.AWAITING:
                # Because its cancellation is requested, it ends cancelled whatever the signal says.
                await self.context.store.signal(
                    Signal(
                        key=ref_of(job),
                        event=f"withdrawn:{ref_of(job)}",
                        decided=Decided.DEAD,
                        reason="withdrawn",
                    )
                )
                job = await self.read(job.id)
            if job.state is State.RUNNING:
                # The run stops before it offers the request to a technician.
                return job
        return job

    async def assign(self, job: JobView, technician: str, *, by: str, wait: bool) -> JobView:
        """Assign the request to a technician without asking.

        Raises:
            InvalidState: the technician is busy and `wait` is false, or the request is completed,
                or was withdrawn since it was read.
            StoreUnavailable: the request changed during every attempt.
        """
        await self._check_free(job, technician, wait=wait)
        reason = f"{REASSIGNED}{technician} by {by}"
        had = ""
        offered, known = is_open(job), status_of(job) is Status.CANCELLED
        for _ in range(_TRIES):
            if status_of(job) is Status.COMPLETED:
                message = "the request is completed"
                raise InvalidState(message)
            if status_of(job) is Status.CANCELLED and not known:
                message = "the request was just withdrawn"
                raise InvalidState(message, hint="repeat this to assign it nevertheless")
            if acceptor(job) == technician and status_of(job) is Status.ASSIGNED:
                return job
            if job.state in _HELD:
                await self._act(job, Verb.KILL, reason)
                job = await self.read(job.id)
            request = read_request(job.args)
            if job.state is not State.CANCELLED:
                # After an assignment whose turn has not come, the one before is not notified yet.
                before = "" if request.assigned is None else request.assigned.had
                had = acceptor(job) or had or before
            assigned = Assigned(to=technician, by=by, had=had)
            # No call is placed, so the technician may be on the phone.
            lock = tuple(gate for gate in job.gates if gate.template != CALL_TO)
            edit = Edit(
                args=args_of(replace(request, assigned=assigned)),
                candidates=(technician,),
                gates=lock,
                if_args=job.args,
            )
            verb = Verb.EDIT if job.state in QUEUED else Verb.RETRY
            if await self._act(job, verb, reason, edit):
                self._count_if_withdrawn(offered, job)
                return await self.read(job.id)
            job = await self.read(job.id)
        message = "the request kept changing and was not assigned"
        raise StoreUnavailable(message, hint="try again")

    async def redispatch(self, job: JobView) -> JobView:
        """Offer the request again, to the technicians who are near now.

        Raises:
            InvalidState: the request is neither pending nor cancelled.
            StoreUnavailable: the directory is unavailable; nothing was written.
        """
        if job.state not in FINAL or job.state is State.SUCCEEDED:
            message = f"the request is {status_of(job)}"
            raise InvalidState(
                message, hint="only a pending or cancelled request can be dispatched again"
            )
        request = replace(read_request(job.args), assigned=None)
        candidates = await candidates_for(self.context, request)
        args = args_of(request)
        gates = self.context.app.kind(OFFER).uses(job.stage, job.lane, job.tenant, args)
        edit = Edit(args=args, candidates=tuple(candidates), gates=gates)
        if not await self._act(job, Verb.RETRY, "dispatched again", edit):
            message = "the request has already been dispatched again, or was just withdrawn"
            raise InvalidState(message, hint="GET /service-requests/{id} shows its current state")
        return await self.read(job.id)

    def _count_if_withdrawn(self, offered: bool, job: JobView) -> None:
        """Count an open offer that a dispatcher ended before it was answered."""
        if offered and not acceptor(job):
            self.context.tally.happened(OFFER_ENDED, OfferEnd.WITHDRAWN)

    async def _check_free(self, job: JobView, technician: str, *, wait: bool) -> None:
        gate = await lock_state(self.context.store, technician)
        other = next((one.job for one in gate.holders if one.job != job.id), None)
        if other is not None and not wait:
            message = f"{technician} is busy with the request {other}"
            raise InvalidState(message, hint="complete that request, or wait: wait=true")

    async def _act(self, job: JobView, verb: Verb, reason: str, edit: Edit | None = None) -> bool:
        # A dead request that was withdrawn since it was read is not revived.
        states = (job.state,) if verb is Verb.RETRY else ()
        (reply,) = await act(
            self.context.store,
            verb,
            job.id,
            author=self.author,
            reason=reason,
            edit=edit,
            states=states,
        )
        return reply.answer in {Acted.DONE, Acted.ASKED}


ROUTES = router("system: field_service", operations="field_")


@ROUTES.post("/service-requests/{id}/assign", summary="Assign a request", response_model=REQUEST)
async def assign(
    request: RequestId, body: AssignBody, service: TheService, context: TheContext, caller: Operator
) -> Response:
    """End any open offer, and assign the request to a technician without asking.

    The technician gets a message. 409: the technician is busy; with `wait`, the request waits
    instead.
    """
    job = await find_request(service, caller, request)
    async with context.directory.read() as session:
        technician = await TECHNICIANS.find(session, body.technician)
    mover = RequestMoves(context=context, author=caller.name)
    by = body.by or caller.name
    return await respond_with(
        service, await mover.assign(job, technician.id, by=by, wait=body.wait)
    )


@ROUTES.post(
    "/service-requests/{id}/redispatch", summary="Offer a request again", response_model=REQUEST
)
async def redispatch(
    request: RequestId, service: TheService, context: TheContext, caller: Operator
) -> Response:
    """Offer a pending or cancelled request again, to technicians now near and on duty."""
    job = await find_request(service, caller, request)
    job = await RequestMoves(context=context, author=caller.name).redispatch(job)
    # As at its intake: all of them may have another request.
    await send_jobs(service, [review_now(context, job.id, "dispatched", job.life)])
    return await respond_with(service, job)


@ROUTES.delete("/service-requests/{id}", summary="Withdraw a request", response_model=REQUEST)
async def withdraw(
    request: RequestId, service: TheService, context: TheContext, caller: Operator
) -> Response:
    """Withdraw a request: calls are hung up, and late answers are refused.

    409: the request is completed.
    """
    job = await find_request(service, caller, request)
    return await respond_with(
        service, await RequestMoves(context=context, author=caller.name).withdraw(job)
    )


TIMES = reply_model(OfferTimes)


@ROUTES.get(
    "/field-service/settings", summary="Get how long offers stay open", response_model=TIMES
)
async def times(context: TheContext, caller: Observer) -> Response:
    """Return how long the next offers stay open, by urgency."""
    check_caller(caller)
    return await _times(context)


@ROUTES.put(
    "/field-service/settings",
    operation_id="field_set_times",
    summary="Change how long offers stay open",
    response_model=TIMES,
)
async def change(body: TimesBody, context: TheContext, caller: Definer) -> Response:
    """Change the times from the next offer on; an open offer is not affected.

    Omitted times have their values in the file.
    """
    check_caller(caller)
    await set_times(context.directory, body.offer_timeout, {**body.urgency})
    return await _times(context)


async def _times(context: FieldContext) -> Response:
    now = await current_times(context.directory, context.settings.times)
    by_urgency = {str(one): now.of(one) for one in Urgency}
    return answer(replace(now, urgency_ms=by_urgency))
