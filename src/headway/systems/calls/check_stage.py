"""The stage `check`: what is asked of a lead that is due, before any line is asked for."""

from __future__ import annotations

import logging

from headway.core.errors import StoreError, UnknownRecord
from headway.runtime.answers import Dead, Next, Snooze
from headway.runtime.job import Job
from headway.systems.calls.checks.check import Checked, Refused
from headway.systems.calls.desk import DIAL, Desk
from headway.systems.calls.lead_args import LeadArgs
from headway.systems.calls.outcome import Outcome, reason_of

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
