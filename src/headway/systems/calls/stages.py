"""The stages of a lead: `check`, before it takes a line, and `dial`, which places one call."""

from __future__ import annotations

import logging
from typing import NamedTuple

from headway.contract.views import JobQuery, JobView
from headway.core.errors import (
    InvalidValue,
    ProviderRefused,
    ProviderUnsure,
    StoreError,
    StoreMisconfigured,
    UnknownJob,
    UnknownRecord,
)
from headway.core.gates.pool import member_gate
from headway.core.local_time import find_zone
from headway.runtime.handler_results import Dead, Next, Retry, Snooze
from headway.runtime.job import Job
from headway.runtime.timing import persist
from headway.systems.calls.call_events import settle
from headway.systems.calls.catalogue import FRESH_S, CatalogueContents, Number
from headway.systems.calls.checks import LeadRefused, LeadToCheck
from headway.systems.calls.context import CallsContext
from headway.systems.calls.lead import (
    CHECK,
    DIAL,
    NOT_PLACED,
    LeadArgs,
    Outcome,
    judge,
    read_args,
    reason_of,
    refusals,
    this_life,
)
from headway.systems.calls.overview import CountedEvent
from headway.systems.calls.template import Template
from headway.systems.telephony.phone import check_phone
from headway.systems.telephony.providers import CALLEE, dial
from headway.systems.telephony.texts import render
from headway.systems.telephony.voice import CallOrder, CallScript, Fetch, Say

UNAVAILABLE_RETRY = "5s"
"""Delay of a lead while the directory or the source table is unavailable."""

_log = logging.getLogger("headway.calls")


async def check(context: CallsContext, job: Job, args: LeadArgs) -> Next | Snooze:
    """Run the pre-checks of a lead, and return the gates that its template requires now.

    Returns:
        Next stage `dial`, or a snooze if the directory, the source table or the store is
        unavailable.

    Raises:
        Dead: a check refused the lead, its template does not exist, or its phone or time zone is
            not valid.
    """
    try:
        # Intake checks them, but a caller who can create jobs of any kind can pass others.
        check_phone("the phone", args.phone)
        find_zone(args.tz)
    except InvalidValue as error:
        raise Dead(reason_of(Outcome.PRECHECK_FAILED, error.message)) from None
    try:
        template = (await context.catalogue.read({args.template})).template(args.template)
        if template.checks:
            await context.checking.check(template, to_check(job, args))
        # Apply changes made while the checks ran.
        contents = await context.catalogue.read({args.template})
        template = contents.template(args.template)
        await context.declare_gates(contents)
        if context.table is not None and args.row:
            # A dial that finds the table unavailable would count towards the customer's rate.
            await context.table.table.find([args.row])
    except LeadRefused as refused:
        raise Dead(reason_of(Outcome.PRECHECK_FAILED, refused.why)) from None
    except UnknownRecord as gone:
        raise Dead(reason_of(Outcome.PRECHECK_FAILED, gone.message)) from None
    except StoreError as error:
        _log.warning("lead postponed: id=%s error=%s", job.id, error)
        return Snooze(after=UNAVAILABLE_RETRY)
    return Next(DIAL, gates=context.dial_gates(contents, template, job.tenant))


def to_check(job: Job, args: LeadArgs) -> LeadToCheck:
    """Return a lead in the form that checks receive."""
    return LeadToCheck(
        lead_id=job.id,
        phone=args.phone,
        tz=args.tz,
        reseller=job.tenant,
        template=args.template,
        payload=args.payload,
    )


LONGEST_SAY = 4_000
"""Maximum number of characters spoken in a call, with the placeholders filled in."""


async def place_call(context: CallsContext, job: Job, args: LeadArgs) -> Next | None:
    """Call a lead from the number that its pool assigned.

    Nothing outside is touched before the hand-over, so failures until then are retried. After it
    the call is requested once, and only a definite refusal leads to another attempt from here. All
    other outcomes come from webhooks or from querying the provider.

    Returns:
        None after the request to the provider; stage `check` if the job lacks a gate that the lead
        must pass now.

    Raises:
        Dead: a check refused the lead, its template does not exist, its row in the source table is
            not ours and pending, or too many numbers were refused.
        Retry: the provider has definitely not called, or the directory or the store is unavailable.
        InvalidValue: the public URL of this server is not set.
    """
    prepared = await _prepare_call(context, job, args)
    if prepared is None:
        return Next(CHECK)
    number, template = prepared.number, prepared.template
    providers = _providers(context, template, number)
    timing, started = context.timing, context.timing.monotonic()
    await job.hand_over(timeout=f"{context.settings.call_deadline}ms")
    await _mark_running(context, job, args, number)

    def order(provider: str) -> CallOrder:
        if timing.monotonic() - started > context.settings.call_deadline / 1000 / 2:
            # If the provider knows of no call at the deadline, the lead is called again:
            # `reconciling.certain_at` relies on this limit.
            message = "the worker paused too long after the hand-over: the call is not placed"
            raise ProviderUnsure(message, hint="the provider is queried at the deadline")
        return CallOrder(
            ref=job.ref,
            to=args.phone,
            from_=number.number,
            script=prepared.script,
            status_url=context.status_url(provider, job.ref),
            ring_s=template.ring_s,
            limit_s=template.limit_s,
        )

    try:
        dialled = await dial(context.telephony, order, providers)
    except ProviderUnsure as unsure:
        # There may be a call; its webhook or a query of the provider will show it.
        _log.warning("call uncertain: lead=%s provider=%s error=%s", job.id, providers[0], unsure)
        return None
    except ProviderRefused as refused:
        await _settle_refused(context, job, prepared.view, template, number, refused)
        return None
    await job.known_as(f"{dialled.provider}:{dialled.call_id}")
    return None


class _PreparedCall(NamedTuple):
    """What a call needs, read before the hand-over.

    Attributes:
        view: the lead's job, as it was before the call.
    """

    view: JobView
    template: Template
    number: Number
    script: CallScript


async def _prepare_call(context: CallsContext, job: Job, args: LeadArgs) -> _PreparedCall | None:
    """Read what the call of a lead needs, and check the lead again.

    Returns:
        None if the job lacks a gate that the lead must pass now.

    Raises:
        Dead: a check refused the lead, or its template does not exist.
        Retry: the number cannot be used, or the directory or the store is unavailable.
        InvalidValue: the public URL of this server is not set.
    """
    pool, member = next(iter(job.permits.items()))
    try:
        view = await _view(context, job)
        contents = await context.catalogue.read({args.template})
        template = contents.template(args.template)
        if _member(contents, pool, member) is None or _lacks_gates(
            context, contents, template, view
        ):
            contents = await context.catalogue.newest()
            template = contents.template(args.template)
        if _lacks_gates(context, contents, template, view):
            return None
        number = _calling_number(context, contents, pool, member)
        script = _script(template, args)
        await _check_again(context, job, args, template, view)
    except UnknownRecord as gone:
        raise Dead(reason_of(Outcome.PRECHECK_FAILED, gone.message)) from None
    except StoreError as error:
        # Back to its checks: each start of the dial counts towards the customer's rate.
        raise Retry(str(error), after=UNAVAILABLE_RETRY, stage=CHECK) from error
    return _PreparedCall(view, template, number, script)


def _lacks_gates(
    context: CallsContext, contents: CatalogueContents, template: Template, job: JobView
) -> bool:
    """Return whether a lead's gates lack one that its call must pass now.

    The gates were set when the lead was checked. Waiting leads are requeued after a change of the
    catalogue, but a lead can be claimed before that, or be retried by an operator.
    """
    gates = context.dial_gates(contents, template, job.tenant)
    wanted = context.kind.uses(DIAL, job.lane, job.tenant, job.args, gates)
    return not set(wanted) <= set(job.gates)


def _script(template: Template, args: LeadArgs) -> CallScript:
    """Return the script of the call.

    Raises:
        Dead: the text is too long; no provider is queried.
    """
    if template.fetch is not None:
        return Fetch(url=template.fetch)
    words = render(template.say, args.payload)
    if len(words) > LONGEST_SAY:
        why = f"the text to speak is longer than {LONGEST_SAY} characters"
        raise Dead(reason_of(Outcome.PRECHECK_FAILED, why))
    return Say(text=words)


def _member(contents: CatalogueContents, pool: str, number: str) -> Number | None:
    """Return the number of a pool's member; None if the number is not in this pool."""
    found = contents.numbers.get(number)
    return found if found is not None and found.gate == pool else None


def _calling_number(
    context: CallsContext, contents: CatalogueContents, pool: str, member: str
) -> Number:
    """Return the number behind a pool's member.

    Raises:
        Retry: the number is not in the pool, or its provider not in the settings; the number is
            closed there for `number_rest`.
        InvalidValue: the public URL of this server is not set.
    """
    if not context.parts.base_url:
        message = "call providers cannot reach this server: its public URL is not set"
        raise InvalidValue(message, hint="set public_url, for workers too")
    number = _member(contents, pool, member)
    why = "" if number is not None else f"it is not in {pool}"
    if number is not None and number.provider not in context.telephony.voices:
        why = f"its provider {number.provider!r} is not configured"
    if number is None or why:
        raise Retry(
            reason_of(Outcome.NUMBER_UNAVAILABLE, f"{member}: {why}"),
            after=f"{context.settings.number_rest}ms",
            close=member_gate(pool, member),
            stage=CHECK,
        )
    return number


def _providers(context: CallsContext, template: Template, number: Number) -> list[str]:
    """Return the number's provider, then the configured ones of the template."""
    known = context.telephony.voices
    others = (one for one in template.providers if one in known)
    return list(dict.fromkeys((number.provider, *others)))


async def _check_again(
    context: CallsContext, job: Job, args: LeadArgs, template: Template, view: JobView
) -> None:
    """Repeat the checks if they are too old, or if the template's checks have changed since.

    Raises:
        Dead: a check refused the lead.
    """
    if not template.checks:
        return
    claimed_at = view.runs[-1].claimed_at
    last = next((one for one in reversed(view.runs) if one.stage == CHECK), None)
    if (
        last is not None
        and claimed_at - (last.ended_at or 0) <= template.check_valid
        # The process that checked it may have used a cached catalogue.
        and last.claimed_at > template.checks_at + FRESH_S * 1_500
    ):
        return
    try:
        await context.checking.check_again(template, to_check(job, args))
    except LeadRefused as refused:
        raise Dead(reason_of(Outcome.PRECHECK_FAILED, refused.why)) from None


async def _mark_running(context: CallsContext, job: Job, args: LeadArgs, number: Number) -> None:
    """Mark the lead's row in the source table as running.

    Raises:
        Dead: the row is not ours, or not pending.
        Retry: the table is unavailable or may not be changed; no call was placed.
    """
    if context.table is None or not args.row:
        return
    try:
        await context.table.before_dial(args.row, ref=job.ref, number=number.number)
    except StoreError as error:
        reason = f"{NOT_PLACED}: {error}"
        # Until a setting is corrected, the delay grows: each attempt counts towards a rate.
        after = None if isinstance(error, StoreMisconfigured) else UNAVAILABLE_RETRY
        raise Retry(reason, after=after, stage=CHECK) from error


async def _settle_refused(
    context: CallsContext,
    job: Job,
    view: JobView,
    template: Template,
    number: Number,
    refused: ProviderRefused,
) -> None:
    """Settle a lead whose call the provider definitely refused.

    Args:
        view: the job as it was before the call.

    Raises:
        Retry: the lead is called again, from another number if this one was refused.
        Dead: too many numbers were refused.
    """
    args = read_args(view.args)
    _log.warning("call refused: lead=%s number=%s error=%s", job.id, number.number, refused)
    code, detail = refused.provider_code, refused.message
    if code not in detail:
        detail = f"{code} {detail}"
    if refused.concerns == CALLEE:
        verdict = judge(view, job.run, template, Outcome.FAILED, detail)
        if verdict.final != "retry":
            event = f"refused:{job.ref}"
            await persist(
                context.timing,
                f"lead {job.id}: storing the refusal of its call",
                lambda: settle(context, view, job.run, Outcome.FAILED, event, detail=detail),
            )
            return
        context.tally.happened(CountedEvent.OUTCOME, Outcome.FAILED)
        await _put_row_back(context, job, args)
        raise Retry(verdict.reason, after=f"{verdict.after_ms}ms", stage=CHECK)
    context.tally.happened(CountedEvent.OUTCOME, Outcome.NUMBER_UNAVAILABLE)
    reason = reason_of(Outcome.NUMBER_UNAVAILABLE, detail)
    if refusals(this_life(view)) + 1 >= context.settings.most_refused:
        raise Dead(reason)
    rest_ms = refused.retry_after_ms
    if rest_ms is None:
        settings, sender = context.settings, refused.concerns == "sender"
        rest_ms = settings.number_rest if sender else settings.provider_rest
    # The number is closed to all leads for a while; this lead gets another at once.
    job.close(member_gate(number.gate, number.number), after=f"{max(1, rest_ms)}ms", reason=reason)
    await _put_row_back(context, job, args)
    raise Retry(reason, after="0s", stage=CHECK)


async def _put_row_back(context: CallsContext, job: Job, args: LeadArgs) -> None:
    if context.table is None or not args.row:
        return
    try:
        await context.table.put_back(args.row, ref=job.ref)
    except StoreError as error:
        # `before_dial` of the next call accepts a row that names an ended run of the same job.
        _log.warning("row update postponed: row=%s error=%s", args.row, error)


async def _view(context: CallsContext, job: Job) -> JobView:
    view = await context.store.read(JobQuery(id=job.id))
    if view is None:
        message = f"there is no job {job.id}"
        raise UnknownJob(message, hint="it was removed while it was running")
    return view
