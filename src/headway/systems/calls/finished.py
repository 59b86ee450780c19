"""What follows the end of a lead: your own table is told, and the caller's webhook."""

from __future__ import annotations

from datetime import UTC, datetime

from headway.contract.views import JobQuery
from headway.core.state import State
from headway.runtime.answers import Dead, Retry
from headway.runtime.job import Job
from headway.server.replies.answer import answer
from headway.systems.calls.desk import Desk
from headway.systems.calls.lead import Lead, lead_of
from headway.systems.calls.lead_args import read_args
from headway.systems.calls.seen.tally import Event

TYPE = "lead.finished"
"""Of the webhook that tells a result."""


async def finish(desk: Desk, task: Job, job: str, state: str) -> None:
    """Does what follows the end of a lead; done again, it changes nothing.

    Args:
        desk: of this system.
        task: the job that follows.
        job: the lead.
        state: in which it ended.

    Raises:
        StoreError: something is away; it is tried again.
        Retry: the caller has not taken the result; it is told again.
        Dead: the caller cannot be told.
    """
    view = await desk.store.read(JobQuery(id=job))
    if view is None or str(view.state) != state:
        # It was given another life, whose end has a job of its own.
        return
    args = read_args(view.args)
    lead = lead_of(view)
    if desk.table is not None and args.row:
        await desk.table.finished(args.row, str(lead.outcome), State(state), view.reason)
    if lead.reporting_webhook_url is not None:
        await _report(desk, lead, lead.reporting_webhook_url, event=task.id)


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
