"""Intake over HTTP: checked by index, spread, exact about duplicates, cancelled, queried."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from bench.dedupe.__main__ import bloom, exact, keys
from headway.contract.signals import SignalResult
from headway.core.errors import StoreUnavailable
from headway.runtime.timing import REAL
from headway.systems.directory.database import Directory
from headway.systems.notifications import context, notification_routes
from headway.systems.notifications.delivery import DeliveryEvent, apply_event
from headway.systems.notifications.intake import HIGH, LOW, NORMAL, URGENT, digest_of, take_keys
from headway.systems.notifications.notification import Channel
from headway.systems.notifications.records import SCHEMA
from tests.server.problems import problem
from tests.servers.postgres import GivenPostgres, PostgresServer, fresh_database
from tests.systems.notifications.notify_rig import NotifyRig, notifying

# Raised by apprise's own imports.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")

LATER = "2036-01-01T00:00Z"


async def dedupe_count(notify: NotifyRig) -> int:
    async with notify.context.directory.read() as session:
        return (await session.execute(text("SELECT count(*) FROM notify_keys"))).scalar_one()


async def test_notification_in_the_past_is_due_now_and_a_future_one_then(tmp_path: Path):
    async with notifying(tmp_path, work=False) as notify:
        await notify.ada()
        now = await notify.rig.service.now()
        past = await notify.job(await notify.send(scheduled_at="2001-01-01T00:00Z"))
        assert past.due_at >= now
        ahead = await notify.job(await notify.send(scheduled_at=LATER))
        assert ahead.due_at == 2_082_758_400_000
        assert str(ahead.state) == "scheduled"


async def test_otps_and_alerts_come_first_and_only_low_priority_is_spread(tmp_path: Path):
    async with notifying(tmp_path, work=False, jitter="1h") as notify:
        await notify.ada()
        spread: set[int] = set()
        for more, priority in (
            ({"priority": "low", "category": "otp"}, URGENT),
            ({"priority": "normal", "category": "alert"}, URGENT),
            ({"priority": "high"}, HIGH),
            ({}, NORMAL),
        ):
            job = await notify.job(await notify.send(scheduled_at=LATER, **more))
            assert (job.priority, job.due_at) == (priority, 2_082_758_400_000)
        for _ in range(8):
            job = await notify.job(await notify.send(scheduled_at=LATER, priority="low"))
            assert job.priority == LOW
            assert 0 <= job.due_at - 2_082_758_400_000 <= 3_600_000
            spread.add(job.due_at)
        assert len(spread) > 1


async def test_spread_notification_does_not_expire_by_being_spread(tmp_path: Path):
    async with notifying(tmp_path, work=False, jitter="1h") as notify:
        await notify.ada()
        spread: set[int] = set()
        for _ in range(20):
            more = {"scheduled_at": "1m", "expires_at": "10m"}
            job = await notify.job(await notify.send(priority="low", **more))
            at = job.created_at + 60_000
            spread.add(job.due_at - at)
            assert job.expires_at is not None
            assert job.due_at <= (at + job.expires_at) // 2
        assert len(spread) > 1
        past = await notify.job(await notify.send(priority="low", expires_at="2001-01-01T00:00Z"))
        assert past.due_at <= past.created_at


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"recipient": "nobody"}, "no recipient 'nobody'"),
        ({"template": "nothing", "text": ""}, "no template 'nothing'"),
        ({"channel": "fax"}, "channel"),
        ({"channels": ["email", "sms"]}, "pass `channel`, or `channels`"),
        ({"channels": ["email", "sms"]}, "`channel` and `channels` cannot be combined"),
        ({"text": ""}, "template"),
        ({"template": "x"}, "`template` and `text` cannot be combined"),
        ({"template": "x", "text": "", "html": ""}, "`template` and `html` cannot be combined"),
        ({"title": "x", "text": ""}, "`text` is empty"),
        ({"template": "x"}, "template"),
        ({"priority": "urgent"}, "priority"),
        ({"scheduled_at": "tomorrow"}, "scheduled_at"),
        ({"scheduled_at": 1_900_000_000}, "milliseconds"),
        ({"scheduled_at": LATER, "expires_at": LATER}, "not before `expires_at`"),
        ({"scheduled_at": "20m", "expires_at": "10m"}, "not before `expires_at`"),
        ({"category": "A b"}, "category"),
        ({"dedupe": "k"}, "dedupe"),
    ],
)
async def test_one_bad_item_of_a_list_is_reported_by_index_and_nothing_is_stored(
    tmp_path: Path, wrong: dict[str, Any], said: str
):
    async with notifying(tmp_path, work=False) as notify:
        await notify.ada()
        good = {"recipient": "ada", "channel": "email", "text": "hello"}
        reply = await notify.call("POST", "/notifications", [good, good, {**good, **wrong}])
        told = problem(reply, 422, "invalid_value")
        assert "2" in told["detail"]
        assert said in reply.text
        assert (await notify.ok("GET", "/notifications"))["rows"] == []


async def test_missing_field_is_not_reported_as_given_twice(tmp_path: Path):
    async with notifying(tmp_path, work=False) as notify:
        for body in ({"recipient": "ada", "text": "x"}, {"recipient": "ada", "channel": "sms"}):
            reply = await notify.call("POST", "/notifications", body)
            told = problem(reply, 422, "invalid_value")["detail"]
            assert "pass `" in told
            assert "cannot be combined" not in told


async def test_list_names_the_place_of_a_fault_in_errors_or_the_item(tmp_path: Path):
    async with notifying(tmp_path, work=False) as notify:
        await notify.ada()
        good = {"recipient": "ada", "channel": "email", "text": "hello"}
        reply = await notify.call("POST", "/notifications", [good, {**good, "recipient": "bo"}])
        assert problem(reply, 422, "invalid_value")["item"] == 1
        reply = await notify.call("POST", "/notifications", [good, {**good, "channel": "fax"}])
        told = problem(reply, 422, "invalid_value")
        assert [one["where"] for one in told["errors"]] == ["body.1.channel"]


async def test_cancelled_notification_keeps_its_key(tmp_path: Path):
    async with notifying(tmp_path, work=False) as notify:
        await notify.ada()
        body = {"recipient": "ada", "channel": "email", "text": "x", "dedupe_key": "k"}
        first = await notify.ok("POST", "/notifications", body, 201)
        await notify.ok("DELETE", f"/notifications/{first['id']}")
        # Repeating a request whose reply was lost must not send the notification after all.
        again = await notify.ok("POST", "/notifications", body, 200)
        assert again == {"id": first["id"], "created": False, "due_at": None}
        assert (await notify.get(first["id"]))["status"] == "CANCELLED"
        await notify.ok("POST", "/notifications", {**body, "dedupe_key": "k2"}, 201)


async def test_channel_without_a_sender_is_refused(tmp_path: Path):
    async with notifying(tmp_path, work=False) as notify:
        await notify.ada()
        del notify.boxes[next(one for one in notify.boxes if one == "sms")]
        body = {"recipient": "ada", "channel": "sms", "text": "hello"}
        reply = await notify.call("POST", "/notifications", body)
        assert "[notifications.senders.sms]" in problem(reply, 422, "invalid_value")["hint"]


async def test_duplicate_gets_the_first_ones_id_and_sends_nothing(tmp_path: Path):
    async with notifying(tmp_path, work=False) as notify:
        await notify.ada()
        await notify.ok("POST", "/recipients", {"id": "bo", "email": "b@example.org"}, 201)
        first = await notify.send(dedupe_key="k", text="one")
        assert await notify.send(dedupe_key="k", text="another text") == first
        others = [
            await notify.send(dedupe_key="k2"),
            await notify.send(dedupe_key="k", channel="sms"),
            await notify.send(dedupe_key="k", recipient="bo"),
            await notify.send(),
        ]
        assert len({first, *others}) == 5
        body = {"recipient": "ada", "channel": "email", "text": "x", "dedupe_key": "k"}
        told = await notify.ok("POST", "/notifications", [body, {**body, "dedupe_key": "n"}] * 2)
        rows = told["notifications"]
        assert [one["created"] for one in rows] == [False, True, False, False]
        assert rows[0]["id"] == rows[2]["id"] == first
        assert rows[1]["id"] == rows[3]["id"]


async def test_window_runs_from_the_first_accepted_one_and_no_duplicate_restarts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with notifying(tmp_path, work=False, dedupe_window="1h") as notify:
        await notify.ada()
        service = notify.rig.service
        start = await service.now()
        at = start

        async def now() -> int:
            return at

        monkeypatch.setattr(service, "now", now)
        first = await notify.send(dedupe_key="k")
        at = start + 3_599_999
        assert await notify.send(dedupe_key="k") == first
        at = start + 3_600_000
        second = await notify.send(dedupe_key="k")
        assert second != first
        assert await notify.send(dedupe_key="k") == second


async def test_expired_keys_are_removed_by_new_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with notifying(tmp_path, work=False, dedupe_window="1h") as notify:
        await notify.ada()
        service = notify.rig.service
        start = await service.now()
        at = start

        async def now() -> int:
            return at

        monkeypatch.setattr(service, "now", now)
        body = {"recipient": "ada", "channel": "email", "text": "x"}
        for hour in range(4):
            at = start + hour * 3_600_000
            many = [{**body, "dedupe_key": f"{hour} {n}"} for n in range(40)]
            assert (await notify.call("POST", "/notifications", many)).status_code < 300
            assert await dedupe_count(notify) <= 80
        assert await dedupe_count(notify) == 40


async def test_key_taken_again_meanwhile_is_not_removed_as_expired(
    fast_postgres_server: PostgresServer | GivenPostgres,
):
    key, other_key = digest_of("ada", Channel.SMS, "k"), digest_of("bo", Channel.SMS, "k")
    with fresh_database(fast_postgres_server.url) as url:
        directory = Directory(url)
        directory.needs(SCHEMA)
        await directory.open()

        async def take(session: AsyncSession, key: bytes, id_: str, now: int) -> str:
            return (await take_keys(session, [(key, id_)], now=now, window_ms=1_000))[key]

        async def take_other() -> None:
            async with directory.change() as session:
                await take(session, other_key, "other", 1_500)

        async def waits() -> bool:
            async with directory.read() as session:
                asked = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
                return bool((await session.execute(asked)).scalar_one())

        try:
            async with directory.change() as session:
                assert await take(session, key, "first", 0) == "first"
            async with directory.change() as session:
                assert await take(session, key, "second", 1_500) == "second"
                other = asyncio.create_task(take_other())
                async with asyncio.timeout(60):
                    while not (other.done() or await waits()):
                        await REAL.pause(0.01)
            await other
            async with directory.change() as session:
                assert await take(session, key, "duplicate", 2_000) == "second"
        finally:
            await directory.close()


async def test_dedupe_drops_no_distinct_key_and_finds_each_duplicate(tmp_path: Path):
    asked = keys(2_000, 20)
    dropped, size = await exact(asked, str(tmp_path))
    assert dropped == 20
    # A Bloom filter of a usual size drops some; one as large as the table does not.
    assert bloom(asked, 2_000, 2_000) > 20
    assert bloom(asked, size, 2_000) == 20


async def test_key_whose_notification_was_never_stored_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with notifying(tmp_path, work=False) as notify:
        await notify.ada()

        async def away(*_: object, **__: object) -> list[Any]:
            message = "away"
            raise StoreUnavailable(message)

        body = {"recipient": "ada", "channel": "email", "text": "x", "dedupe_key": "k"}
        with monkeypatch.context() as patch:
            patch.setattr(context, "send_jobs", away)
            reply = await notify.call("POST", "/notifications", body)
            problem(reply, 503, "store_unavailable")
        told = await notify.ok("POST", "/notifications", body, 201)
        assert told["created"]
        assert (await notify.get(told["id"]))["status"] == "QUEUED"
        assert await notify.send(dedupe_key="k") == told["id"]


async def test_duplicate_with_another_text_stored_first_refuses_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with notifying(tmp_path, work=False) as notify:
        await notify.ada()
        stores, began, goes_on = context.send_jobs, asyncio.Event(), asyncio.Event()

        async def send_jobs(*args: Any, **more: Any) -> Any:
            if not began.is_set():
                began.set()
                await goes_on.wait()
            return await stores(*args, **more)

        monkeypatch.setattr(context, "send_jobs", send_jobs)
        body = {"recipient": "ada", "channel": "email", "text": "one"}
        many = [body, {**body, "dedupe_key": "k"}, {**body, "dedupe_key": "other"}, body]
        first = asyncio.create_task(notify.ok("POST", "/notifications", many))
        await began.wait()
        # The first request has the key, and has stored nothing yet.
        second = await notify.send(dedupe_key="k", text="two")
        goes_on.set()
        taken = (await first)["notifications"]
        assert [one["created"] for one in taken] == [True, False, True, True]
        assert taken[1] == {"id": second, "created": False, "due_at": None}
        assert len((await notify.ok("GET", "/notifications"))["rows"]) == 4
        assert b"two" in (await notify.job(second)).args


async def test_notification_that_is_sent_during_its_cancel_still_goes_on_with_the_next_channel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with notifying(tmp_path, work=False) as notify:
        await notify.ada()
        sent = await notify.send(channels=["email", "sms"])
        stores = notification_routes.act

        async def late(*args: Any, **more: Any) -> Any:
            notify.work()
            await notify.becomes(sent, "SENT")
            return await stores(*args, **more)

        monkeypatch.setattr(notification_routes, "act", late)
        problem(await notify.call("DELETE", f"/notifications/{sent}"), 409, "invalid_state")
        (message,) = notify.email.got
        event = DeliveryEvent(f"p-{message.id}-1", "e1", delivered=False, reason="no such mailbox")
        assert await apply_event(notify.context, event) is SignalResult.APPLIED
        assert (await notify.becomes(sent, "SENT"))["channel"] == "sms"
        assert [one.id for one in notify.sms.got] == [sent]


async def test_queued_notification_is_cancelled_and_a_sent_one_is_not(tmp_path: Path):
    async with notifying(tmp_path) as notify:
        await notify.ada()
        ahead = await notify.send(scheduled_at=LATER)
        told = await notify.ok("DELETE", f"/notifications/{ahead}")
        assert told == {"id": ahead, "status": "CANCELLED"}
        assert (await notify.get(ahead))["events"][-1]["status"] == "CANCELLED"
        problem(await notify.call("DELETE", f"/notifications/{ahead}"), 409, "invalid_state")
        sent = await notify.send()
        await notify.becomes(sent, "SENT")
        problem(await notify.call("DELETE", f"/notifications/{sent}"), 409, "invalid_state")
        assert [one.id for one in notify.email.got] == [sent]
        nothing = "01a20583-0ba2-70d6-ab1c-bb234e54c475"
        problem(await notify.call("GET", f"/notifications/{nothing}"), 404, "unknown_record")


async def test_ten_thousand_are_accepted_in_one_request(tmp_path: Path):
    async with notifying(tmp_path, work=False) as notify:
        await notify.ada()
        body = {"recipient": "ada", "channel": "email", "text": "x", "scheduled_at": LATER}
        many = [{**body, "dedupe_key": f"k{n}"} for n in range(10_000)]
        reply = await notify.call("POST", "/notifications", many)
        assert reply.status_code < 300, reply.text
        rows = reply.json()["notifications"]
        assert len({one["id"] for one in rows}) == 10_000
        problem(await notify.call("POST", "/notifications", [*many, body]), 422, "invalid_value")
