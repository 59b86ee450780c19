"""The history: notifications that have ended, by recipient and month of their intake.

A row is written again whenever its notification changes after its end. Rows expire by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headway.bridges.cassandra.link import Cql, Link, Values, ms_of
from headway.bridges.cassandra.rows import bucket_name, minute_of

MONTHS_AT_ONCE = 6
"""Partitions that are read before it is looked whether these are enough rows."""

Mark = tuple[int, str]
"""A place within a recipient's history: the moment of an intake and its id."""

_NEWEST: Mark = (253_402_300_799_000, "")
"""The end of the year 9999, after each row of any month."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryRow:
    """A notification that has ended.

    Attributes:
        at: when it was taken in, ms UTC.
        template: the id of a template; empty for none.
        record: the whole of it, JSON.
    """

    recipient: str
    at: int
    id: str
    status: str
    channel: str
    category: str
    template: str
    record: str

    @property
    def mark(self) -> Mark:
        """Its place."""
        return self.at, self.id


def month_of(at: int) -> str:
    """Return the month of a moment, as `2026-04` (UTC)."""
    return bucket_name(minute_of(at))[:7]


def months_back(newest: int, oldest: int) -> list[str]:
    """Return the months from one moment back to another, including both."""
    found: list[str] = []
    month = month_of(newest)
    while month >= month_of(oldest):
        found.append(month)
        year, number = int(month[:4]), int(month[5:])
        month = f"{year - 1}-12" if number == 1 else f"{year}-{number - 1:02}"
    return found


class History:
    """The table of the history."""

    def __init__(self, link: Link) -> None:
        self._link = link

    @property
    def kept_ms(self) -> int:
        """For how long after its intake a notification is there."""
        return self._link.settings.history_kept

    async def write(self, rows: Iterable[tuple[HistoryRow, int]], *, now: int) -> None:
        """Write rows, for the rest of the time that they are kept; a repetition changes nothing.

        Args:
            rows: each with its version, in microseconds; of a row the highest one stays.
            now: when they are written, ms UTC.

        Raises:
            StoreError: Cassandra cannot do it now, and may have written some; repeat the call.
        """
        each: list[Values] = []
        for row, stamp in rows:
            key = row.recipient, month_of(row.at), row.at, row.id
            shown = row.status, row.channel, row.category, row.template, row.record
            left_ms = row.at + self.kept_ms - now
            if left_ms > 0:
                each.append((*key, *shown, left_ms // 1000 + 1, stamp))
        await self._link.run_many(Cql.PUT_HISTORY, each)

    async def page(
        self, recipient: str, *, before: Mark | None, now: int, limit: int
    ) -> Sequence[HistoryRow]:
        """Return a recipient's rows, newest intake first; with fewer than the limit, the last ones.

        Args:
            before: only rows before this place; None for the newest.
            now: the present, ms UTC.
            limit: 1 to 1000.

        Raises:
            StoreError: Cassandra cannot do it now.
        """
        newest = now if before is None else before[0]
        months = months_back(newest, now - self.kept_ms)
        each = [(recipient, month, *(before or _NEWEST), limit) for month in months]
        found: list[HistoryRow] = []
        for start in range(0, len(each), MONTHS_AT_ONCE):
            some = each[start : start + MONTHS_AT_ONCE]
            for rows in await self._link.run_many(Cql.READ_HISTORY, some):
                found += [_row_of(recipient, values) for values in rows]
            if len(found) >= limit:
                break
        return found[:limit]


def _row_of(recipient: str, values: tuple[Any, ...]) -> HistoryRow:
    at, id_, status, channel, category, template, record = values
    return HistoryRow(
        recipient=recipient,
        at=ms_of(at),
        id=id_,
        status=status,
        channel=channel,
        category=category,
        template=template,
        record=record,
    )
