"""The kinds of this system: a lead, and what follows its end."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from headway.contract.views import JobQuery, JobView
from headway.core.gates.slots import Slots
from headway.core.retry import Backoff
from headway.core.state import State
from headway.runtime.answers import Dead, Ended, Next, Retry, Running, Snooze, Unknown
from headway.runtime.app import App
from headway.runtime.awaited import Awaited
from headway.runtime.job import Job
from headway.runtime.kind import Kind
from headway.server.replies.answer import answer
from headway.systems.calls.desk import AFTER, CHECK, DIAL, FINISHED, LANE, LEAD, Desk
from headway.systems.calls.gates import REPORTS, house_gate
from headway.systems.calls.lead import Lead, LeadArgs, lead_of, read_args
from headway.systems.calls.reconciling import ask as ask_provider
from headway.systems.calls.seen.sight import Event
from headway.systems.calls.stages import check, place_call
from headway.systems.calls.template import DEFAULT

TYPE = "lead.finished"
"""Of the webhook that tells a result."""


TELL, REPORT = "tell", "report"


async def finish(desk: Desk, job: str, state: str) -> Next | None:
    """Tells your own table of the end of a lead; done again, it changes nothing.

    Args:
        desk: of this system.
        job: the lead.
        state: in which it ended.

    Returns:
        On to `report`, if somebody is to be told.

    Raises:
        StoreError: something is away; it is tried again.
    """
    view = await _ended(desk, job, state)
    if view is None:
        return None
    args = read_args(view.args)
    if desk.table is not None and args.row:
        lead = lead_of(view)
        await desk.table.finished(args.row, str(lead.outcome), State(state), view.reason)
    return None if args.reporting_webhook_url is None else Next(REPORT)


async def report(desk: Desk, task: Job, job: str, state: str) -> None:
    """Tells the caller of a lead what became of it.

    Args:
        desk: of this system.
        task: the job that follows the lead's end.
        job: the lead.
        state: in which it ended.

    Raises:
        StoreError: the store is away; it is tried again.
        Retry: the caller has not taken it; it is told again.
        Dead: the caller cannot be told, or wants no more of it.
    """
    view = await _ended(desk, job, state)
    lead = None if view is None else lead_of(view)
    if lead is not None and lead.reporting_webhook_url is not None:
        await _report(desk, lead, lead.reporting_webhook_url, event=task.id)


async def _ended(desk: Desk, job: str, state: str) -> JobView | None:
    """A lead that ended so; None if it was given another life, whose end has a job of its own."""
    view = await desk.store.read(JobQuery(id=job))
    return view if view is not None and str(view.state) == state else None


async def _report(desk: Desk, lead: Lead, url: str, *, event: str) -> None:
    """Tells the caller of a lead what became of it.

    Raises:
        Retry: the caller has not taken it; it is told again.
        Dead: the caller cannot be told, or wants no more of it.
    """
    at = datetime.fromtimestamp((lead.finished_at or lead.due_at) / 1000, UTC)
    said = {"type": TYPE, "timestamp": at.isoformat(timespec="milliseconds"), "data": lead}
    try:
        await desk.reporter.report(url, event, bytes(answer(said).body))
    except (Dead, Retry):
        desk.tally.happened(Event.REPORT_FAILED)
        raise


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
