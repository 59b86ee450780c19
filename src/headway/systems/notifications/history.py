"""What is written to the history: each notification at its end, and again at each later change.

The end of a notification creates a job in the same step of the store, whatever ended it. That job
reads the record and writes it to Cassandra; it is repeated until it has, and a repetition changes
nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TypedDict

import msgspec

from headway.bridges.cassandra.history import HistoryRow
from headway.contract.views import JobQuery, JobView
from headway.core.errors import StoreError
from headway.core.job import derived_id
from headway.core.state import FINAL
from headway.runtime.answers import Snooze
from headway.runtime.app import App
from headway.runtime.job import Job
from headway.systems.notifications.context import NotifyContext
from headway.systems.notifications.notification import (
    FORGOTTEN,
    HISTORY_LANE,
    OFF,
    WRITTEN,
    Notification,
    Tallied,
    notification_of,
)

ENDED = "notification_ended"
"""The kind of the jobs that write."""
WRITERS = 4
"""Of all workers at once: while Cassandra hangs, no more handlers wait instead of sending."""
CLOSED_FOR = "1m"
"""How long nothing is written after Cassandra did not answer."""

_log = logging.getLogger("headway.notifications")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Notification).decode


class AtEnd(TypedDict, total=False):
    """Options of a kind: what follows the ends of its jobs."""

    on_final: str
    on_final_states: Sequence[str]


def declare_history(app: App, context: NotifyContext) -> AtEnd:
    """Add the kind that writes, also where there is no history: it may have been switched off.

    Returns:
        The options by which the end of a notification is written; none without a history.
    """
    app.lane(HISTORY_LANE, concurrency=WRITERS)

    @app.job(name=ENDED, lane=HISTORY_LANE, keep="1h")
    async def ended(task: Job, job: str, state: str = "", reason: str = "") -> Snooze | None:
        del state, reason
        return await _write(context, task, job)

    if context.history is None:
        return {}
    return {"on_final": ENDED, "on_final_states": [str(one) for one in FINAL]}


async def _write(context: NotifyContext, task: Job, id_: str) -> Snooze | None:
    history = context.history
    job = None if history is None else await context.store.read(JobQuery(id=id_))
    if history is None:
        context.tally.happened(Tallied.HISTORY, OFF)
        return None
    if job is None:
        context.tally.happened(Tallied.HISTORY, FORGOTTEN)
        _log.error("notification %s was forgotten before the history had it", id_)
        return None
    if job.state not in FINAL:
        # It was given another life, at whose end it is written.
        return None
    try:
        now = context.timing.wall_at()
        await history.write(row_of(job), stamp=stamp_of(job), now=now)
    except StoreError as away:
        reason = f"history: {away.message}"[:500]
        task.close(f"lane:{HISTORY_LANE}", after=CLOSED_FOR, reason=reason)
        # It keeps its place, and so shows since when nothing is written.
        return Snooze(until=task.due_at, reason=reason)
    context.tally.happened(Tallied.HISTORY, WRITTEN)
    return None


async def write_again(context: NotifyContext, id_: str, event: str) -> None:
    """Have a notification written again, of which something was heard after its end.

    Args:
        event: the id of what was heard: the same one has it written once.

    Raises:
        StoreError: the store is away; repeat the call.
    """
    if context.history is not None:
        made = derived_id("history", id_, event)
        await context.store.enqueue([context.app.kind(ENDED).make(job_id=made, job=id_)])


def row_of(job: JobView) -> HistoryRow:
    """The row of a notification that has ended; of its job with its runs and its trail."""
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
    """The version of a record: it grows with each change, and is the same for the same record.

    So of two writes the one that read later stays, in whatever order they arrive.
    """
    changed_at = max((job.finished_at or 0, *(line.at for line in job.trail)))
    return 1000 * changed_at + len(job.trail)


def notification_from(row: HistoryRow) -> Notification | None:
    """The notification of a row; None if this program cannot read it, which is logged."""
    try:
        return _decode(row.record)
    except msgspec.DecodeError as error:
        _log.error("the history's row of %s is not readable: %s", row.id, error)
        return None
