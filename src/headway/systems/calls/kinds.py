"""The kinds of this system: a lead, and what follows its end."""

from __future__ import annotations

from typing import Any

from headway.core.gates.slots import Slots
from headway.core.retry import Backoff
from headway.runtime.answers import Ended, Next, Running, Snooze, Unknown
from headway.runtime.app import App
from headway.runtime.awaited import Awaited
from headway.runtime.job import Job
from headway.runtime.kind import Kind
from headway.systems.calls.check_stage import check
from headway.systems.calls.desk import AFTER, CHECK, DIAL, FINISHED, LANE, LEAD, Desk
from headway.systems.calls.dial_stage import place_call
from headway.systems.calls.finished import REPORT, TELL, finish, report
from headway.systems.calls.gates import REPORTS, house_gate
from headway.systems.calls.lead_args import LeadArgs
from headway.systems.calls.reconciling import ask as ask_provider
from headway.systems.calls.template import DEFAULT

MANY = Backoff(attempts=100_000, base="5s", cap="5m")
"""What is tried again because it failed here; calls are counted by their template."""
PATIENCE = "1d"
"""How long a line is kept if nobody is there to ask the provider: it may be under a live call."""
AFTERWARDS = Backoff(attempts=20, base="5s", cap="1h")


def declare_kinds(app: App, desk: Desk) -> Kind:
    """Adds the kinds of this system to an app.

    Returns:
        The kind of leads.
    """
    app.lane(LANE, fair="tenant")
    settings = desk.settings

    reports = Slots(REPORTS, settings.reports_at_once).take(hold="run")

    @app.job(name=FINISHED, lane=AFTER, retry=AFTERWARDS, stages={TELL: [], REPORT: [reports]})
    async def finished(job: str, state: str, reason: str) -> Next | None:
        del reason
        return await finish(desk, job, state)

    @finished.stage(REPORT)
    async def reported(task: Job, job: str, state: str) -> None:
        await report(desk, task, job, state)

    async def ask(awaited: Awaited) -> Running | Ended | Unknown:
        return await ask_provider(desk, awaited)

    @app.job(
        name=LEAD,
        lane=LANE,
        stages={CHECK: list(desk.check_gates), DIAL: [house_gate(settings)]},
        subject="{phone}",
        retry=MANY,
        reconcile=ask,
        reconcile_within=PATIENCE,
        keep=f"{settings.keep}ms",
        on_final=FINISHED,
        on_final_states=("succeeded", "dead", "cancelled"),
    )
    async def lead(  # noqa: PLR0913, PLR0917  (what a lead carries)
        job: Job,
        phone: str,
        tz: str,
        template: str = DEFAULT,
        payload: Any = None,  # noqa: ANN401  (whatever the template's schema lets pass)
        reporting_webhook_url: str | None = None,
        row: str = "",
    ) -> Next | Snooze:
        args = LeadArgs(
            phone=phone,
            tz=tz,
            template=template,
            payload=payload,
            reporting_webhook_url=reporting_webhook_url,
            row=row,
        )
        return await check(desk, job, args)

    @lead.stage(DIAL)
    async def call(
        job: Job,
        phone: str,
        tz: str,
        template: str = DEFAULT,
        payload: Any = None,  # noqa: ANN401  (whatever the template's schema lets pass)
        row: str = "",
    ) -> Next | Snooze | None:
        args = LeadArgs(phone=phone, tz=tz, template=template, payload=payload, row=row)
        return await place_call(desk, job, args)

    desk.declared(app, lead)
    return lead
