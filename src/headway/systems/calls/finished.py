"""What follows the end of a lead: your own table is told, and the caller's webhook."""

from __future__ import annotations

from datetime import UTC, datetime

from headway.contract.views import JobQuery, JobView
from headway.core.state import State
from headway.runtime.answers import Dead, Next, Retry
from headway.runtime.job import Job
from headway.server.replies.answer import answer
from headway.systems.calls.desk import Desk
from headway.systems.calls.lead import Lead, lead_of
from headway.systems.calls.lead_args import read_args
from headway.systems.calls.seen.tally import Event

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
