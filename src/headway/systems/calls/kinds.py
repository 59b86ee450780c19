"""The kinds of this system: a lead, and the follow-up of its end."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from headway.contract.views import JobQuery, JobView
from headway.core.gates.slots import Slots
from headway.core.retry import Backoff
from headway.core.state import State
from headway.runtime.app import App
from headway.runtime.handler_results import Dead, Ended, Next, Retry, Running, Snooze, Unknown
from headway.runtime.job import Job
from headway.runtime.kind import Kind
from headway.runtime.reconciliation import Awaited
from headway.server.replies import answer
from headway.systems.calls.catalogue import REPORTS, check_gate, customer_gate
from headway.systems.calls.context import CallsContext
from headway.systems.calls.lead import (
    AFTER,
    CHECK,
    DIAL,
    FINISHED,
    LANE,
    LEAD,
    is_lead,
    lead_of,
    read_args,
)
from headway.systems.calls.overview import CountedEvent
from headway.systems.calls.reconciling import ask as ask_provider
from headway.systems.calls.stages import check, place_call
from headway.systems.calls.template import DEFAULT

TYPE = "lead.finished"
"""The type of the result's webhook."""

UPDATE_TABLE, REPORT = "tell", "report"
"""The stages of a follow-up; their names are stored."""


async def finish(context: CallsContext, task: Job, job: str, state: str) -> Next | None:
    """Write the end of a lead to the source table; a repetition changes nothing.

    Returns:
        Next stage `report` if the lead has a reporting URL.
    """
    view = await _ended(context, task, job, state)
    if view is None:
        return None
    args = read_args(view.args)
    if context.table is not None and args.row:
        lead = lead_of(view)
        outcome = str(lead.outcome)
        await context.table.finished(args.row, job, outcome, State(state), view.reason)
    return None if args.reporting_webhook_url is None else Next(REPORT)


async def report(context: CallsContext, task: Job, job: str, state: str) -> None:
    """Report a lead's result to its reporting URL.

    Raises:
        Retry: the receiver did not accept it; it is reported again.
        Dead: the URL cannot be used, or the receiver rejected the report permanently.
    """
    view = await _ended(context, task, job, state)
    lead = None if view is None else lead_of(view)
    if lead is None or lead.reporting_webhook_url is None:
        return
    at = datetime.fromtimestamp((lead.finished_at or lead.due_at) / 1000, UTC)
    payload = {"type": TYPE, "timestamp": at.isoformat(timespec="milliseconds"), "data": lead}
    body = bytes(answer(payload).body)
    try:
        await context.reporter.report(lead.reporting_webhook_url, task.id, body)
    except (Dead, Retry):
        context.tally.happened(CountedEvent.REPORT_FAILED)
        raise


async def _ended(context: CallsContext, task: Job, job: str, state: str) -> JobView | None:
    """Return a lead that ended in this state; None if it was retried since, or is no lead.

    Nor of another reseller than the follow-up: a caller of one can create follow-ups of any job.
    """
    view = await context.store.read(JobQuery(id=job))
    if view is None or not is_lead(view) or view.tenant != task.tenant:
        return None
    return view if str(view.state) == state else None


LEAD_RETRY = Backoff(attempts=100_000, base="5s", cap="5m")
"""Retries of failures on our side; attempts to call are limited by the template."""
RECONCILE_WITHIN = "1d"
"""How long a line is held if no worker queries the provider: the call may still be live."""
FOLLOW_UP_RETRY = Backoff(attempts=20, base="5s", cap="1h")


def declare_kinds(app: App, context: CallsContext) -> Kind:
    """Declare the kinds of this system to an app, and return the kind `lead`."""
    app.lane(LANE, fair="tenant")
    settings = context.settings

    reports = Slots(REPORTS, settings.reports_at_once).take(hold="run")

    @app.job(
        name=FINISHED,
        lane=AFTER,
        retry=FOLLOW_UP_RETRY,
        stages={UPDATE_TABLE: [], REPORT: [reports]},
    )
    async def finished(task: Job, job: str, state: str, reason: str) -> Next | None:
        del reason
        return await finish(context, task, job, state)

    @finished.stage(REPORT)
    async def reported(task: Job, job: str, state: str) -> None:
        await report(context, task, job, state)

    async def ask(awaited: Awaited) -> Running | Ended | Unknown:
        return await ask_provider(context, awaited)

    @app.job(
        name=LEAD,
        lane=LANE,
        stages={CHECK: [check_gate(settings)], DIAL: [customer_gate(settings)]},
        subject="{phone}",
        retry=LEAD_RETRY,
        reconcile=ask,
        reconcile_within=RECONCILE_WITHIN,
        keep=f"{settings.keep}ms",
        on_final=FINISHED,
        on_final_states=("succeeded", "dead", "cancelled"),
    )
    async def lead(  # noqa: PLR0913, PLR0917  (the arguments of a lead)
        job: Job,
        phone: str,
        tz: str,
        template: str = DEFAULT,
        payload: Any = None,  # noqa: ANN401  (whatever the template's schema allows)
        reporting_webhook_url: str | None = None,
        row: str = "",
    ) -> Next | Snooze:
        del phone, tz, template, payload, reporting_webhook_url, row
        return await check(context, job, read_args(job.claimed.args))

    @lead.stage(DIAL)
    async def call(job: Job) -> Next | None:
        return await place_call(context, job, read_args(job.claimed.args))

    context.declared = app
    return lead
