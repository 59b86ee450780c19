"""The stages of a lead: checked before any line is asked for; then called from a line, once."""

from __future__ import annotations

import logging

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
from headway.systems.calls.book import FRESH_S, Number, Page
from headway.systems.calls.checks import Checked, Refused
from headway.systems.calls.desk import CHECK, DIAL, Desk
from headway.systems.calls.lead import LeadArgs, Outcome, judge, reason_of, refusals, this_life
from headway.systems.calls.seen.sight import Event
from headway.systems.calls.template import Template
from headway.systems.telephony.exchange import CALLEE, dial
from headway.systems.telephony.texts import render
from headway.systems.telephony.voice import CallOrder, Fetch, Say, Script

AWAY = "5s"
"""How long a lead is put off while the directory does not answer."""

_log = logging.getLogger("headway.calls")


async def check(desk: Desk, job: Job, args: LeadArgs) -> Next | Snooze:
    """Checks a lead, and sends it on to the gates that its template names now.

    Args:
        desk: of this system.
        job: the lead's.
        args: its own.

    Returns:
        On to `dial`; or later, if the directory is away.

    Raises:
        Dead: a check says no.
    """
    try:
        template = (await desk.book.read()).template(args.template)
        if template.checks:
            await desk.checking.check(template, checked(job, args))
        # What was changed while the checks ran holds already.
        page = await desk.book.read()
        template = page.template(args.template)
        await desk.tell_gates(page)
    except Refused as refused:
        raise Dead(reason_of(Outcome.PRECHECK_FAILED, refused.why)) from None
    except UnknownRecord as gone:
        raise Dead(reason_of(Outcome.PRECHECK_FAILED, gone.message)) from None
    except StoreError as away:
        _log.warning("lead %s is put off: %s", job.id, away)
        return Snooze(after=AWAY)
    return Next(DIAL, gates=desk.dial_gates(page, template, job.tenant))


def checked(job: Job, args: LeadArgs) -> Checked:
    """A lead as checks see it."""
    return Checked(
        id=job.id,
        phone=args.phone,
        tz=args.tz,
        reseller=job.tenant,
        template=args.template,
        payload=args.payload,
    )


LONGEST_SAY = 4_000
"""Characters that are said in a call, with all that a lead carries."""


async def place_call(desk: Desk, job: Job, args: LeadArgs) -> Next | Snooze | None:
    """Calls a lead from the number that it was given.

    Up to the hand-over nothing outside is touched: whatever fails there is tried again. After it
    the provider is asked once, and only a definite refusal leads to another attempt from here;
    all else is told by the webhook, or by the provider when it is asked.

    Args:
        desk: of this system.
        job: the lead's, with its line.
        args: its own.

    Returns:
        None once the provider was asked; back to `check` if the lead has not passed all gates that
        it must pass by now; or later, if the directory is away.

    Raises:
        Dead: a check says no, or your own table does, or no further attempt is wanted.
        Retry: the provider has definitely not called.
        InvalidValue: nobody knows how a provider reaches this server.
    """
    pool, member = next(iter(job.permits.items()))
    try:
        view = await _view(desk, job)
        page = await desk.book.read()
        template = page.template(args.template)
        if member not in page.numbers or _lacks(desk, page, template, view):
            page = await desk.book.newest()
            template = page.template(args.template)
        if _lacks(desk, page, template, view):
            return Next(CHECK)
        number = _usable(desk, page, pool, member)
        script = _script(template, args)
        await _check_again(desk, job, args, template, view)
    except UnknownRecord as gone:
        raise Dead(reason_of(Outcome.PRECHECK_FAILED, gone.message)) from None
    except StoreError as away:
        _log.warning("lead %s is put off: %s", job.id, away)
        return Snooze(after=AWAY)
    providers = _providers(desk, template, number)
    timing, begun = desk.parts.timing, desk.parts.timing.monotonic()
    await job.hand_over(timeout=f"{desk.settings.call_deadline}ms")
    await _begin(desk, job, args, number)

    def order(provider: str) -> CallOrder:
        if timing.monotonic() - begun > desk.settings.call_deadline / 1000 / 2:
            # At the deadline the provider may say that there is no call, and the lead is called
            # anew: `reconciling.certain_at` relies on it.
            message = "the worker stood still between the hand-over and the call: none is placed"
            raise ProviderUnsure(message, hint="the lead goes on at its deadline")
        return CallOrder(
            ref=job.ref,
            to=args.phone,
            from_=number.number,
            script=script,
            status_url=desk.status_url(provider, job.ref),
            ring_s=template.ring_s,
            limit_s=template.limit_s,
        )

    try:
        dialled = await dial(desk.parts.exchange, order, providers)
    except ProviderUnsure as unsure:
        # There may be a call: its webhook tells, or the provider when it is asked.
        _log.warning("lead %s: whether %s calls is not known: %s", job.id, providers[0], unsure)
        return None
    except ProviderRefused as refused:
        await _refused(desk, job, args, template, number, refused)
        return None
    await job.known_as(f"{dialled.provider}:{dialled.call_id}")
    return None


def _lacks(desk: Desk, page: Page, template: Template, job: JobView) -> bool:
    """Whether a lead that was let pass has not passed all that it must pass now.

    Its gates were named when it was checked. Those who wait are looked through after a change of
    the book; but one may be claimed before its turn, or be given another life by an operator.
    """
    gates = desk.dial_gates(page, template, job.tenant)
    wanted = desk.kind.uses(DIAL, job.lane, job.tenant, job.args, gates)
    return not set(wanted) <= set(job.gates)


def _script(template: Template, args: LeadArgs) -> Script:
    """What happens in the call.

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


def _usable(desk: Desk, page: Page, pool: str, member: str) -> Number:
    """The number behind a pool's member.

    Raises:
        Retry: the directory or the settings do not know it; nobody is given it for a while.
        InvalidValue: nobody knows how a provider reaches this server.
    """
    if not desk.parts.base_url:
        message = "nobody knows how a provider reaches this server to tell how a call goes on"
        raise InvalidValue(message, hint="set public_url, for workers too")
    number = page.numbers.get(member)
    why = "" if number is not None else "the directory does not know it"
    if number is not None and number.provider not in desk.parts.exchange.voices:
        why = f"no provider is called {number.provider!r}"
    if number is None or why:
        raise Retry(
            reason_of(Outcome.NUMBER_UNAVAILABLE, f"{member}: {why}"),
            after=f"{desk.settings.number_rest}ms",
            close=member_gate(pool, member),
            stage=CHECK,
        )
    return number


def _providers(desk: Desk, template: Template, number: Number) -> list[str]:
    """The number's own provider, then those that the template names and the settings have."""
    known = desk.parts.exchange.voices
    others = (one for one in template.providers if one in known)
    return list(dict.fromkeys((number.provider, *others)))


async def _check_again(
    desk: Desk, job: Job, args: LeadArgs, template: Template, view: JobView
) -> None:
    """Makes the checks again if they are too old by now, or were others.

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
        # Who checked it may have read the book a moment before.
        and last.claimed_at > template.checks_at + FRESH_S * 1_500
    ):
        return
    try:
        await desk.checking.check_again(template, checked(job, args))
    except Refused as refused:
        raise Dead(reason_of(Outcome.PRECHECK_FAILED, refused.why)) from None


async def _begin(desk: Desk, job: Job, args: LeadArgs, number: Number) -> None:
    """Tells your own table that the call begins.

    Raises:
        Dead: the row is not ours, or not pending.
        Retry: the table is away; nobody was called.
    """
    if desk.table is None or not args.row:
        return
    try:
        await desk.table.before_dial(args.row, ref=job.ref, number=number.number)
    except StoreError as away:
        raise Retry(reason_of(Outcome.NUMBER_UNAVAILABLE, str(away)), after=AWAY, stage=CHECK)  # noqa: B904  (all of it is in the reason)


async def _refused(
    desk: Desk,
    job: Job,
    args: LeadArgs,
    template: Template,
    number: Number,
    refused: ProviderRefused,
) -> None:
    """Decides what becomes of a lead that a provider would definitely not call.

    Raises:
        Retry: another attempt is wanted.
        Dead: none is.
    """
    view = await _view(desk, job)
    _log.warning("lead %s from %s: %s", job.id, number.number, refused)
    code, detail = refused.provider_code, refused.message
    if code not in detail:
        detail = f"{code} {detail}"
    if refused.concerns == CALLEE:
        desk.tally.happened(Event.OUTCOME, Outcome.FAILED)
        verdict = judge(view, job.run, template, Outcome.FAILED, detail)
        if verdict.final == "dead":
            raise Dead(verdict.reason)
        await _again(desk, job, args)
        raise Retry(verdict.reason, after=f"{verdict.after_ms}ms", stage=CHECK)
    desk.tally.happened(Event.OUTCOME, Outcome.NUMBER_UNAVAILABLE)
    reason = reason_of(Outcome.NUMBER_UNAVAILABLE, detail)
    if refusals(this_life(view)) + 1 >= desk.settings.most_refused:
        raise Dead(reason)
    rest_ms = refused.retry_after_ms
    if rest_ms is None:
        settings, sender = desk.settings, refused.concerns == "sender"
        rest_ms = settings.number_rest if sender else settings.provider_rest
    # Others are not given this number meanwhile; this lead asks for another at once.
    job.close(member_gate(number.gate, number.number), after=f"{max(1, rest_ms)}ms", reason=reason)
    await _again(desk, job, args)
    raise Retry(reason, after="0s", stage=CHECK)


async def _again(desk: Desk, job: Job, args: LeadArgs) -> None:
    if desk.table is None or not args.row:
        return
    try:
        await desk.table.again(args.row, ref=job.ref)
    except StoreError as away:
        # The next call begins there anyway: its row names a run that is over.
        _log.warning("row %s is put back later: %s", args.row, away)


async def _view(desk: Desk, job: Job) -> JobView:
    view = await desk.store.read(JobQuery(id=job.id))
    if view is None:
        message = f"there is no job {job.id}"
        raise UnknownJob(message, hint="it was removed while it ran")
    return view
