"""Apply providers' call events to leads' jobs, and cancel leads."""

from __future__ import annotations

import logging
from contextlib import suppress

import msgspec
from fastapi import Request, Response

from headway.contract.operate import Verb
from headway.contract.signals import Decided, Signal, SignalKind, SignalResult
from headway.contract.views import JobQuery, JobView, RunView
from headway.core.check import read_reference
from headway.core.errors import InvalidState, ProviderError
from headway.core.state import FINAL, QUEUED, State
from headway.server.access import Public
from headway.server.hooks.request import PROVIDER_BODY
from headway.server.routing import TheService, router
from headway.systems.calls.context import CallsContext, TheContext
from headway.systems.calls.lead import CHECK, OF_STATUS, Outcome, is_lead, judge, read_args
from headway.systems.calls.overview import CountedEvent
from headway.systems.calls.template import DEFAULT, Template
from headway.systems.jobs import act, find_run, ref_of
from headway.systems.telephony.providers import Provider, read_webhook
from headway.systems.telephony.voice import CallEvent, CallStatus, call_of, is_of_another_call

_log = logging.getLogger("headway.calls")


async def apply_event(context: CallsContext, event: CallEvent) -> SignalResult | None:
    """Apply a provider's event to a lead's job; a repetition has no further effect.

    Returns:
        The store's reply; None if no known call matches.

    Raises:
        StoreError: the store, the directory or the source table is unavailable; nothing was
            settled, and the provider must send the event again.
    """
    found = await _find(context, event)
    if found is None:
        context.tally.happened(CountedEvent.WEBHOOK_ORPHAN, event.provider)
        _log.warning(
            "webhook of an unknown call: provider=%s call=%s status=%s",
            event.provider,
            event.call_id,
            event.status,
        )
        return None
    job, run = found
    if _is_outdated(job, run, event):
        return SignalResult.ALREADY
    if event.status.ended:
        answer = await settle(context, job, run, OF_STATUS[event.status], event.event, event)
    else:
        answer = await _apply_progress(context, job, run, event)
    if answer is SignalResult.LATE:
        context.tally.happened(CountedEvent.WEBHOOK_LATE, number_of(job, run))
    elif answer is SignalResult.ALREADY:
        context.tally.happened(CountedEvent.WEBHOOK_TWICE, number_of(job, run))
    return answer


async def claim_hang_up(context: CallsContext, ref: str) -> bool:
    """Record that a run's call is being hung up; return False if another hang-up was first."""
    note = Signal(key=ref, event=f"hangup:{ref}", kind=SignalKind.NOTE, label="hung up")
    return (await context.store.signal(note)).answer is not SignalResult.ALREADY


async def settle(  # noqa: PLR0913, PLR0917  (the parts of an end)
    context: CallsContext,
    job: JobView,
    run: int,
    outcome: Outcome,
    event_id: str,
    event: CallEvent | None = None,
    detail: str = "",
) -> SignalResult:
    """End a run with the outcome of its call, and count it, unless the run has ended.

    Args:
        event_id: id of the event, the same for a repetition.
        event: how the call ended; None if that is unknown, or if there was none.
        detail: details of the outcome, if there is no event.

    Raises:
        StoreError: the store, the directory or the source table is unavailable; nothing was
            settled.
    """
    detail = detail if event is None else event.reason
    verdict = judge(job, run, await template_of(context, job), outcome, detail)
    retried = verdict.final == "retry"
    if retried and job.run == run and job.state in {State.RUNNING, State.AWAITING}:
        await put_back(context, job, run)
    reply = await context.store.signal(
        Signal(
            key=f"{job.id}:{run}",
            event=event_id,
            decided=Decided(verdict.final),
            reason=verdict.reason,
            body=None if retried else _end_of_call(outcome, number_of(job, run), event),
            after_ms=verdict.after_ms if retried else None,
            stage=CHECK if retried else "",
            gates=context.check_uses(job.tenant, job.args, job.lane) if retried else (),
            known_as="" if event is None else call_key(event),
        )
    )
    if reply.answer is SignalResult.APPLIED:
        context.tally.happened(CountedEvent.OUTCOME, outcome)
    return reply.answer


async def template_of(context: CallsContext, job: JobView) -> Template:
    """Return the current template of a lead, or `default` if it no longer exists."""
    name = read_args(job.args).template
    contents = await context.catalogue.read({name})
    return contents.templates.get(name) or contents.template(DEFAULT)


def _end_of_call(outcome: Outcome, number: str, event: CallEvent | None) -> bytes:
    """Return the record of a call that has ended."""
    body: dict[str, object] = {"outcome": outcome, "number": number}
    if event is not None:
        body |= {
            "call_id": event.call_id,
            "provider": event.provider,
            "duration_s": event.duration_s,
        }
    return msgspec.json.encode(body)


def number_of(job: JobView, run: int) -> str:
    """Return the number that a run called from; empty if it is unknown."""
    found = find_run(job, run)
    permits = {} if found is None else found.permits
    return next((member for member in permits.values() if member), "")


def placed_ref(job: JobView, run: RunView) -> str:
    """Return the reference with which a run's call was placed, even if the store was rebuilt."""
    before = (key for key in run.keys if key.startswith(f"{job.id}:"))
    return next(before, f"{job.id}:{run.run}")


async def _find(context: CallsContext, event: CallEvent) -> tuple[JobView, int] | None:
    """Return the lead and the run that an event belongs to."""
    if event.ref is None:
        return await _by_call(context, event)
    named = read_reference(event.ref)
    if named is None:
        return None
    id_, run = named
    job = await context.store.read(JobQuery(id=id_))
    if job is None or not is_lead(job):
        return None
    # A rebuilt store counts runs from 1 again; a restored run keeps its earlier reference as a key.
    known = next((one.run for one in job.runs if event.ref in one.keys), run)
    if known > job.run or is_of_another_call(event, find_run(job, known)):
        return None
    return job, known


async def _by_call(context: CallsContext, event: CallEvent) -> tuple[JobView, int] | None:
    key = call_key(event)
    # The store finds the job of a signal by its key; the note itself is worth recording, too.
    reply = await context.store.signal(
        Signal(key=key, event=f"{event.event}:seen", kind=SignalKind.NOTE, label=event.status)
    )
    job = None if reply.job is None else await context.store.read(JobQuery(id=reply.job))
    if job is None or not is_lead(job):
        return None
    run = next((one.run for one in job.runs if key in one.keys), None)
    return None if run is None else (job, run)


async def _apply_progress(
    context: CallsContext, job: JobView, run: int, event: CallEvent
) -> SignalResult:
    """Apply an event of a call that continues."""
    answered = event.status is CallStatus.IN_PROGRESS
    reply = await context.store.signal(
        Signal(
            key=f"{job.id}:{run}",
            event=event.event,
            kind=SignalKind.PROGRESS,
            body=_encode_progress(run, event),
            extend_ms=context.settings.call_deadline if answered else None,
            known_as=call_key(event),
        )
    )
    applied = reply.answer is SignalResult.APPLIED
    if applied and job.cancel_requested and await claim_hang_up(context, f"{job.id}:{run}"):
        # The lead was cancelled before the call's id was known.
        with suppress(ProviderError):
            await _hang_up(context, job, (event.provider, event.call_id))
    return reply.answer


def call_key(event: CallEvent) -> str:
    """Return the key for the run of a call; ids of different providers could be equal."""
    return f"{event.provider}:{event.call_id}"


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a lead's job during its call."""

    run: int
    status: str
    provider: str
    call_id: str


_decode_progress = msgspec.json.Decoder(Progress).decode


def progress_of(job: JobView, run: int) -> Progress | None:
    """Return the last progress of a run's call; None if there is none from this system."""
    if job.progress is None:
        return None
    try:
        found = _decode_progress(job.progress)
    except msgspec.MsgspecError:
        # Callers that may signal the run can write any progress.
        return None
    return found if found.run == run else None


def _encode_progress(run: int, event: CallEvent) -> bytes:
    progress = Progress(
        run=run, status=event.status, provider=event.provider, call_id=event.call_id
    )
    return msgspec.json.encode(progress)


def _is_outdated(job: JobView, run: int, event: CallEvent) -> bool:
    """Return whether an event precedes the answer of a call that is known to be answered."""
    progress = progress_of(job, run)
    answered = progress is not None and progress.status == CallStatus.IN_PROGRESS
    return answered and event.status in {CallStatus.QUEUED, CallStatus.RINGING}


async def put_back(context: CallsContext, job: JobView, run: int) -> None:
    """Make the lead's row in the source table pending again, if it has one."""
    row, view = read_args(job.args).row, find_run(job, run)
    if context.table is not None and row and view is not None:
        await context.table.put_back(row, ref=placed_ref(job, view))


def known_call(job: JobView, run: RunView) -> tuple[str, str] | None:
    """Return the provider and the call id of a run, from its keys or its last progress."""
    progress = progress_of(job, run.run)
    return call_of(run) or (None if progress is None else (progress.provider, progress.call_id))


async def _hang_up(context: CallsContext, job: JobView, call: tuple[str, str]) -> None:
    """Request the provider to hang up a lead's call.

    Raises:
        ProviderError: it did not; this is logged.
    """
    provider, call_id = call
    try:
        await context.telephony.voice(provider).hang_up(call_id)
    except ProviderError as error:
        _log.warning("hang-up failed: lead=%s error=%s", job.id, error)
        raise


async def cancel_lead(context: CallsContext, job: JobView, author: str, *, hangup: bool) -> JobView:
    """Cancel a lead, and hang up if it is being called.

    The cancel comes first, so that a call not placed by then is never placed.

    Args:
        job: the lead's job, with its runs.
        author: author of the cancel on the trail.
        hangup: whether to cancel a lead that is being called, too.

    Returns:
        The job afterwards: cancelled, or awaiting the end of its call.

    Raises:
        InvalidState: the lead has ended in the meantime, or is being called and `hangup` is false.
        ProviderError: the provider did not hang up; the lead ends with its call.
    """
    states = () if hangup else (*QUEUED, State.RUNNING)
    await act(context.store, Verb.CANCEL, job.id, author=author, reason="ABORT", states=states)
    now = await context.store.read(JobQuery(id=job.id))
    if now is None or (now.state in FINAL and now.state is not State.CANCELLED):
        message = "the lead has ended in the meantime"
        raise InvalidState(message, hint="GET /leads/{id} shows its outcome")
    if now.state is State.AWAITING and not hangup:
        message = "the lead is being called now"
        raise InvalidState(message, hint="add ?hangup=true to end its call")
    if now.state is State.AWAITING:
        await _hang_up_lead(context, now, again=job.cancel_requested)
    return now


async def _hang_up_lead(context: CallsContext, job: JobView, *, again: bool) -> None:
    call = known_call(job, job.runs[-1])
    if call is None:
        _log.warning("hang-up delayed until the call is known: lead=%s", job.id)
        return
    # A webhook may have made the call known since the cancel, and have hung it up.
    if await claim_hang_up(context, ref_of(job)) or again:
        await _hang_up(context, job, call)


ROUTES = router("system: calls", operations="calls_")


@ROUTES.post(
    "/calls/hooks/{provider}",
    summary="Receive a call's status",
    status_code=204,
    responses={
        204: {
            "description": "The webhook was received, even if it is a repeat, late, or about an "
            "unknown call."
        }
    },
    openapi_extra=PROVIDER_BODY,
)
async def receive_call_status(
    request: Request,
    service: TheService,
    context: TheContext,
    _: Public,
    provider: Provider,
) -> Response:
    """Receive a status webhook; a repeat has no further effect.

    No token is needed: the provider's own signature is verified. 404: the provider is not
    configured. 401: the signature is missing or wrong. 503: the store is unavailable, and the
    provider should send the webhook again.
    """
    telephony = context.telephony
    webhook = await read_webhook(service, telephony, provider, request)
    voice = telephony.voices.get(provider)
    event = None if voice is None else voice.read_status(webhook)
    if event is not None:
        await apply_event(context, event)
    return Response(status_code=204)
