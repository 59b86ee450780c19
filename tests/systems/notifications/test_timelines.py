"""A recipient's timeline over store and history: each once, newest first, any page size."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from headway.bridges.cassandra.link import Cql, Values
from headway.contract.definitions import Role
from headway.contract.operate import Verb
from headway.core.errors import InvalidValue, StoreUnavailable
from headway.core.job import DAY_MS, NewJob
from headway.runtime.timing import REAL
from headway.stores.ledger.paging import MOST_EXAMINED
from headway.systems.notifications import history
from headway.systems.notifications.notification import Status
from tests.bridges.cassandra.fake_link import FakeLink
from tests.server.problems import problem
from tests.systems.notifications.history_world import (
    KEEP_MS,
    KEPT,
    HistoryWorld,
    is_cancelled,
    is_refused,
    is_sent,
)
from tests.systems.notifications.notify_rig import NotifyRig, notifying
from tests.systems.notifications.test_notifications_page import PAGE, operating, text_of
from tests.web.rig import signed_in

# Raised by apprise's own imports.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")


async def away(statement: Cql, values: Values) -> None:
    if statement.of_history:
        raise StoreUnavailable("cassandra: no host answers")


async def lived(
    seed: int, *, days: int = 100, world: HistoryWorld | None = None
) -> tuple[HistoryWorld, list[str]]:
    """Create a recipient's notifications of some months, newest first; the store forgot most."""
    world, draw, ids = world or HistoryWorld(), random.Random(seed), list[str]()
    process, waiting = world.process(), list[str]()
    for _ in range(days):
        world.clock.advance(draw.randrange(2 * DAY_MS))
        # Several at the same time; one in ten waits for years.
        waits = [draw.random() < 0.1 for _ in range(draw.choice([1, 1, 2, 3]))]
        jobs = [
            world.notification(process, due_at=world.clock() + one * 1_000 * DAY_MS)
            for one in waits
        ]
        await world.store.enqueue(jobs)
        ids += [job.id for job in jobs]
        for job, one in zip(jobs, waits, strict=True):
            if one:
                waiting.append(job.id)
            else:
                await draw.choice([is_sent, is_refused])(process, job.id)
        if waiting and draw.random() < 0.1:
            # It ends late, and the store keeps it longer than those that arrived after it.
            await is_cancelled(process, waiting.pop(), Verb.KILL)
        await process.write()
        await world.store.sweep(1_000)
    return world, ids[::-1]


@pytest.mark.parametrize("limit", [1, pytest.param(2, marks=pytest.mark.slow), 3, 10, 1_000])
async def test_pages_contain_each_once_newest_first_over_months_while_the_store_forgets(limit: int):
    world, ids = await lived(limit)
    draw = random.Random(limit)
    found: list[str] = []
    cursor, pages = None, 0
    alone = 0
    while True:
        page = await world.page(cursor, limit)
        assert len(page.rows) <= limit
        assert not page.away
        found += [one.id for one in page.rows]
        alone += len(page.past)
        assert not any([await world.view(one) for one in page.past])
        cursor, pages = page.cursor, pages + 1
        if cursor is None:
            break
        # What one page read from the store, the next may read from the history, or the reverse.
        world.clock.advance(draw.randrange(2 * DAY_MS))
        await world.store.sweep(1_000)
    assert found == ids
    assert pages <= len(ids) // limit + 60
    assert 0 < alone < len(ids)


@pytest.mark.parametrize("limit", [1, 2, 4, 1_000])
async def test_notifications_of_the_same_time_may_not_be_ordered_by_id(limit: int):
    world = HistoryWorld()
    process = world.process()
    ids: set[str] = set()
    for forgotten in (True, False, False):
        jobs = [world.notification(process) for _ in range(5)]
        await world.store.enqueue(jobs[::-1])
        ids.update(job.id for job in jobs)
        for job in jobs[::-1]:
            await is_sent(process, job.id)
        await process.write()
        if forgotten:
            await world.forget()
    found, cursor = [], None
    while True:
        page = await world.page(cursor, limit)
        found += page.rows
        cursor = page.cursor
        if cursor is None:
            break
    assert sorted(one.id for one in found) == sorted(ids)
    moments = [one.created_at for one in found]
    assert moments == sorted(moments, reverse=True)


async def test_none_of_the_same_time_is_shown_again_when_the_store_has_forgotten_it():
    world = HistoryWorld()
    process = world.process()
    older = world.notification(process)
    await world.store.enqueue([older])
    await is_sent(process, older.id)
    await process.write()
    await world.forget()
    pair = [world.notification(process) for _ in range(2)]
    await world.store.enqueue(pair[::-1])
    for one in pair[::-1]:
        await is_sent(process, one.id)
    await process.write()
    first = await world.page(None, 2)
    assert [one.id for one in first.rows] == [one.id for one in pair]
    await world.forget()
    second = await world.page(first.cursor, 2)
    assert [one.id for one in second.rows] == [older.id]


async def test_nothing_older_is_shown_before_what_the_store_has_not_reached_yet():
    world = HistoryWorld()
    process = world.process()
    forgotten = world.notification(process)
    await world.store.enqueue([forgotten])
    await is_sent(process, forgotten.id)
    await process.write()
    await world.forget()
    waiting = world.notification(process)
    others = [
        NewJob(id=str(uuid4()), kind="other", subject="ada", due_at=world.clock())
        for _ in range(MOST_EXAMINED + 1)
    ]
    await world.store.enqueue([waiting])
    for start in range(0, len(others), 1_000):
        await world.store.enqueue(others[start : start + 1_000])
    first = await world.page()
    assert (first.rows, first.cursor is None) == ([], False)
    second = await world.page(first.cursor)
    assert [one.id for one in second.rows] == [waiting.id, forgotten.id]


async def test_page_is_the_same_from_the_store_or_the_history():
    world, ids = await lived(7, days=10)
    before = await world.page()
    assert [one.id for one in before.rows] == ids
    ended = [one for one in before.rows if one.status is not Status.QUEUED]
    await world.forget()
    after = await world.page()
    assert [one for one in after.rows if one.id in after.past] == ended
    assert {one.id for one in ended} == after.past


@pytest.mark.parametrize("limit", [1, pytest.param(2, marks=pytest.mark.slow), 5, 1_000])
async def test_pages_of_a_status_contain_those_of_both(limit: int):
    world, _ = await lived(3)
    whole = await world.page(limit=1_000)
    wanted = [one.id for one in whole.rows if one.status is Status.FAILED]
    found: list[str] = []
    cursor = None
    while True:
        page = await world.page(cursor, limit, status=Status.FAILED)
        found += [one.id for one in page.rows]
        cursor = page.cursor
        if cursor is None:
            break
    assert found == wanted
    assert 0 < len(found) < len(whole.rows)


async def test_store_answers_during_an_outage_of_the_history_and_the_rest_follows():
    # In which the store keeps some that are older than those it has forgotten.
    world, ids = await lived(3)
    there, world.link.before = world.link.before, away
    found: list[str] = []
    cursor = None
    while True:
        page = await world.page(cursor, 7)
        assert page.away
        assert not page.past
        found += [one.id for one in page.rows]
        cursor = page.cursor
        if cursor is None:
            break
    in_store = [one for one in ids if await world.view(one) is not None]
    assert found == in_store
    assert len(in_store) < len(ids)
    # If the history is unreachable until the store's last page, later pages miss nothing.
    got, cursor = list[str](), None
    while len(got) < len(in_store) - 5:
        page = await world.page(cursor, 5)
        got += [one.id for one in page.rows]
        cursor = page.cursor
    world.link.before = there
    while cursor is not None:
        page = await world.page(cursor, 5)
        got += [one.id for one in page.rows]
        cursor = page.cursor
    assert sorted(got) == sorted(ids)


async def test_unreadable_row_hides_no_other(caplog: pytest.LogCaptureFixture):
    world, ids = await lived(9)
    await world.forget()
    whole = [one.id for one in (await world.page(limit=1_000)).rows]
    part = next(iter(world.link.history.values()))
    (place, row), *_ = part.items()
    part[place] = (*row[:4], '{"id": 1}', *row[5:])
    page = await world.page(limit=1_000)
    assert [one.id for one in page.rows] == [one for one in whole if one != place[1]]
    assert f"history row unreadable id={place[1]}" in caplog.text
    assert len(ids) > len(page.rows) > 0


@pytest.mark.parametrize("cursor", ["", "x", "1.2", "1.2.x", "-1", f".9.{'a' * 37}", "1\n", "٣"])
async def test_cursor_of_another_listing_is_refused(cursor: str):
    with pytest.raises(InvalidValue, match="the cursor is not one of this timeline"):
        await HistoryWorld().page(cursor)


async def test_cursor_from_before_the_history_was_enabled_continues():
    world, ids = await lived(11)
    world.link.settings = KEPT.model_copy(update={"history": False})
    first = await world.page(None, 5)
    assert first.cursor is not None
    assert first.cursor.isdigit()
    world.link.settings = KEPT
    got, cursor = [one.id for one in first.rows], first.cursor
    while cursor is not None:
        page = await world.page(cursor, 5)
        got += [one.id for one in page.rows]
        cursor = page.cursor
    assert sorted(got) == sorted(ids)


async def forgotten(notify: NotifyRig) -> str:
    """Create a notification that only the history has; return its id."""
    world = HistoryWorld()
    process = world.process()
    job = world.notification(process)
    await world.store.enqueue([job])
    await is_sent(process, job.id)
    view = await world.view(job.id)
    past, now = notify.context.history, REAL.wall_at()
    assert view is not None
    assert past is not None
    old = replace(view, created_at=now - KEEP_MS)
    await past.write([(history.row_of(old), history.stamp_of(old))], now=now)
    return job.id


async def test_route_and_page_show_the_history_and_its_outage(
    tmp_path: Path,
):
    link = FakeLink(KEPT)
    async with operating(tmp_path, cassandra=link) as (notify, http):
        await notify.ada()
        old = await forgotten(notify)
        new = await notify.send(category="otp")
        await notify.becomes(new, "SENT")
        reply = await notify.ok("GET", "/recipients/ada/timeline")
        assert [one["id"] for one in reply["rows"]] == [new, old]
        assert [one["status"] for one in reply["rows"]] == ["SENT", "SENT"]
        assert (reply["cursor"], reply["history_away"]) == (None, False)
        first = await notify.ok("GET", "/recipients/ada/timeline?limit=1")
        path = f"/recipients/ada/timeline?limit=1&cursor={first['cursor']}"
        (second,) = (await notify.ok("GET", path))["rows"]
        assert second["id"] == old
        page = (await http.get(PAGE, params={"recipient": "ada"})).text
        # The store no longer has a job to show for it.
        assert f"/ui/jobs/{new}" in page
        assert f"/ui/jobs/{old}" not in page
        assert "in the history" in await text_of(http, PAGE, recipient="ada")
        text = await text_of(http, PAGE, recipient="ada", cursor=first["cursor"])
        assert "sent news" in text
        assert "sent otp" not in text
        link.before = away
        async with signed_in(notify.rig, Role.VIEWER) as viewer:
            told = await text_of(viewer, PAGE, recipient="ada", status="SENT")
        assert "The history in Cassandra does not answer" in told
        assert "sent otp" in told
        assert "sent news" not in told
        reply = await notify.ok("GET", "/recipients/ada/timeline")
        assert [one["id"] for one in reply["rows"]] == [new]
        assert (reply["cursor"], reply["history_away"]) == (None, True)


async def test_timeline_without_a_history_is_the_stores(tmp_path: Path):
    async with notifying(
        tmp_path, cassandra=FakeLink(KEPT.model_copy(update={"history": False}))
    ) as notify:
        await notify.ada()
        one = await notify.send()
        await notify.becomes(one, "SENT")
        reply = await notify.ok("GET", "/recipients/ada/timeline")
        assert [row["id"] for row in reply["rows"]] == [one]
        assert reply["history_away"] is False
        assert notify.context.parts.cassandra.asked == []  # type: ignore[union-attr]
        problem(await notify.call("GET", "/recipients/ada/timeline?cursor=x"), 422, "invalid_value")


@pytest.mark.parametrize("has_history", [True, False])
async def test_timeline_contains_only_the_notifications_of_its_recipient(
    tmp_path: Path, has_history: bool
):
    kept = KEPT.model_copy(update={"history": has_history})
    async with notifying(tmp_path, cassandra=FakeLink(kept)) as notify:
        await notify.ada()
        await notify.ada(id="bo", email="bo@example.org")
        ids = {who: await notify.send(recipient=who) for who in ("ada", "bo")}
        for who, one in ids.items():
            await notify.becomes(one, "SENT")
            reply = await notify.ok("GET", f"/recipients/{who}/timeline")
            assert [row["id"] for row in reply["rows"]] == [one]
