"""A page of jobs that is bounded in bytes as well as in rows."""

from __future__ import annotations

from dataclasses import replace

from headway.contract.store import Store
from headway.contract.views import JobsQuery, JobView, Page

FIRST_ROWS = 25
"""Rows of the first look; how large they are says how many more there may be."""
MOST_BYTES = 16 * 1024 * 1024
"""Of what the jobs of a page carry. One look may go above it, by its own rows."""


async def bounded_page(store: Store, query: JobsQuery) -> Page[JobView]:
    """A page that may end early where jobs carry much; its cursor goes on from there.

    Args:
        store: which store.
        query: at most `limit` rows.
    """
    rows: list[JobView] = []
    size = 0
    cursor = query.cursor
    while True:
        room = query.limit - len(rows)
        if rows:
            each = max(size // len(rows), 1)
            room = min(room, (MOST_BYTES - size) // each)
        asked = min(room, FIRST_ROWS) if not rows else room
        if asked <= 0:
            break
        page = await store.read(replace(query, cursor=cursor, limit=asked))
        rows += page.rows
        size += sum(map(_size, page.rows))
        cursor = page.cursor
        # A short look means that a bounded number of rows was looked at: enough for one request.
        if cursor is None or len(page.rows) < asked:
            break
    return Page(rows=tuple(rows), cursor=cursor)


def _size(job: JobView) -> int:
    return 1_000 + len(job.args) + len(job.result or b"") + len(job.progress or b"")
