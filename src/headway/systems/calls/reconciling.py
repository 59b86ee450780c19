"""Query the provider about a call whose end was not reported."""

from __future__ import annotations

import logging

from headway.contract.signals import Signal, SignalKind, SignalResult
from headway.contract.views import JobQuery, JobView, RunView, StatsQuery
from headway.core.errors import ProviderError, ProviderUnsure, StoreError
from headway.runtime.handler_results import Ended, Running, Unknown
from headway.runtime.reconciliation import Awaited
from headway.systems.calls.call_events import (
    call_key,
    known_call,
    number_of,
    placed_ref,
    put_back,
    settle,
    template_of,
)
from headway.systems.calls.context import CallsContext
from headway.systems.calls.lead import (
    CHECK,
    NOT_PLACED,
    OF_STATUS,
    LeadArgs,
    Outcome,
    read_args,
    this_life,
    was_not_placed,
)
from headway.systems.calls.overview import CountedEvent
from headway.systems.calls.template import CallsSettings
from headway.systems.telephony.voice import CallEvent, NotFound, Sought, call_of

_log = logging.getLogger("headway.calls")


async def ask(context: CallsContext, awaited: Awaited) -> Running | Ended | Unknown:
    """Query the provider for a call's status.

    Args:
        awaited: the lead's job, in doubt or at its deadline.

    Returns:
        `Running` if the call continues or the provider cannot say yet: the line stays occupied.
        `Ended` if the provider lists no call at the deadline, so it was never placed, and the lead
        goes back to its checks. `Unknown` if the call has ended, or if it counts as lost because
        that is not certain: then its run has been settled; or if it is no longer the current run.
    """
    job = await context.store.read(JobQuery(id=awaited.id))
    if job is None or job.run != awaited.run:
        return Unknown()
    run = next(one for one in job.runs if one.run == awaited.run)
    try:
        return await _reconcile_run(context, job, run)
    except (ProviderError, StoreError) as error:
        # The call may be live: its line stays occupied.
        _log.warning("call status query failed: lead=%s error=%s", job.id, error)
        return Running(extend=f"{context.settings.ask_again}ms")


async def _reconcile_run(
    context: CallsContext, job: JobView, run: RunView
) -> Running | Ended | Unknown:
    """Query the provider, and settle the run if its call has ended or counts as lost.

    Raises:
        ProviderError: a provider did not reply, or refused.
        StoreError: the store, the directory or the source table is unavailable.
    """
    # Taken before the query, because a call can start during it.
    now = (await context.store.read(StatsQuery())).now
    left_ms = (run.handed_at or 0) + context.settings.call_deadline - now
    event = await _look_up(context, job, run, read_args(job.args))
    if isinstance(event, NotFound):
        if left_ms > 0:
            # Until the deadline the call may still start, or its webhook arrive.
            return Running(extend=f"{left_ms}ms")
        if event is NotFound.NO_CALL and run.handed_at:
            unlisted_ms = certain_at(run.handed_at, context.settings) - now
            if unlisted_ms > 0:
                return Running(extend=f"{unlisted_ms}ms")
            if sum(map(was_not_placed, this_life(job))) < context.settings.most_refused:
                return await _not_placed(context, job, run)
        return await _settle(context, job, run, Outcome.WEBHOOK_LOST, lost=True)
    if not event.status.ended:
        if job.cancel_requested:
            # The lead was cancelled before the call's id was known.
            await context.telephony.voice(event.provider).hang_up(event.call_id)
        extend_ms = left_ms if left_ms > 0 else context.settings.ask_again
        return Running(extend=f"{extend_ms}ms", known_as=call_key(event))
    return await _settle(context, job, run, OF_STATUS[event.status], event, lost=left_ms <= 0)


def certain_at(handed_at: int, settings: CallsSettings) -> int:
    """Return the time, ms UTC, from which an unlisted call was definitely never placed.

    No worker requests a call later than half the deadline after the hand-over (see
    `stages.place_call`), and providers list requested calls within `listing_lag`.

    Args:
        handed_at: time of the hand-over, ms UTC.
    """
    return handed_at + settings.call_deadline // 2 + settings.listing_lag


async def _not_placed(context: CallsContext, job: JobView, run: RunView) -> Ended:
    """Return the result for a call that was never placed, which does not count as an attempt."""
    _log.warning("call was never placed: lead=%s run=%d", job.id, run.run)
    await put_back(context, job, run.run)
    return Ended(
        "retry",
        reason=f"{NOT_PLACED}: the provider knows of no such call",
        after="0s",
        stage=CHECK,
    )


async def _settle(
    context: CallsContext,
    job: JobView,
    run: RunView,
    outcome: Outcome,
    event: CallEvent | None = None,
    *,
    lost: bool,
) -> Unknown:
    """End a run whose end was not reported.

    Args:
        event: how the call ended; None if that is unknown.
        lost: whether the webhook of its end counts as lost.

    Returns:
        That nothing is left to do.
    """
    event_id = f"lost:{job.id}:{run.run}" if event is None else event.event
    answer = await settle(context, job, run.run, outcome, event_id, event)
    if lost and answer is SignalResult.APPLIED:
        context.tally.happened(CountedEvent.WEBHOOK_LOST, number_of(job, run.run))
    return Unknown()


async def _look_up(
    context: CallsContext, job: JobView, run: RunView, args: LeadArgs
) -> CallEvent | NotFound:
    """Query all providers that may have placed the call, the likely ones first.

    Returns:
        The call's status. `NO_CALL` only if all were queried and none lists a matching call, apart
        from calls of other leads; otherwise `UNCLEAR`.

    Raises:
        ProviderError: one did not reply, or refused.
        ProviderUnsure: none of them is in the settings any more.
    """
    voices = context.telephony.voices
    number = number_of(job, run.run)
    call = known_call(job, run)
    others = [known[1] for one in job.runs if one is not run and (known := call_of(one))]
    unclear = call is not None
    if call is not None:
        named: tuple[str, ...] = (call[0],)
    else:
        contents = await context.catalogue.read()
        own = contents.numbers.get(number)
        first = () if own is None else (own.provider,)
        # It is not recorded which provider was requested to call, and the number or the template
        # may have changed since, so all are queried.
        named = (*first, *(await template_of(context, job)).providers, *voices)
        # The provider of a removed number may have been removed as well.
        unclear = own is None or not set(named) <= set(voices)
    names = [one for one in dict.fromkeys(named) if one in voices]
    sought = Sought(
        ref=placed_ref(job, run),
        to=args.phone,
        from_=number,
        since=run.handed_at or run.claimed_at,
        call_id=None if call is None else call[1],
        others=others,
    )
    for name in names:
        found = await voices[name].look_up(sought)
        if isinstance(found, NotFound):
            unclear = unclear or found is NotFound.UNCLEAR
        elif call is not None or not await _is_call_of_another_lead(context, job, found):
            return found
    if not names:
        message = "none of the providers that may have placed the call is configured any more"
        raise ProviderUnsure(message, hint="add the number's provider to [telephony] again")
    return NotFound.UNCLEAR if unclear else NotFound.NO_CALL


async def _is_call_of_another_lead(context: CallsContext, job: JobView, found: CallEvent) -> bool:
    """Return whether a matching call belongs to another lead with the same phone and number.

    It sends a note, because the store finds a job by a call's key only for a signal.
    """
    label = f"looked up for {job.id}"
    reply = await context.store.signal(
        Signal(
            key=call_key(found),
            event=f"{found.event}:{job.id}",
            kind=SignalKind.NOTE,
            label=label,
        )
    )
    return reply.job not in {None, job.id}
