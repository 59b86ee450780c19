"""Pages of notifications from the store, and timelines, which continue with the history.

A timeline merges two lists, both newest first. Its cursor has a place in each: in the store, the
sequence number to continue after, or `-` after its last row; in the history, the creation time and
id to continue before, or nothing before it was read.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Sequence, Set
from dataclasses import dataclass

from pydantic import Field

from headway.bridges.cassandra.history import History, HistoryRow, Mark
from headway.contract.store import Store
from headway.contract.views import JobsQuery, JobView, Page
from headway.core.errors import InvalidValue, StoreError
from headway.core.state import FINAL, State
from headway.server.finding import bounded_page
from headway.server.paging import PageQuery, check_number_cursor
from headway.systems.notifications.history import notification_from
from headway.systems.notifications.notification import (
    NOTIFICATION,
    Channel,
    Notification,
    Status,
    is_notification,
    notification_of,
)

_log = logging.getLogger("headway.notifications")


class NotificationsParams(PageQuery):
    """Filters for notifications."""

    status: Status | None = Field(default=None, description="Only notifications with this status.")
    channel: Channel | None = Field(
        default=None, description="Only notifications whose first channel is this one."
    )
    newest: bool = Field(default=False, description="Newest notifications first.")


async def page_of(
    store: Store, params: NotificationsParams, recipient: str | None = None
) -> tuple[list[Notification], str | None]:
    """Return the notifications of a page with their histories, and the cursor of the next one."""
    page = await _jobs(store, params, recipient, check_number_cursor(params.cursor))
    found = map(notification_of, page.rows)
    return [one for one in found if params.status in {None, one.status}], page.cursor


async def _jobs(
    store: Store, params: NotificationsParams, recipient: str | None, cursor: str | None
) -> Page[JobView]:
    query = JobsQuery(
        tenant=None if recipient is None else "",
        subject=recipient,
        lane=None if params.channel is None else params.channel.lane,
        kind=NOTIFICATION,
        states=() if params.status is None else _STATES[params.status],
        runs=True,
        trail=True,
        newest=params.newest,
        cursor=cursor,
        limit=params.limit,
    )
    return await bounded_page(store, query, is_notification)


_WAITING = (State.SCHEDULED, State.WAITING, State.PARKED, State.RUNNING, State.AWAITING)
_STATES = {
    Status.QUEUED: _WAITING,
    Status.SENT: (State.AWAITING, State.SUCCEEDED, State.CANCELLED),
    # A provider's late event can change the status of any ended notification; a delivery can be of
    # an earlier channel, while a later one is tried.
    Status.DELIVERED: tuple(State),
    Status.FAILED: tuple(FINAL),
    Status.SKIPPED: (State.SUCCEEDED,),
    Status.CANCELLED: (State.CANCELLED,),
}
"""Possible job states of each status."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """A page of a recipient's notifications with their histories, newest first.

    Attributes:
        cursor: cursor of the next page; None at the end.
        past: ids of notifications that only the history has.
        away: whether the history is unavailable, so that older notifications may be missing.
    """

    rows: Sequence[Notification]
    cursor: str | None
    past: frozenset[str] = frozenset()
    away: bool = False


async def timeline(
    store: Store,
    history: History | None,
    recipient: str,
    params: NotificationsParams,
    now: int,
) -> Timeline:
    """Return a page of a recipient's timeline, from the store and the history if there is one.

    A page may be short or even empty and still have a cursor, because only a bounded number is read
    from each.

    Args:
        params: with `newest`.
        now: the store's time, ms UTC.

    Raises:
        InvalidValue: the cursor is not one of a timeline.
    """
    if history is None:
        rows, cursor = await page_of(store, params, recipient)
        return Timeline(rows=rows, cursor=cursor)
    place = _read_place(params.cursor)
    jobs: Page[JobView] = Page(rows=(), cursor=None)
    # The store first: a record that it deletes meanwhile is then in the history.
    if place.store != ENDED:
        jobs = await _jobs(store, params, recipient, place.store)
    try:
        past = await history.page(recipient, before=place.past, now=now, limit=params.limit)
    except StoreError as error:
        _log.warning("history not read error=%s", error)
        return _merged(params, place, jobs, None, set())
    read = {job.id for job in jobs.rows}
    others = tuple(row.id for row in past if row.id not in read)
    if others:
        page = await store.read(JobsQuery(ids=others, limit=len(others)))
        read.update(job.id for job in page.rows)
    return _merged(params, place, jobs, past, read)


ENDED = "-"
"""The store's part of a cursor after its last row."""


@dataclass(frozen=True, slots=True)
class _Place:
    """The start of a page.

    Attributes:
        store: sequence number after which the store is read; None for its newest rows.
        past: row before which the history is read; None for its newest rows.
    """

    store: str | None = None
    past: Mark | None = None

    @property
    def cursor(self) -> str | None:
        """The place as a cursor."""
        if self.past is None:
            return self.store
        return f"{self.store or ''}.{self.past[0]}.{self.past[1]}"


def _merged(
    params: NotificationsParams,
    place: _Place,
    jobs: Page[JobView],
    past: Sequence[HistoryRow] | None,
    in_store: Set[str],
) -> Timeline:
    """Merge the rows of two lists, until it is unknown which list continues with a newer row.

    Args:
        past: None if the history is unavailable, in which case its place stays.
        in_store: ids that the store has; their rows are taken from the store, not from the history.
    """
    rows: list[Notification] = []
    alone: set[str] = set()
    left, older = deque(jobs.rows), deque(past or ())
    more_jobs, more_past = jobs.cursor is not None, len(older) == params.limit
    store, mark = place.store, place.past
    while len(rows) < params.limit and (left or not more_jobs) and (older or not more_past):
        job, row = (left or [None])[0], (older or [None])[0]
        if row is not None and (job is None or row.mark > (job.created_at, job.id)):
            older.popleft()
            mark = row.mark
            one = None if row.id in in_store else notification_from(row)
            alone.add(row.id)
        elif job is not None:
            left.popleft()
            store, place_of_job = str(job.seq), (job.created_at, job.id)
            # So that its row in the history is not shown once the store has deleted the job.
            mark = place_of_job if mark is None else min(mark, place_of_job)
            one = notification_of(job)
        else:
            break
        if one is not None and params.status in {None, one.status}:
            rows.append(one)
    if not left:
        store = jobs.cursor or ENDED
    ended = store == ENDED and not older and not more_past
    following = _Place(store, place.past if past is None else mark)
    return Timeline(
        rows=rows,
        cursor=None if ended else following.cursor,
        past=frozenset(alone - in_store),
        away=past is None,
    )


_CURSOR = re.compile(r"(\d{1,18}|-|)(?:\.(\d{1,15})\.([0-9a-f-]{36}))?", re.ASCII)


def _read_place(cursor: str | None) -> _Place:
    if cursor is None:
        return _Place()
    found = _CURSOR.fullmatch(cursor)
    if found is None or not cursor:
        message = "the cursor is not one of this timeline"
        raise InvalidValue(message, hint="pass the cursor from the previous page")
    store, at, id_ = found.groups()
    return _Place(store or None, None if at is None else (int(at), id_))
