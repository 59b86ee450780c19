"""The history of ended notifications, by recipient and month of intake.

If a notification changes after its end, its row is written again. Rows expire by their TTL.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headway.bridges.cassandra.link import Cql, Link, Values, ms_of
from headway.bridges.cassandra.rows import bucket_name, minute_of

MONTHS_AT_ONCE = 6
"""Partitions read together, before checking whether there are enough rows."""

Mark = tuple[int, str]
"""A position in a recipient's history: the time of intake, in ms UTC, and the id."""

_NEWEST: Mark = (253_402_300_799_000, "")
"""The end of the year 9999, after all rows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryRow:
    """A notification that has ended.

    Attributes:
        at: time of intake, ms UTC.
        template: id of the template; empty if there is none.
        record: the whole notification as JSON.
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
        """Its position in the history."""
        return self.at, self.id


def month_of(at: int) -> str:
    """Return the month of a time, such as `2026-04` (UTC)."""
    return bucket_name(minute_of(at))[:7]


def months_back(newest: int, oldest: int) -> list[str]:
    """Return the months from one time back to an earlier one, including both."""
    found: list[str] = []
    month = month_of(newest)
    while month >= month_of(oldest):
        found.append(month)
        year, number = int(month[:4]), int(month[5:])
        month = f"{year - 1}-12" if number == 1 else f"{year}-{number - 1:02}"
    return found


class History:
    """Access to the history table."""

    def __init__(self, link: Link) -> None:
        self._link = link

    @property
    def kept_ms(self) -> int:
        """How long after its intake a notification is kept."""
        return self._link.settings.history_kept

    async def write(self, rows: Iterable[tuple[HistoryRow, int]], *, now: int) -> None:
        """Write rows with their remaining TTL; a repetition changes nothing.

        Args:
            rows: each with its version, in microseconds; the highest version of a row wins.
            now: ms UTC.

        Raises:
            StoreError: Cassandra failed, and may have written some rows; repeat the call.
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
        """Return a recipient's rows, newest intake first; fewer than the limit are the last page.

        Args:
            before: return only rows before this position; None for the newest.
            now: ms UTC.
            limit: 1 to 1000.

        Raises:
            StoreError: Cassandra is unavailable or failed.
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
