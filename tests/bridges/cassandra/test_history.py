"""The history table: its partitions, pages over months, expiry, and versions of a row."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from headway.bridges.cassandra.history import (
    MONTHS_AT_ONCE,
    History,
    HistoryRow,
    Mark,
    month_of,
    months_back,
)
from headway.bridges.cassandra.link import Cql, read_cassandra
from headway.core.errors import InvalidValue
from headway.core.job import DAY_MS
from tests.bridges.cassandra.fake_link import FakeLink
from tests.bridges.cassandra.world import SETTINGS

KEPT = SETTINGS.model_copy(update={"history": True})


def at(text: str) -> int:
    return int(datetime.fromisoformat(f"{text}+00:00").timestamp() * 1000)


NOW = at("2026-04-19T09:00")
MOMENTS = some.integers(at("2020-01-01T00:00"), at("2040-01-01T00:00"))


def row(taken_at: int, id_: str = "a", **more: Any) -> HistoryRow:
    plain = {"recipient": "ada", "at": taken_at, "id": id_, "status": "SENT", "channel": "email"}
    rest = {"category": "news", "template": "", "record": "{}"}
    return HistoryRow(**{**plain, **rest, **more})


async def laid(link: FakeLink, *rows: HistoryRow) -> History:
    history = History(link)
    await history.write([(one, 1000 * one.at) for one in rows], now=NOW)
    return history


async def paged(history: History, limit: int, now: int = NOW) -> list[HistoryRow]:
    """Return all rows, read page by page."""
    found: list[HistoryRow] = []
    before: Mark | None = None
    while True:
        page = await history.page("ada", before=before, now=now, limit=limit)
        assert len(page) <= limit
        found += page
        if len(page) < limit:
            return found
        before = page[-1].mark


@given(MOMENTS, some.integers(0, 3_000 * DAY_MS))
def test_past_months_are_those_of_all_times_in_between(newest: int, span: int) -> None:
    moments = range(newest, newest - span - 1, -27 * DAY_MS)
    found = months_back(newest, newest - span)
    assert found == sorted({*map(month_of, moments), month_of(newest - span)}, reverse=True)


async def test_row_is_stored_by_recipient_and_month_of_intake() -> None:
    link = FakeLink(KEPT)
    last, first = at("2026-03-31T23:59:59.999"), at("2026-04-01T00:00")
    history = await laid(link, row(last, "a"), row(first, "b", recipient="bob"))
    assert set(link.history) == {("ada", "2026-03"), ("bob", "2026-04")}
    (found,) = await history.page("ada", before=None, now=NOW, limit=10)
    assert found == row(last, "a")


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 1_000])
async def test_pages_contain_each_row_once_newest_first_over_months(limit: int) -> None:
    boundary = at("2026-03-01T00:00")
    moments = [boundary, boundary - 1, at("2026-04-18T00:00"), at("2025-05-01T00:00"), NOW]
    # Each time has two rows; ten of the months have none.
    rows = [row(one, id_) for one in moments for id_ in ("a", "b")]
    history = await laid(FakeLink(KEPT), *rows)
    assert await paged(history, limit) == sorted(rows, key=lambda one: one.mark, reverse=True)


async def test_page_reads_months_until_full_and_skips_expired_rows() -> None:
    link = FakeLink(KEPT)
    history = await laid(link, *(row(NOW - n, str(n)) for n in range(5)))
    await history.page("ada", before=None, now=NOW, limit=5)
    assert link.asked.count(Cql.READ_HISTORY) == MONTHS_AT_ONCE
    link.asked.clear()
    await history.page("ada", before=None, now=NOW, limit=6)
    assert link.asked.count(Cql.READ_HISTORY) == 13


async def test_row_expires_by_the_age_of_its_intake() -> None:
    link = FakeLink(KEPT)
    history = await laid(link, row(NOW), row(NOW - DAY_MS, "b"))
    ttl = [one[-2] for part in link.history.values() for one in part.values()]
    assert ttl == [365 * 86_400 + 1, 364 * 86_400 + 1]
    await history.write([(row(NOW - 365 * DAY_MS, "c"), 1)], now=NOW)
    assert len(await paged(history, 10)) == 2


async def test_later_of_two_row_versions_wins_in_any_order_of_arrival() -> None:
    for order in ((1, 2), (2, 1)):
        history = History(FakeLink(KEPT))
        for version in order:
            await history.write([(row(NOW, status=f"v{version}"), version)], now=NOW)
        assert [one.status for one in await paged(history, 10)] == ["v2"]


def test_settings_errors_name_the_problem() -> None:
    assert not read_cassandra({"hosts": ["a"]}).history
    read = read_cassandra({"hosts": ["a"], "history": True, "history_kept": "90d"})
    assert (read.history, read.history_kept) == (True, 90 * DAY_MS)
    for wrong in ("1h", "2000d"):
        with pytest.raises(InvalidValue, match=r"cassandra\.history_kept"):
            read_cassandra({"hosts": ["a"], "history_kept": wrong})
