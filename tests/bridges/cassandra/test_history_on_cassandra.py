"""The history of notifications on a real Cassandra."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.bridges.cassandra.driver import CassandraLink
from headway.bridges.cassandra.history import History, month_of
from headway.bridges.cassandra.link import CassandraSettings
from headway.core.job import DAY_MS
from headway.runtime.timing import REAL
from headway.systems.notifications import delivery, history
from headway.systems.notifications.notification import Status
from headway.testing.clock import FakeClock
from tests.bridges.cassandra.test_history import paged, row
from tests.bridges.cassandra.test_on_cassandra import settings_of
from tests.servers.brokers.cassandra import GivenCassandra
from tests.servers.proxy import Proxy
from tests.systems.notifications.history_world import HistoryWorld, Killed, is_sent
from tests.systems.notifications.notify_rig import notifying
from tests.systems.notifications.test_timelines import lived

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    # Raised by the imports of apprise.
    pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning"),
]


@pytest.fixture
def settings(cassandra_server: GivenCassandra) -> CassandraSettings:
    return settings_of(cassandra_server.address, history=True)


@pytest.fixture
async def link(settings: CassandraSettings) -> AsyncIterator[CassandraLink]:
    one = CassandraLink(settings)
    await one.open()
    yield one
    await one.close()


def asked(link: CassandraLink, statement: str) -> list[Any]:
    """Return the driver's reply to a statement on the history table."""
    table = f"{link.settings.keyspace}.{link.settings.calendar}_history"
    return list(link._session.execute(statement.format(t=table)))


@pytest.mark.parametrize("size", [10, 300, 340, 360, 700, 6_000])
async def test_batches_of_rows_cause_no_warning(
    link: CassandraLink, caplog: pytest.LogCaptureFixture, size: int
):
    now = REAL.wall_at()
    rows = [row(now, f"{n:036}", recipient=f"r{n}", record="x" * size) for n in range(40)]
    await History(link).write([(one, 1000 * now) for one in rows], now=now)
    found = [await History(link).page(one.recipient, before=None, now=now, limit=2) for one in rows]
    assert found == [[one] for one in rows]
    assert not [one for one in caplog.messages if "Batch" in one]


async def test_rows_have_pages_versions_and_expiry(link: CassandraLink):
    history_, now = History(link), REAL.wall_at()
    moments = [now, now, now - 1, now - 70 * DAY_MS, now - 364 * DAY_MS]
    rows = [row(one, f"{n:036}", record=f'{{"n": {n}}}') for n, one in enumerate(moments)]
    for version in (2, 1):
        said = [replace(one, status=f"v{version}") for one in rows]
        await history_.write([(one, 1000 * now + version) for one in said], now=now)
    wanted = sorted(rows, key=lambda one: one.mark, reverse=True)
    for limit in (1, 2, 10):
        found = await paged(history_, limit, now)
        assert [(one.mark, one.status, one.record) for one in found] == [
            (one.mark, "v2", one.record) for one in wanted
        ]
    kept = {id_: (ttl, stamp) for id_, ttl, stamp in asked(link, TTL)}
    for one in rows:
        ttl, stamp = kept[one.id]
        expected = (one.at + 365 * DAY_MS - now) // 1000 + 1
        assert expected - 600 <= ttl <= expected
        assert stamp == 1000 * now + 2
    # A row that is about to expire disappears by itself.
    soon = row(now - 365 * DAY_MS + 1_000, "soon")
    await history_.write([(soon, 1)], now=now)
    month = month_of(soon.at)
    while any(one == "soon" for (one,) in asked(link, BY_MONTH.replace("?", f"'{month}'"))):
        await REAL.pause(0.2)


TTL = "SELECT id, TTL(record), WRITETIME(record) FROM {t}"
BY_MONTH = "SELECT id FROM {t} WHERE recipient = 'ada' AND month = ?"


async def test_table_is_created_only_when_enabled(settings: CassandraSettings):
    off = CassandraLink(settings.model_copy(update={"history": False}))
    await off.open()

    def tables(link: CassandraLink) -> set[str]:
        known = link._session.cluster.metadata.keyspaces[settings.keyspace].tables
        return {one for one in known if one.startswith(settings.calendar)}

    before = tables(off)
    assert len(before) == 4
    await off.close()
    on = CassandraLink(settings)
    await on.open()
    assert tables(on) - before == {f"{settings.calendar}_history"}
    await on.close()


@pytest.mark.parametrize("limit", [3, 100])
async def test_pages_span_months_while_the_store_forgets(link: CassandraLink, limit: int):
    clock = FakeClock(REAL.wall_at() - 100 * DAY_MS)
    world, ids = await lived(limit, world=HistoryWorld(clock, link))
    found: list[str] = []
    cursor = None
    while True:
        page = await world.page(cursor, limit)
        found += [one.id for one in page.rows]
        cursor = page.cursor
        if cursor is None:
            break
        world.clock.advance(DAY_MS)
        await world.store.sweep(1_000)
    assert found == ids


async def test_each_row_arrives_once_though_the_process_dies_at_any_step(link: CassandraLink):
    world, ids, seam, died = HistoryWorld(FakeClock(REAL.wall_at()), link), set[str](), 0, True
    while died:
        died = False
        process = world.process()
        job = world.notification(process)
        await world.store.enqueue([job])
        await is_sent(process, job.id)
        ids.add(job.id)
        process.dies_at, process.seam = seam, 0
        view = await world.view(job.id)
        assert view is not None
        try:
            await process.write()
            await delivery.mark_delivered(process.context, view)
            await process.write()
        except Killed:
            died = True
            world.clock.advance(60 * 60_000)
            await world.process().write()
            await delivery.mark_delivered(world.process().context, view)
            await world.process().write()
        seam += 1
    await world.forget()
    page = await world.page(limit=1_000)
    assert {one.id for one in page.rows} == ids == page.past
    assert len(page.rows) == len(ids) > 15
    assert {one.status for one in page.rows} == {Status.DELIVERED}


async def test_timelines_work_without_the_node_and_everything_is_written_later(
    settings: CassandraSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(history, "CLOSED_FOR", "1s")
    with Proxy(f"cassandra://{settings.hosts[0]}:{settings.port}") as proxy:
        port = int(proxy.url.rpartition(":")[2])
        link = CassandraLink(settings.model_copy(update={"port": port}))
        async with notifying(tmp_path, cassandra=link) as notify:
            await notify.ada()
            notify.email.ids = False

            async def written() -> set[str]:
                return {one.id for one in await paged(History(link), 100, REAL.wall_at())}

            ids = [await notify.send()]
            await notify.until(written)
            proxy.refuse()
            ids += [await notify.send() for _ in range(10)]
            for one in ids:
                await notify.becomes(one, "SENT")
            reply = await notify.ok("GET", "/recipients/ada/timeline")
            assert reply["history_away"]
            assert [one["id"] for one in reply["rows"]] == ids[::-1]
            proxy.resume()

            async def reached() -> bool:
                reply = await notify.ok("GET", "/recipients/ada/timeline")
                return not reply["history_away"] and await written() == set(ids)

            await notify.until(reached)
        await link.close()
