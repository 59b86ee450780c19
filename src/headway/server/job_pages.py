"""Pages of jobs, bounded in rows and in bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from headway.contract.store import Store
from headway.contract.views import JobsQuery, JobView, Page

MOST_ROWS = 1_000
"""Rows of a page."""
FIRST_ROWS = 25
"""Rows of the first look; how large they are says how many more there may be."""
MOST_BYTES = 16 * 1024 * 1024
"""The most bytes of the jobs on a page. A single read may exceed it, by its own rows."""

Fits = Callable[[JobView], bool]


def any_job(_: JobView) -> bool:
    """Fit."""
    return True


async def bounded_page(store: Store, query: JobsQuery, fits: Fits = any_job) -> Page[JobView]:
    """Return a page that may end early where jobs carry much; its cursor goes on from there.

    Args:
        store: whose jobs.
        query: which jobs.
        fits: which of them are returned. A page without those that do not fit is shorter, but for
            the jobs of a worker: of these, more are read until there are as many as asked for.
    """
    if query.worker is not None and query.ids is None:
        return Page(rows=tuple(await _of_worker(store, query, fits)), cursor=None)
    rows: list[JobView] = []
    size = 0
    cursor = query.cursor
    while True:
        room = query.limit - len(rows)
        if rows:
            room = min(room, _room(rows, size))
        asked = min(room, FIRST_ROWS) if not rows else room
        if asked <= 0:
            break
        page = await _read_part(store, query, cursor, asked)
        rows += page.rows
        size += size_of(page.rows)
        cursor = page.cursor
        # A short look means that a bounded number of rows was looked at: enough for one request.
        if cursor is None or len(page.rows) < asked:
            break
    return Page(rows=tuple(filter(fits, rows)), cursor=cursor)


async def _read_part(
    store: Store, query: JobsQuery, cursor: str | None, limit: int
) -> Page[JobView]:
    """Return a part of a page; of jobs by id, cursors are numbers of rows."""
    if query.ids is None:
        return await store.read(replace(query, cursor=cursor, limit=limit))
    first = int(cursor or 0)
    end = first + limit
    ids = query.ids[first:end]
    rows = (await store.read(replace(query, ids=ids))).rows if ids else ()
    return Page(rows=rows, cursor=str(end) if end < len(query.ids) else None)


async def _of_worker(store: Store, query: JobsQuery, fits: Fits) -> Sequence[JobView]:
    """Return the first jobs of a worker that fit; a store reads them from the first one only."""
    asked = min(query.limit, FIRST_ROWS)
    while True:
        rows = (await store.read(replace(query, limit=asked))).rows
        found = [one for one in rows if fits(one)][: query.limit]
        if len(rows) < asked or len(found) == query.limit:
            return found
        more = asked + _room(rows, size_of(rows))
        more = min(more, MOST_ROWS, max(query.limit, 2 * asked))
        if more <= asked:
            return found
        asked = more


def size_of(jobs: Sequence[JobView]) -> int:
    """Return about how many bytes jobs have."""
    return sum(
        1_000 + len(one.args) + len(one.result or b"") + len(one.progress or b"") for one in jobs
    )


def _room(rows: Sequence[JobView], size: int) -> int:
    """Return how many more rows of the same size there may be."""
    return (MOST_BYTES - size) // max(size // len(rows), 1)
