"""The history: each ended notification once, through kills, late reports and a lost Cassandra."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from headway.bridges.cassandra.link import Cql, Values
from headway.cli.doctor import other_services
from headway.cli.settings import Settings
from headway.contract.operate import ActRequest, Verb
from headway.contract.views import LanesQuery, NoteView
from headway.core.errors import InvalidValue, OutcomeUnknown
from headway.core.job import DAY_MS
from headway.core.state import FINAL
from headway.systems.notifications import delivery, history
from headway.systems.notifications.delivery import DeliveryEvent
from headway.systems.notifications.metrics import (
    NotificationsOverview,
    Thresholds,
    notification_rules,
)
from headway.systems.notifications.notification import (
    FORGOTTEN,
    HISTORY_LANE,
    OFF,
    WRITTEN,
    Tallied,
)
from tests.bridges.cassandra.fake_link import FakeLink
from tests.bridges.cassandra.world import SETTINGS
from tests.servers.stores import NewUrl
from tests.systems.notifications.history_world import (
    KEPT,
    LEASE_MS,
    End,
    HistoryWorld,
    Killed,
    is_cancelled,
    is_expired,
    is_refused,
    is_sent,
)
from tests.systems.notifications.notify_rig import NotifyRig, notifying

# Raised by apprise's own imports.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")

ENDS = {
    "SENT": is_sent,
    "FAILED": is_refused,
    "CANCELLED": is_cancelled,
    "expired": is_expired,
}
HOUR = 3_600_000


async def finish(world: HistoryWorld, id_: str, end: End) -> None:
    """Run the next processes: leases expire, the notification ends, and it is written."""
    for _ in range(4):
        world.clock.advance(LEASE_MS + 15 * 60_000)
        process = world.process()
        await process.sweep(100)
        view = await world.view(id_)
        if view is not None and view.state not in FINAL:
            await end(process, id_)
        await process.write()


@pytest.mark.parametrize("how", ENDS)
async def test_each_ended_notification_arrives_once_though_the_process_dies_at_any_step(how: str):
    end, seam, died = ENDS[how], 0, True
    while died:
        world, died = HistoryWorld(), False
        process = world.process()
        expires_at = world.clock() + HOUR // 2 if how == "expired" else None
        job = world.notification(process, expires_at=expires_at)
        await world.store.enqueue([job])
        process.dies_at = seam
        process.seam = 0
        try:
            await end(process, job.id)
            await process.write()
        except Killed:
            died = True
        await finish(world, job.id, end)
        assert world.rows() == [(job.id, "FAILED" if how == "expired" else how)], seam
        view = await world.view(job.id)
        assert view is not None
        (row,) = [one for part in world.link.history.values() for one in part.values()]
        await world.forget()
        assert await world.view(job.id) is None
        (kept,) = (await world.page()).rows
        assert kept == history.notification_from(history.row_of(view))
        assert row[4] == history.row_of(view).record
        seam += 1
    # It was killed before and after each operation on the store and on Cassandra.
    assert seam > 10


async def one_that_ended(world: HistoryWorld) -> str:
    process = world.process()
    job = world.notification(process)
    await world.store.enqueue([job])
    await is_sent(process, job.id)
    return job.id


async def test_later_report_is_written_though_the_process_dies_at_any_step_and_hears_it_again():
    seam, died = 0, True
    while died:
        world, died = HistoryWorld(), False
        id_ = await one_that_ended(world)
        await world.process().write()
        assert world.rows() == [(id_, "SENT")]
        process = world.process(seam)
        word = DeliveryEvent(f"{id_}:1", "e1", delivered=True, reason="", ref=id_)
        try:
            await delivery.apply_event(process.context, word)
        except Killed:
            died = True
            # The provider got no reply, and posts it again.
            await delivery.apply_event(world.process().context, word)
        await world.process().write()
        assert world.rows() == [(id_, "DELIVERED")], seam
        seam += 1
    assert seam > 8


async def test_report_is_written_once_however_often_it_arrives():
    world = HistoryWorld()
    id_ = await one_that_ended(world)
    process = world.process()
    assert await process.write() == 1
    view = await world.view(id_)
    assert view is not None
    for _ in range(3):
        await delivery.mark_delivered(process.context, view)
    assert await process.write() == 1
    assert process.counted.count((Tallied.HISTORY, WRITTEN)) == 2


async def test_each_of_two_reports_is_written():
    world = HistoryWorld()
    id_ = await one_that_ended(world)
    process = world.process()
    await process.write()
    for event, expected in (("e1", False), ("e2", True)):
        word = DeliveryEvent(f"{id_}:1", event, delivered=expected, reason="full", ref=id_)
        await delivery.apply_event(process.context, word)
        assert await process.write() == 1
        assert world.rows() == [(id_, "DELIVERED" if expected else "FAILED")]


async def test_version_increases_though_a_trail_shows_only_its_last_lines():
    world = HistoryWorld()
    view = await world.view(await one_that_ended(world))
    assert view is not None
    ended_at = view.finished_at or 0
    lines = [NoteView(at=ended_at + n, what="note", author="", reason="") for n in range(101)]
    versions = [
        history.stamp_of(replace(view, trail=tuple(lines[start : start + 100]))) for start in (0, 1)
    ]
    assert versions[0] < versions[1]


async def test_slow_write_never_replaces_later_reports():
    world = HistoryWorld()
    id_ = await one_that_ended(world)

    async def meanwhile(statement: Cql, values: Values) -> None:
        del statement, values
        world.link.before = nothing
        view = await world.view(id_)
        assert view is not None
        other = world.process()
        await delivery.mark_delivered(other.context, view)
        assert await other.write() == 1
        assert world.rows() == [(id_, "DELIVERED")]

    nothing, world.link.before = world.link.before, meanwhile
    assert await world.process().write() == 1
    assert world.link.asked.count(Cql.PUT_HISTORY) == 2
    assert world.rows() == [(id_, "DELIVERED")]


async def test_notification_with_another_life_is_written_at_its_end():
    world = HistoryWorld()
    process = world.process()
    job = world.notification(process)
    await world.store.enqueue([job])
    await is_refused(process, job.id)
    request = ActRequest(request="r", ids=(job.id,), verb=Verb.RETRY, author="ada")
    await world.store.act(request)
    assert await process.write() == 1
    assert world.rows() == []
    world.clock.advance(1)
    await is_sent(process, job.id)
    await process.write()
    assert world.rows() == [(job.id, "SENT")]


async def test_rows_expire_relative_to_the_intake():
    world = HistoryWorld()
    id_ = await one_that_ended(world)
    world.clock.advance(DAY_MS)
    await world.process().write()
    (((at, _), row),) = next(iter(world.link.history.values())).items()
    view = await world.view(id_)
    assert view is not None
    assert at == view.created_at
    assert row[-2] == 364 * 86_400 + 1


async def test_notification_forgotten_before_it_was_written_is_counted(
    caplog: pytest.LogCaptureFixture,
):
    world = HistoryWorld()
    id_ = await one_that_ended(world)
    await world.forget()
    process = world.process()
    assert await process.write() == 1
    assert process.counted == [(Tallied.HISTORY, FORGOTTEN)]
    assert f"history missed a notification that the store had deleted id={id_}" in caplog.text


async def test_each_of_a_batch_has_its_own_outcome_and_is_written_together():
    world = HistoryWorld()
    process = world.process()
    gone = str(uuid4())
    ended = [await one_that_ended(world) for _ in range(2)]
    queued = world.notification(process)
    await world.store.enqueue([queued])
    asked = [ended[0], gone, queued.id, ended[1], ended[0]]
    found = await history._write(process.context, asked)
    assert found == [WRITTEN, FORGOTTEN, "", WRITTEN, WRITTEN]
    assert sorted(world.rows()) == sorted((id_, "SENT") for id_ in ended)
    assert world.link.asked.count(Cql.PUT_HISTORY) == 2


async def test_other_jobs_of_the_kind_are_not_written_and_hold_back_no_notification():
    world = HistoryWorld()
    process = world.process()
    ended = await one_that_ended(world)
    # As a caller of another lane can create, and an operator by `headway retry --args`.
    others = [
        world.notification(process, lane="mine"),
        world.notification(process, args=b"{}"),
    ]
    await world.store.enqueue(others)
    for one in others:
        await is_cancelled(process, one.id)
    found = await history._write(process.context, [others[0].id, ended, others[1].id])
    assert found == ["", WRITTEN, ""]
    assert world.rows() == [(ended, "SENT")]


async def test_few_try_during_a_cassandra_outage_and_each_is_written_afterwards():
    world = HistoryWorld()
    ids = [await one_that_ended(world) for _ in range(20)]

    async def away(statement: Cql, values: Values) -> None:
        raise OutcomeUnknown("cassandra: no host answers")

    nothing, world.link.before = world.link.before, away
    for _ in range(10):
        assert await world.process().write() <= 1
        world.clock.advance(61_000)
    (lane,) = await world.store.read(LanesQuery(names=(HISTORY_LANE,)))
    view = await world.view(ids[0])
    assert view is not None
    # It reports since when the history has not been written, however often that was tried.
    assert lane.oldest_due_at == view.finished_at
    assert world.rows() == []
    world.link.before = nothing
    await world.process().write()
    assert sorted(world.rows()) == sorted((id_, "SENT") for id_ in ids)


async def test_disabled_history_creates_nothing_and_finishes_what_is_left():
    world = HistoryWorld()
    id_ = await one_that_ended(world)
    world.link.settings = SETTINGS
    process = world.process()
    assert await process.write() == 1
    assert process.counted == [(Tallied.HISTORY, OFF)]
    await one_that_ended(world)
    assert await world.process().write() == 0
    assert (world.rows(), len(id_)) == ([], 36)


async def test_history_shorter_than_the_stores_retention_is_refused(tmp_path: Path):
    short = KEPT.model_copy(update={"history_kept": 30 * DAY_MS - 1})
    with pytest.raises(InvalidValue, match=r"cassandra\.history_kept is shorter"):
        async with notifying(tmp_path, cassandra=FakeLink(short)):
            pass


@pytest.mark.parametrize("where", ["memory", "sqlite", "postgresql", "redis"])
async def test_workers_write_each_end_and_a_delivery_after_it_on_every_store(
    tmp_path: Path, new_url: NewUrl, where: str
):
    link = FakeLink(KEPT)
    async with notifying(tmp_path, new_url(where), cassandra=link) as notify:
        await notify.ada(preferences={"opt_out": ["sms"]})
        notify.email.ids = False
        sent = await notify.send()
        skipped = await notify.send(channel="sms")
        confirmed = await notify.send()

        async def all_written() -> bool:
            return len(_rows(link)) == 3

        await notify.until(all_written)
        assert _rows(link) == {sent: "SENT", skipped: "SKIPPED", confirmed: "SENT"}
        await notify.ok("POST", f"/notifications/{confirmed}/delivered")

        async def delivered() -> bool:
            return _rows(link)[confirmed] == "DELIVERED"

        await notify.until(delivered)
        text = (await notify.call("GET", "/metrics")).text
        assert 'headway_notifications_history_rows_total{what="written"} 4.0' in text
        assert "headway_notifications_history_behind_seconds 0.0" in text


def _rows(link: FakeLink) -> dict[str, str]:
    return {id_: row[0] for part in link.history.values() for (_, id_), row in part.items()}


@pytest.mark.parametrize("where", ["memory", "sqlite", "postgresql", "redis"])
async def test_sends_continue_during_a_cassandra_outage_that_is_visible_on_every_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_url: NewUrl, where: str
):
    monkeypatch.setattr(history, "CLOSED_FOR", "1s")
    link = FakeLink(KEPT)
    nothing = link.before

    async def away(statement: Cql, values: Values) -> None:
        if statement is Cql.PUT_HISTORY:
            raise OutcomeUnknown("cassandra: no host answers")

    link.before = away
    async with notifying(tmp_path, new_url(where), cassandra=link) as notify:
        await notify.ada()
        notify.email.ids = False
        ids = [await notify.send() for _ in range(30)]
        for one in ids:
            await notify.becomes(one, "SENT")
        await notify.until(lambda: _is_closed(notify))
        text = (await notify.call("GET", "/metrics")).text
        (behind,) = [one for one in text.splitlines() if one.startswith(BEHIND)]
        assert float(behind.split()[1]) > 0
        link.before = nothing

        async def all_written() -> bool:
            return set(_rows(link)) == set(ids)

        await notify.until(all_written)


BEHIND = "headway_notifications_history_behind_seconds "


async def _is_closed(notify: NotifyRig) -> bool:
    (lane,) = await notify.store.read(LanesQuery(names=(HISTORY_LANE,)))
    return lane.paused


def test_lag_of_ten_minutes_for_two_minutes_is_an_alert():
    calm = NotificationsOverview(at=0, overdue_ms={}, closed={}, totals={})

    def found(behind_ms: int, at: int) -> dict[str, str]:
        rules, last = notification_rules(Thresholds()), {}
        for one in (0, at):
            seen = NotificationsOverview(
                at=one, overdue_ms={}, closed={}, totals={}, history_behind_ms=behind_ms
            )
            last = {rule.name: one.text for rule in rules for one in rule.check(seen)}
        return last

    assert calm.history_behind_ms == 0
    assert found(600_000, 120_000) == {}
    assert found(600_001, 119_999) == {}
    assert found(600_001, 120_000) == {
        "history_behind": "an ended notification has waited 10m to be written to the history "
        "(for 2m)"
    }


async def test_doctor_reports_what_waits_for_the_history(monkeypatch: pytest.MonkeyPatch):
    world = HistoryWorld()

    async def close() -> None:
        pass

    world.link.close = close  # type: ignore[attr-defined]
    monkeypatch.setattr(other_services, "make_link", lambda _: world.link)
    settings = Settings(cassandra={"hosts": ["a"]})
    patient = {"alerts": {"history_behind_above": "11m"}}

    async def said(**more: Any) -> list[tuple[str, str]]:
        asked = settings.model_copy(update=more)
        found = await other_services.check_calendar(asked, world.store)
        return [(one.health, one.found) for one in found if one.subject == "history"]

    assert await said() == [("ok", "no notification is waiting to be written")]
    await one_that_ended(world)
    world.clock.advance(600_000)
    assert await said() == [("ok", "1 waiting to be written, the oldest for 10m")]
    world.clock.advance(1)
    assert (await said())[0][0] == "warning"
    assert (await said(notifications=patient))[0][0] == "ok"
    world.link.settings = SETTINGS
    assert await said() == []
