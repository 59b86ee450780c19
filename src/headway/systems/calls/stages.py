"""The stages of a lead: checked before any line is asked for; then called from a line, once."""

from __future__ import annotations

import logging

import msgspec

from headway.contract.signals import Signal
from headway.contract.views import JobQuery, JobView
from headway.core.errors import (
    InvalidValue,
    ProviderRefused,
    ProviderUnsure,
    StoreError,
    UnknownJob,
    UnknownRecord,
)
from headway.core.gates.pool import member_gate
from headway.runtime.answers import Dead, Next, Retry, Snooze
from headway.runtime.job import Job
from headway.runtime.timing import persist
from headway.systems.calls.catalogue import FRESH_S, CatalogueContents, Number
from headway.systems.calls.checks import Checked, Refused
from headway.systems.calls.context import CallsContext
from headway.systems.calls.lead import (
    CHECK,
    DIAL,
    LeadArgs,
    Outcome,
    judge,
    reason_of,
    refusals,
    this_life,
)
from headway.systems.calls.overview import Event
from headway.systems.calls.template import Template
from headway.systems.telephony.exchange import CALLEE, dial
from headway.systems.telephony.texts import render
from headway.systems.telephony.voice import CallOrder, Fetch, Say, Script

AWAY = "5s"
"""How long a lead is put off while the directory does not answer."""

_log = logging.getLogger("headway.calls")


async def check(context: CallsContext, job: Job, args: LeadArgs) -> Next | Snooze:
    """Check a lead, and send it on to the gates that its template names now.

    Returns:
        On to `dial`; or later, if the directory is away.

    Raises:
        Dead: a check says no.
    """
    try:
        template = (await context.catalogue.read()).template(args.template)
        if template.checks:
            await context.checking.check(template, checked(job, args))
        # What was changed while the checks ran holds already.
        page = await context.catalogue.read()
        template = page.template(args.template)
        await context.declare_gates(page)
    except Refused as refused:
        raise Dead(reason_of(Outcome.PRECHECK_FAILED, refused.why)) from None
    except UnknownRecord as gone:
        raise Dead(reason_of(Outcome.PRECHECK_FAILED, gone.message)) from None
    except StoreError as away:
        _log.warning("lead %s is put off: %s", job.id, away)
        return Snooze(after=AWAY)
    return Next(DIAL, gates=context.dial_gates(page, template, job.tenant))


def checked(job: Job, args: LeadArgs) -> Checked:
    """Return a lead as checks see it."""
    return Checked(
        lead_id=job.id,
        phone=args.phone,
        tz=args.tz,
        reseller=job.tenant,
        template=args.template,
        payload=args.payload,
    )


LONGEST_SAY = 4_000
"""Characters that are said in a call, with all that a lead carries."""


async def place_call(context: CallsContext, job: Job, args: LeadArgs) -> Next | Snooze | None:
    """Call a lead from the number that it was given.

    Before the hand-over nothing outside is touched: any failure there is retried. After it the call
    is requested once, and only a definite refusal leads to another attempt from here; everything
    else is reported by the webhook, or by the provider when it is asked.

    Returns:
        None once the provider was asked; back to `check` if the lead has not passed all gates that
        it must pass by now; or later, if the directory is away.

    Raises:
        Dead: a check says no, or your own table does, or no further attempt is wanted.
        Retry: the provider has definitely not called.
        InvalidValue: the public URL of this server is not known.
    """
    pool, member = next(iter(job.permits.items()))
    try:
        view = await _view(context, job)
        page = await context.catalogue.read()
        template = page.template(args.template)
        if member not in page.numbers or _lacks(context, page, template, view):
            page = await context.catalogue.newest()
            template = page.template(args.template)
        if _lacks(context, page, template, view):
            return Next(CHECK)
        number = _usable(context, page, pool, member)
        script = _script(template, args)
        await _check_again(context, job, args, template, view)
    except UnknownRecord as gone:
        raise Dead(reason_of(Outcome.PRECHECK_FAILED, gone.message)) from None
    except StoreError as away:
        _log.warning("lead %s is put off: %s", job.id, away)
        return Snooze(after=AWAY)
    providers = _providers(context, template, number)
    timing, begun = context.timing, context.timing.monotonic()
    await job.hand_over(timeout=f"{context.settings.call_deadline}ms")
    await _begin(context, job, args, number)

    def order(provider: str) -> CallOrder:
        if timing.monotonic() - begun > context.settings.call_deadline / 1000 / 2:
            # At the deadline the provider may say that there is no call, and the lead is called
            # again: `reconciling.certain_at` relies on it.
            message = "the worker stood still between the hand-over and the call: none is placed"
            raise ProviderUnsure(message, hint="the lead goes on at its deadline")
        return CallOrder(
            ref=job.ref,
            to=args.phone,
            from_=number.number,
            script=script,
            status_url=context.status_url(provider, job.ref),
            ring_s=template.ring_s,
            limit_s=template.limit_s,
        )

    try:
        dialled = await dial(context.exchange, order, providers)
    except ProviderUnsure as unsure:
        # There may be a call: its webhook shows it, or the provider when it is asked.
        _log.warning("lead %s: whether %s calls is not known: %s", job.id, providers[0], unsure)
        return None
    except ProviderRefused as refused:
        await _refused(context, job, args, template, number, refused)
        return None
    await job.known_as(f"{dialled.provider}:{dialled.call_id}")
    return None


def _lacks(
    context: CallsContext, page: CatalogueContents, template: Template, job: JobView
) -> bool:
    """Return whether a lead's gates lack one that its call must pass now.

    Its gates were named when it was checked. Those who wait are looked through after a change of
    the catalogue; but one may be claimed before its turn, or be given another life by an operator.
    """
    gates = context.dial_gates(page, template, job.tenant)
    wanted = context.kind.uses(DIAL, job.lane, job.tenant, job.args, gates)
    return not set(wanted) <= set(job.gates)


def _script(template: Template, args: LeadArgs) -> Script:
    """Return what happens in the call.

    Raises:
        Dead: its words are more than are said in a call; no provider needs to be asked for that.
    """
    if template.fetch is not None:
        return Fetch(url=template.fetch)
    words = render(template.say, args.payload)
    if len(words) > LONGEST_SAY:
        why = f"what is to be said is longer than {LONGEST_SAY} characters"
        raise Dead(reason_of(Outcome.PRECHECK_FAILED, why))
    return Say(text=words)


def _usable(context: CallsContext, page: CatalogueContents, pool: str, member: str) -> Number:
    """Return the number behind a pool's member.

    Raises:
        Retry: the directory or the settings do not have it; it is not assigned for a while.
        InvalidValue: the public URL of this server is not known.
    """
    if not context.parts.base_url:
        message = "providers of calls cannot reach this server: its public URL is not set"
        raise InvalidValue(message, hint="set public_url, for workers too")
    number = page.numbers.get(member)
    why = "" if number is not None else "the directory does not know it"
    if number is not None and number.provider not in context.exchange.voices:
        why = f"no provider is called {number.provider!r}"
    if number is None or why:
        raise Retry(
            reason_of(Outcome.NUMBER_UNAVAILABLE, f"{member}: {why}"),
            after=f"{context.settings.number_rest}ms",
            close=member_gate(pool, member),
            stage=CHECK,
        )
    return number


def _providers(context: CallsContext, template: Template, number: Number) -> list[str]:
    """Return the number's provider, then those of the template that the settings have too."""
    known = context.exchange.voices
    others = (one for one in template.providers if one in known)
    return list(dict.fromkeys((number.provider, *others)))


async def _check_again(
    context: CallsContext, job: Job, args: LeadArgs, template: Template, view: JobView
) -> None:
    """Make the checks again if they are too old by now, or were others.

    Raises:
        Dead: one says no.
    """
    if not template.checks:
        return
    claimed_at = view.runs[-1].claimed_at
    last = next((one for one in reversed(view.runs) if one.stage == CHECK), None)
    if (
        last is not None
        and claimed_at - (last.ended_at or 0) <= template.check_valid
        # The process that checked it may have read the catalogue a moment before.
        and last.claimed_at > template.checks_at + FRESH_S * 1_500
    ):
        return
    try:
        await context.checking.check_again(template, checked(job, args))
    except Refused as refused:
        raise Dead(reason_of(Outcome.PRECHECK_FAILED, refused.why)) from None


async def _begin(context: CallsContext, job: Job, args: LeadArgs, number: Number) -> None:
    """Write the begin of the call to your own table.

    Raises:
        Dead: the row is not ours, or not pending.
        Retry: the table is away; no call was placed.
    """
    if context.table is None or not args.row:
        return
    try:
        await context.table.before_dial(args.row, ref=job.ref, number=number.number)
    except StoreError as away:
        raise Retry(reason_of(Outcome.NUMBER_UNAVAILABLE, str(away)), after=AWAY, stage=CHECK)  # noqa: B904  (all of it is in the reason)


async def _refused(
    context: CallsContext,
    job: Job,
    args: LeadArgs,
    template: Template,
    number: Number,
    refused: ProviderRefused,
) -> None:
    """Settle a lead whose call the provider definitely refused.

    Raises:
        Retry: another attempt is wanted.
        Dead: the provider would call from no number.
    """
    view = await _view(context, job)
    _log.warning("lead %s from %s: %s", job.id, number.number, refused)
    code, detail = refused.provider_code, refused.message
    if code not in detail:
        detail = f"{code} {detail}"
    if refused.concerns == CALLEE:
        context.tally.happened(Event.OUTCOME, Outcome.FAILED)
        verdict = judge(view, job.run, template, Outcome.FAILED, detail)
        if verdict.final != "retry":
            body = {"outcome": Outcome.FAILED, "number": number.number}
            ended = Signal(
                key=job.ref,
                event=f"refused:{job.ref}",
                reason=verdict.reason,
                body=msgspec.json.encode(body),
            )
            what = f"lead {job.id}: the refusal of its call"
            await persist(context.timing, what, lambda: context.store.signal(ended))
            return
        await _again(context, job, args)
        raise Retry(verdict.reason, after=f"{verdict.after_ms}ms", stage=CHECK)
    context.tally.happened(Event.OUTCOME, Outcome.NUMBER_UNAVAILABLE)
    reason = reason_of(Outcome.NUMBER_UNAVAILABLE, detail)
    if refusals(this_life(view)) + 1 >= context.settings.most_refused:
        raise Dead(reason)
    rest_ms = refused.retry_after_ms
    if rest_ms is None:
        settings, sender = context.settings, refused.concerns == "sender"
        rest_ms = settings.number_rest if sender else settings.provider_rest
    # Others are not given this number meanwhile; this lead asks for another at once.
    job.close(member_gate(number.gate, number.number), after=f"{max(1, rest_ms)}ms", reason=reason)
    await _again(context, job, args)
    raise Retry(reason, after="0s", stage=CHECK)


async def _again(context: CallsContext, job: Job, args: LeadArgs) -> None:
    if context.table is None or not args.row:
        return
    try:
        await context.table.again(args.row, ref=job.ref)
    except StoreError as away:
        # The next call begins there anyway: its row names a run that is over.
        _log.warning("row %s is put back later: %s", args.row, away)


async def _view(context: CallsContext, job: Job) -> JobView:
    view = await context.store.read(JobQuery(id=job.id))
    if view is None:
        message = f"there is no job {job.id}"
        raise UnknownJob(message, hint="it was removed while it ran")
    return view
