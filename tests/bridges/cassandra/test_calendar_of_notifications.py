"""The system `notifications` with a calendar: intake, status, cancels, duplicates and pages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headway.bridges.cassandra import monitoring
from headway.bridges.cassandra.link import Cql, Values, read_cassandra
from headway.bridges.cassandra.monitoring import FAMILIES, CalendarStatus, calendar_rules
from headway.bridges.cassandra.reader import Reader
from headway.bridges.cassandra.rows import CalendarProgress
from headway.contract.definitions import Role
from headway.contract.views import StatsQuery
from headway.core.errors import InvalidValue, StoreUnavailable
from headway.runtime.timing import REAL
from tests.bridges.cassandra.fake_link import FakeLink
from tests.bridges.cassandra.world import HOUR, MINUTE, SETTINGS
from tests.systems.notifications.notify_rig import NotifyRig, notifying
from tests.systems.notifications.test_notifications_page import operating, text_of
from tests.web.rig import signed_in

# Raised by the imports of apprise.
PAGE = "/ui/calendar"
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")


async def made(notify: NotifyRig) -> int:
    return (await notify.store.read(StatsQuery())).totals.get("enqueued", 0)


async def in_an_hour(notify: NotifyRig) -> int:
    return (await notify.store.read(StatsQuery())).now + HOUR


async def test_far_notification_is_stored_in_the_calendar_and_reported(tmp_path: Path) -> None:
    link = FakeLink(SETTINGS)
    async with notifying(tmp_path, cassandra=link) as notify:
        await notify.ada()
        due_at = await in_an_hour(notify)
        far = await notify.send(scheduled_at=due_at)
        assert link.left == 1
        assert await made(notify) == 0
        told = await notify.get(far)
        assert (told["status"], told["due_at"], told["recipient"]) == ("QUEUED", due_at, "ada")
        await notify.becomes(await notify.send(), "SENT")
        unknown = f"/notifications/{'0' * 8}-{far[9:]}"
        assert (await notify.call("GET", unknown)).status_code == 404


async def test_cancelled_notification_leaves_the_calendar_with_its_record(tmp_path: Path) -> None:
    link = FakeLink(SETTINGS)
    async with notifying(tmp_path, cassandra=link) as notify:
        await notify.ada()
        far = await notify.send(scheduled_at=await in_an_hour(notify))
        reply = await notify.ok("DELETE", f"/notifications/{far}")
        assert reply == {"id": far, "status": "CANCELLED"}
        assert link.left == 0
        assert (await notify.get(far))["status"] == "CANCELLED"


async def test_duplicate_of_one_in_the_calendar_gets_its_id(tmp_path: Path) -> None:
    link = FakeLink(SETTINGS)
    async with notifying(tmp_path, cassandra=link) as notify:
        await notify.ada()
        due_at = await in_an_hour(notify)
        first = await notify.send(scheduled_at=due_at, dedupe_key="k")
        assert await notify.send(scheduled_at=due_at, dedupe_key="k") == first
        assert await notify.send(dedupe_key="k") == first
        assert link.left == 1
        assert await made(notify) == 0


async def test_page_shows_read_progress_and_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitoring, "FRESH_S", 0.0)
    link = FakeLink(SETTINGS)
    async with operating(tmp_path, cassandra=link) as (notify, http):
        assert "The calendar was never read" in await text_of(http, PAGE)
        await notify.ada()
        await notify.send(scheduled_at=await in_an_hour(notify))
        link.settings = SETTINGS.model_copy(update={"horizon": 2 * HOUR})
        await Reader(link, notify.store, REAL).round()
        async with signed_in(notify.rig, Role.VIEWER) as viewer:
            assert "Jobs created1rows read: 1" in await text_of(viewer, PAGE)
        link.settings = SETTINGS.model_copy(update={"horizon": 8 * HOUR})
        assert "of 8h · behind" in await text_of(http, PAGE)

        async def away(statement: Cql, values: Values) -> None:
            raise StoreUnavailable("cassandra: away")

        link.before = away
        assert "Cassandra does not respond. cassandra: away" in await text_of(http, PAGE)
        async with signed_in(notify.rig, Role.PRODUCER) as producer:
            assert (await producer.get(PAGE)).status_code == 403


async def test_unreachable_cassandra_refuses_only_far_notifications(
    tmp_path: Path,
) -> None:
    link = FakeLink(SETTINGS)
    async with notifying(tmp_path, cassandra=link) as notify:
        await notify.ada()
        far = await notify.send(scheduled_at=await in_an_hour(notify))
        link.settings = SETTINGS.model_copy(update={"horizon": 2 * HOUR})
        await Reader(link, notify.store, REAL).round()
        assert (await made(notify), link.left) == (1, 0)
        assert (await notify.get(far))["status"] == "QUEUED"
        text = (await notify.call("GET", "/metrics")).text
        assert 'headway_calendar_rows_total{what="enqueued"} 1.0' in text
        assert "headway_calendar_up 1.0" in text
        ahead = next(one for one in text.splitlines() if one.startswith("headway_calendar_ahead_s"))
        assert 6_000 < float(ahead.split()[1]) <= 7_260
        for family in FAMILIES:
            assert f"# TYPE {family.name} {family.kind}" in text

        async def away(statement: Cql, values: Values) -> None:
            raise StoreUnavailable("cassandra: away")

        link.before = away
        assert "headway_calendar_up 0.0" in (await notify.call("GET", "/metrics")).text
        refused = await notify.call(
            "POST",
            "/notifications",
            {
                "recipient": "ada",
                "channel": "email",
                "text": "x",
                "scheduled_at": await in_an_hour(notify) + 3 * HOUR,
            },
        )
        assert refused.status_code == 503
        await notify.becomes(await notify.send(), "SENT")


NOW = 1_900_000_000_000
READ = CalendarProgress(shards=2, done_through=NOW // MINUTE - 4, read_through=NOW // MINUTE + 15)
CALM = CalendarStatus(at=0, now=NOW, horizon_ms=15 * MINUTE, progress=READ)


def found(*sights: CalendarStatus) -> dict[str, str]:
    rules = calendar_rules()
    last: dict[str, str] = {}
    for status in sights:
        last = {rule.name: one.text for rule in rules for one in rule.check(status) or ()}
    return last


def test_calendar_read_ahead_in_time_raises_no_alert() -> None:
    assert found(CALM, replace(CALM, at=HOUR)) == {}
    assert found(replace(CALM, progress=None), replace(CALM, progress=None, at=HOUR)) == {}


def test_cassandra_unreachable_for_a_minute_raises_an_alert() -> None:
    away = replace(CALM, progress=None, away="no host answers")
    assert found(away, replace(away, at=MINUTE - 1)) == {}
    assert found(away, replace(away, at=MINUTE)) == {
        "calendar_away": "no response for 1m: no host answers"
    }


def test_half_a_horizon_unread_for_a_minute_raises_an_alert() -> None:
    behind = replace(CALM, now=NOW + 9 * MINUTE)
    assert found(behind, replace(behind, at=MINUTE - 1)) == {}
    assert set(found(behind, replace(behind, at=MINUTE))) == {"calendar_behind"}


def test_refused_rows_raise_an_alert() -> None:
    more = replace(CALM, at=1, progress=replace(READ, refused=3))
    assert found(CALM, more) == {
        "calendar_refused": "3 rows were refused within 15m and are stored separately"
    }


def test_settings_errors_name_the_problem() -> None:
    assert read_cassandra({"hosts": ["a"], "horizon": "1h"}).horizon == HOUR
    with pytest.raises(InvalidValue, match=r"cassandra\.horzon: there is no such setting"):
        read_cassandra({"hosts": ["a"], "horzon": "1h"})
    with pytest.raises(InvalidValue, match=r"cassandra\.keyspace"):
        read_cassandra({"hosts": ["a"], "keyspace": "x; DROP"})
    with pytest.raises(InvalidValue, match=r"cassandra\.hosts"):
        read_cassandra({"port": 1})
    with pytest.raises(InvalidValue, match=r"cassandra\.hosts\.1: 'b\.\.c' is not the name of a"):
        read_cassandra({"hosts": ["a", "b..c"]})
