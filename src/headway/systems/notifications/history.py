"""Writing of the history: each notification at its end, and again after each later change.

The end of a notification creates a job in the same step of the store, whatever ended it. That job
reads the record and writes it to Cassandra. It is retried until it succeeds; a repeat changes
nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import TypedDict

import msgspec

from headway.bridges.cassandra.history import HistoryRow
from headway.contract.views import JobsQuery, JobView
from headway.core.errors import StoreError
from headway.core.job import derived_id
from headway.core.state import FINAL
from headway.runtime.app import App
from headway.runtime.handler_results import Snooze
from headway.runtime.job import Job
from headway.systems.notifications.batches import Batches
from headway.systems.notifications.context import NotifyContext
from headway.systems.notifications.notification import (
    FORGOTTEN,
    HISTORY_LANE,
    OFF,
    WRITTEN,
    Notification,
    Tallied,
    is_notification,
    notification_of,
)

ENDED = "notification_ended"
"""Kind of the jobs that write."""
WRITERS = 16
"""Maximum handlers of all workers at once; those of a worker write their rows together. They are
few, because a handler that waits for Cassandra sends nothing meanwhile."""
CLOSED_FOR = "1m"
"""How long writing is paused after Cassandra did not answer."""

_log = logging.getLogger("headway.notifications")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Notification).decode


class AtEnd(TypedDict, total=False):
    """Options of a kind for the follow-ups of its jobs."""

    on_final: str
    on_final_states: Sequence[str]


def declare_history(app: App, context: NotifyContext) -> AtEnd:
    """Declare the kind that writes, even without a history: it may have been switched off.

    Returns:
        The options that make the end of a notification create such a job; none without a history.
    """
    app.lane(HISTORY_LANE, concurrency=WRITERS)
    writer = Batches(partial(_write, context), WRITERS)

    @app.job(name=ENDED, lane=HISTORY_LANE, keep="1h")
    async def ended(task: Job, job: str, state: str = "", reason: str = "") -> Snooze | None:
        del state, reason
        try:
            outcome = await writer.ask(job)
        except StoreError as error:
            why = f"history: {error.message}"[:500]
            task.close(f"lane:{HISTORY_LANE}", after=CLOSED_FOR, reason=why)
            # It keeps its due time, which shows since when nothing has been written.
            return Snooze(until=task.due_at, reason=why)
        if outcome:
            context.tally.happened(Tallied.HISTORY, outcome)
        return None

    if context.history is None:
        return {}
    return {"on_final": ENDED, "on_final_states": [str(one) for one in FINAL]}


async def _write(context: NotifyContext, ids: Sequence[str]) -> Sequence[str]:
    """Write notifications as they are now.

    Returns:
        For each, the outcome to count; empty for a notification that lives again, and for a job
        that is no notification, although it has the kind.

    Raises:
        StoreError: the store or Cassandra failed.
    """
    history = context.history
    if history is None:
        return [OFF for _ in ids]
    query = JobsQuery(ids=tuple(ids), runs=True, trail=True, limit=len(ids))
    jobs = {job.id: job for job in (await context.store.read(query)).rows}
    # A notification that lives again is written at its next end.
    ended = [job for job in jobs.values() if job.state in FINAL and is_notification(job)]
    rows = [(row_of(job), stamp_of(job)) for job in ended]
    await history.write(rows, now=context.timing.wall_at())
    written = {job.id for job in ended}
    for id_ in set(ids) - set(jobs):
        _log.error("history missed a notification that the store had deleted id=%s", id_)
    return [WRITTEN if id_ in written else "" if id_ in jobs else FORGOTTEN for id_ in ids]


async def write_again(context: NotifyContext, id_: str, event: str) -> None:
    """Write a notification again after an event that arrived after its end.

    Args:
        event: id of the event; a repeat has no further effect.

    Raises:
        StoreError: the store is unavailable; repeat the call.
    """
    if context.history is not None:
        made = derived_id("history", id_, event)
        await context.store.enqueue([context.app.kind(ENDED).make(job_id=made, job=id_)])


def row_of(job: JobView) -> HistoryRow:
    """Return the row of an ended notification; reads the job's runs and trail."""
    found = notification_of(job)
    return HistoryRow(
        recipient=found.recipient,
        at=found.created_at,
        id=found.id,
        status=found.status,
        channel=found.channel,
        category=found.category,
        template=found.template or "",
        record=_encode(found).decode(),
    )


def stamp_of(job: JobView) -> int:
    """Return the version of a record: it grows with each change, and depends on nothing else.

    So of two writes, the one that read later wins, in whatever order they arrive.
    """
    changed_at = max((job.finished_at or 0, *(line.at for line in job.trail)))
    return 1000 * changed_at + len(job.trail)


def notification_from(row: HistoryRow) -> Notification | None:
    """Return the notification of a row; log an error and return None if it cannot be read."""
    try:
        return _decode(row.record)
    except msgspec.DecodeError as error:
        _log.error("history row unreadable id=%s error=%s", row.id, error)
        return None
