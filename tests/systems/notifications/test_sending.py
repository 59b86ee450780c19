"""Sending: preferences at send time, fallback, gates, at most once; statuses from reports."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from headway.contract.claims import ClaimRequest
from headway.contract.outcomes import HandedOver, SettleRequest
from headway.contract.signals import Signal, SignalKind
from headway.contract.views import GatesQuery
from headway.core.errors import StoreUnavailable
from headway.core.instant import parse_instant
from headway.core.state import FINAL, State
from headway.runtime.handler_results import Running, Unknown
from headway.runtime.reconciliation import Awaited
from headway.runtime.timing import REAL, pause
from headway.systems.notifications import delivery, sending
from headway.systems.notifications.delivery import DeliveryEvent
from headway.systems.notifications.notification import (
    Channel,
    SendRecord,
    Status,
    body_of,
    known_as,
    read_args,
)
from headway.systems.notifications.records import Recipient, quiet_until
from headway.systems.notifications.sender import (
    Accepted,
    Limited,
    Message,
    Refused,
    SendResult,
    Unavailable,
    Unsure,
)
from tests.server.problems import problem
from tests.servers.stores import NewUrl
from tests.systems.notifications.notify_rig import LIMIT_S, NotifyRig, notifying

# Raised by apprise's own imports.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")


def word(provider_id: str, *, delivered: bool = True, **more: object) -> DeliveryEvent:
    given: dict[str, object] = {"event": "e1", "reason": "", **more}
    return DeliveryEvent(provider_id=provider_id, delivered=delivered, **given)  # pyright: ignore[reportArgumentType]


def quiet_now() -> str:
    """Return quiet hours that started an hour ago and end in about two."""
    now = datetime.fromtimestamp(REAL.wall_at() / 1000, UTC)
    start, end = now - timedelta(hours=1), now + timedelta(hours=2)
    return f"{start:%H:%M}-{end:%H:%M}"


async def test_accepted_one_is_sent_holds_nothing_and_is_delivered_by_the_webhook(
    tmp_path: Path,
):
    async with notifying(tmp_path, channels={"email": {"at_once": 1}}) as notify:
        await notify.ada()
        one = await notify.send(title="T", html="<p>x</p>", data={"a": 1})
        told = await notify.becomes(one, "SENT")
        assert told["late_ms"] == told["sent_at"] - told["due_at"]
        (got,) = notify.email.got
        assert (got.to, got.title, got.text, got.html) == (
            "ada@example.org",
            "T",
            "hello",
            "<p>x</p>",
        )
        # The only slot is free again, although the first still awaits its delivery report.
        await notify.becomes(await notify.send(), "SENT")
        await delivery.apply_event(notify.context, word(f"p-{one}-1"))
        told = await notify.get(one)
        assert told["status"] == "DELIVERED"
        assert [event["status"] for event in told["events"]] == ["QUEUED", "SENT", "DELIVERED"]
        await delivery.apply_event(notify.context, word(f"p-{one}-1"))
        assert await notify.get(one) == told


async def test_progress_by_another_caller_hides_no_notification(tmp_path: Path):
    async with notifying(tmp_path) as notify:
        await notify.ada()
        one = await notify.send()
        await notify.becomes(one, "SENT")
        job = await notify.job(one)
        body = {"event": "1", "progress": True, "body": {"status": "elsewhere"}}
        reply = await notify.ok("POST", f"/v1/signals/{job.id}:{job.run}", body)
        assert reply["answer"] == "applied"
        assert (await notify.get(one))["id"] == one
        await delivery.apply_event(notify.context, word(f"p-{one}-1"))
        assert (await notify.get(one))["status"] == "DELIVERED"


async def test_webhook_before_the_reply_is_not_lost(tmp_path: Path):
    async with notifying(tmp_path) as notify:
        await notify.ada()

        async def early(message: Message) -> SendResult:
            await delivery.apply_event(notify.context, word("early"))
            return Accepted("early")

        notify.email.answers.append(early)
        await notify.becomes(await notify.send(), "DELIVERED")


async def test_webhook_that_names_the_notification_settles_one_whose_reply_was_lost(
    tmp_path: Path,
):
    async with notifying(tmp_path) as notify:
        await notify.ada()
        notify.sms.answers.append(Unsure("timed out"))
        one = await notify.send(channel="sms")
        await notify.becomes(one, "SENT")
        await delivery.apply_event(notify.context, word("never recorded", ref=one))
        assert (await notify.get(one))["status"] == "DELIVERED"

        async def early(message: Message) -> SendResult:
            await delivery.apply_event(notify.context, word("early", ref=message.id))
            return Unsure("timed out")

        notify.sms.answers.append(early)
        await notify.becomes(await notify.send(channel="sms"), "DELIVERED")


async def test_webhook_about_an_unsent_notification_changes_nothing(tmp_path: Path):
    async with notifying(tmp_path, work=False) as notify:
        await notify.ada()
        one = await notify.send(channel="sms")
        for ref in (one, "no-such-notification"):
            await delivery.apply_event(notify.context, word("x", ref=ref))
        assert (await notify.get(one))["status"] == "QUEUED"


async def test_unreported_one_is_settled_as_sent(tmp_path: Path):
    async with notifying(tmp_path) as notify:
        await notify.ada()
        notify.email.ids = False
        one = await notify.send()
        await notify.becomes(one, "SENT")
        assert str((await notify.job(one)).state) == "succeeded"
        # A report after its end still becomes its status.
        told = await notify.ok("POST", f"/notifications/{one}/delivered")
        assert told == {"id": one, "status": "DELIVERED"}


async def test_app_confirms_a_push_and_nothing_that_was_not_sent(tmp_path: Path):
    async with notifying(tmp_path) as notify:
        await notify.ada(devices=["d1", "d2"])
        one = await notify.send(channel="push")
        await notify.becomes(one, "SENT")
        assert [got.to for got in notify.push.got] == ["d1", "d2"]
        await notify.ok("POST", f"/notifications/{one}/delivered")
        await notify.ok("POST", f"/notifications/{one}/delivered")
        assert (await notify.get(one))["status"] == "DELIVERED"
        ahead = await notify.send(scheduled_at="1h")
        reply = await notify.call("POST", f"/notifications/{ahead}/delivered")
        problem(reply, 409, "invalid_state")
        await notify.ok("DELETE", f"/notifications/{ahead}")
        reply = await notify.call("POST", f"/notifications/{ahead}/delivered")
        assert "was not sent" in problem(reply, 409, "invalid_state")["detail"]
        assert (await notify.get(ahead))["status"] == "CANCELLED"


async def test_opt_out_after_intake_applies_to_the_very_next_send(tmp_path: Path):
    async with notifying(tmp_path, work=False) as notify:
        await notify.ada()
        waits = [
            await notify.send(channel="sms", category="otp"),
            await notify.send(category="news"),
            await notify.send(category="otp"),
        ]
        preferences = {"opt_out": ["sms", "*:news"]}
        await notify.ok("PATCH", "/recipients/ada", {"preferences": preferences})
        notify.work()
        told = await notify.becomes(waits[0], "SKIPPED")
        assert told["reason"] == "opted out of sms"
        assert (await notify.becomes(waits[1], "SKIPPED"))["reason"] == "opted out of *:news"
        await notify.becomes(waits[2], "SENT")
        assert notify.sms.got == []


@pytest.mark.parametrize(
    ("at", "until"),
    [
        ("2026-03-10T21:59:59.999+01:00", None),
        ("2026-03-10T22:00:00+01:00", "2026-03-11T07:00:00+01:00"),
        ("2026-03-11T06:59:59.999+01:00", "2026-03-11T07:00:00+01:00"),
        ("2026-03-11T07:00:00+01:00", None),
        # The clock goes forward in this night.
        ("2026-03-29T00:00:00+01:00", "2026-03-29T07:00:00+02:00"),
    ],
)
def test_quiet_hours_include_their_start_and_exclude_their_end(at: str, until: str | None):
    preferences = {"quiet_hours": "22:00-07:00"}
    ada = Recipient(id="ada", tz="Europe/Berlin", preferences=preferences)
    ends = None if until is None else parse_instant(until)
    assert quiet_until(ada, parse_instant(at)) == ends


async def test_quiet_hours_delay_everything_but_otps_and_alerts_until_their_end(tmp_path: Path):
    async with notifying(tmp_path) as notify:
        await notify.ada(preferences={"quiet_hours": quiet_now()})
        quiet = await notify.send()
        await notify.becomes(await notify.send(category="otp"), "SENT")
        await notify.becomes(await notify.send(category="alert"), "SENT")

        async def snoozed() -> bool:
            return str((await notify.job(quiet)).state) == "scheduled"

        await notify.until(snoozed)
        assert (await notify.get(quiet))["reason"] == "quiet hours"
        job = await notify.job(quiet)
        ahead = timedelta(milliseconds=job.due_at - REAL.wall_at())
        assert timedelta(hours=1, minutes=58) < ahead <= timedelta(hours=2)
        assert (job.attempt, len(notify.email.got)) == (0, 2)


async def test_notification_that_expires_in_quiet_hours_fails_when_it_expires(tmp_path: Path):
    async with notifying(tmp_path) as notify:
        await notify.ada(preferences={"quiet_hours": quiet_now()})
        later = await notify.send(expires_at="1h")
        one = await notify.send(expires_at="1s")
        assert "expired" in (await notify.becomes(one, "FAILED"))["reason"]

        async def snoozed() -> bool:
            return (await notify.get(later))["reason"] == "quiet hours"

        await notify.until(snoozed)
        job = await notify.job(later)
        assert 0 <= job.due_at - (read_args(job.args).expires_at or 0) < 10_000
        assert notify.email.got == []


async def test_unreachable_directory_postpones_and_never_assumes_consent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sending, "DIRECTORY_RETRY", "10ms")
    async with notifying(tmp_path) as notify:
        await notify.ada()
        reader = notify.context.reader
        read, asked = reader.read, asyncio.Event()
        tries = 0

        async def away(*_: object) -> object:
            nonlocal tries
            tries += 1
            if tries >= 3:
                asked.set()
            message = "away"
            raise StoreUnavailable(message)

        monkeypatch.setattr(reader, "read", away)
        one = await notify.send()
        async with asyncio.timeout(60):
            await asked.wait()
        assert notify.email.got == []
        told = await notify.get(one)
        assert told["status"] == "QUEUED"
        assert told["reason"].startswith("recipients cannot be read: ")
        monkeypatch.setattr(reader, "read", read)
        await notify.becomes(one, "SENT")


async def test_refusal_and_opt_out_fall_back_to_the_next_channel_in_one_timeline(
    tmp_path: Path,
):
    async with notifying(tmp_path) as notify:
        await notify.ada(preferences={"opt_out": ["sms"]})
        notify.push.answers.append(Refused("BadDeviceToken", gone=True))
        one = await notify.send(channels=["push", "sms", "email"])
        told = await notify.becomes(one, "SENT")
        assert told["channel"] == "email"
        assert [got.channel for got in notify.email.got] == ["email"]
        (row,) = (await notify.ok("GET", "/recipients/ada/timeline"))["rows"]
        assert [(event["status"], event["channel"]) for event in row["events"]] == [
            ("QUEUED", ""),
            ("FAILED", "push"),
            ("SENT", "email"),
        ]
        # The device is retired: the next notification skips it.
        assert (await notify.ok("GET", "/recipients/ada"))["devices"] == []
        two = await notify.send(channels=["push", "sms"])
        told = await notify.becomes(two, "SKIPPED")
        assert told["reason"] == "no push address; opted out of sms"


async def test_refusal_by_the_last_channel_fails_with_the_providers_reason(tmp_path: Path):
    async with notifying(tmp_path) as notify:
        await notify.ada()
        notify.email.answers.append(Refused("550 no such user", gone=True))
        told = await notify.becomes(await notify.send(), "FAILED")
        assert told["reason"] == "email: 550 no such user"
        assert (await notify.ok("GET", "/recipients/ada"))["email"] is None


async def test_refusal_before_an_opted_out_channel_fails_and_is_not_skipped(
    tmp_path: Path,
):
    async with notifying(tmp_path) as notify:
        await notify.ada(preferences={"opt_out": ["sms"]})
        notify.push.answers.append(Refused("BadTopic"))
        told = await notify.becomes(await notify.send(channels=["push", "sms"]), "FAILED")
        assert told["reason"] == "no channel is left: opted out of sms"


async def test_bounce_falls_back_to_the_next_channel_or_fails(tmp_path: Path):
    async with notifying(tmp_path) as notify:
        await notify.ada()
        one = await notify.send(channels=["email", "sms"])
        await notify.becomes(one, "SENT")
        bounce = word(f"p-{one}-1", delivered=False, reason="bounced", gone="ada@example.org")
        await delivery.apply_event(notify.context, bounce)

        async def by_sms() -> bool:
            return bool(notify.sms.got)

        await notify.until(by_sms)
        told = await notify.becomes(one, "SENT")
        assert told["channel"] == "sms"
        assert (await notify.ok("GET", "/recipients/ada"))["email"] is None
        assert told["attempts"] == 2


@pytest.mark.parametrize(
    ("held", "kept"), [("Ada@example.org", None), ("new@example.org", "new@example.org")]
)
async def test_bounce_removes_the_address_used_and_none_set_since(
    tmp_path: Path, held: str, kept: str | None
):
    async with notifying(tmp_path) as notify:
        await notify.ada()
        one = await notify.send()
        await notify.becomes(one, "SENT")
        await notify.ok("PATCH", "/recipients/ada", {"email": held})
        bounce = word(f"p-{one}-1", delivered=False, reason="bounced", gone="ada@example.org")
        await delivery.apply_event(notify.context, bounce)
        assert (await notify.get(one))["status"] == "FAILED"
        assert (await notify.ok("GET", "/recipients/ada"))["email"] == kept


async def test_late_report_of_an_earlier_channel_does_not_affect_a_later_one(tmp_path: Path):
    async with notifying(tmp_path) as notify:
        await notify.ada()
        notify.email.answers.append(Accepted("m-1"))
        notify.sms.answers.append(Accepted("s-1"))
        one = await notify.send(channels=["email", "sms"])
        await notify.becomes(one, "SENT")
        await delivery.apply_event(notify.context, word("m-1", delivered=False, reason="deferred"))
        await notify.until(lambda: _by(notify, one, "sms"))
        assert (await notify.job(one)).gates == notify.context.uses(Channel.SMS) != ()
        again = word("m-1", delivered=False, reason="bounced", gone="ada@example.org", event="e2")
        await delivery.apply_event(notify.context, again)
        told = await notify.get(one)
        assert (told["channel"], told["status"]) == ("sms", "SENT")
        ada = await notify.ok("GET", "/recipients/ada")
        assert (ada["email"], ada["phone"]) == (None, "+14155550100")
        failed = word("s-1", delivered=False, reason="unknown number", event="e3")
        await delivery.apply_event(notify.context, failed)
        assert (await notify.becomes(one, "FAILED"))["reason"] == "sms: unknown number"


async def test_late_delivery_is_counted_for_the_channel_that_delivered(tmp_path: Path):
    async with notifying(tmp_path) as notify:
        await notify.ada()
        notify.email.answers.append(Accepted("m-1"))
        one = await notify.send(channels=["email", "sms"])
        await notify.becomes(one, "SENT")
        await delivery.apply_event(notify.context, word("m-1", delivered=False, reason="deferred"))
        await notify.until(lambda: _by(notify, one, "sms"))
        await delivery.apply_event(notify.context, word("m-1", event="e2"))
        assert (await notify.get(one))["status"] == "DELIVERED"
        totals = await notify.context.tally.totals()
        assert totals["outcome", "email:DELIVERED"] == 1
        assert ("outcome", "sms:DELIVERED") not in totals
        # The later channel still awaits its own delivery.
        assert (await notify.job(one)).state is State.AWAITING
        for status, listed in (("DELIVERED", [one]), ("SENT", []), ("QUEUED", [])):
            rows = (await notify.ok("GET", f"/notifications?status={status}"))["rows"]
            assert [row["id"] for row in rows] == listed


async def _by(notify: NotifyRig, one: str, channel: str) -> bool:
    told = await notify.get(one)
    return (told["channel"], told["status"]) == (channel, "SENT")


async def test_dead_address_is_removed_though_another_channel_has_delivered(
    tmp_path: Path,
):
    async with notifying(tmp_path) as notify:
        await notify.ada()
        notify.email.answers.append(Accepted("m-1"))
        notify.sms.answers.append(Accepted("s-1"))
        one = await notify.send(channels=["email", "sms"])
        await notify.becomes(one, "SENT")
        await delivery.apply_event(notify.context, word("m-1", delivered=False, reason="deferred"))
        # Both keys are known by then, or the reports are kept until they are.
        await delivery.apply_event(notify.context, word("s-1", event="e2"))
        assert (await notify.becomes(one, "DELIVERED"))["channel"] == "sms"
        gone = word("m-1", delivered=False, reason="bounced", gone="ada@example.org", event="e3")
        await delivery.apply_event(notify.context, gone)
        assert (await notify.get(one))["status"] == "DELIVERED"
        assert (await notify.ok("GET", "/recipients/ada"))["email"] is None


async def test_receiver_that_wants_fewer_webhooks_delays_none_to_others(tmp_path: Path):
    async with notifying(tmp_path) as notify:
        await notify.ada(webhook_url="https://ada.example.org/")
        box = notify.boxes[Channel.WEBHOOK]
        for retry_after_ms, least_ms, most_ms in ((3_600_000,) * 3, (1_000, 2_500, 5_000)):
            box.answers.append(Unavailable("the webhook answered 429", retry_after_ms))
            one = await notify.send(channel="webhook")

            async def put_off(one: str = one) -> bool:
                return (await notify.job(one)).state is State.SCHEDULED

            await notify.until(put_off)
            job = await notify.job(one)
            assert least_ms <= job.due_at - (job.runs[0].ended_at or 0) <= most_ms
        await notify.becomes(await notify.send(channel="webhook"), "SENT")
        (gate,) = (await notify.store.read(GatesQuery(names=(Channel.WEBHOOK.slots,)))).rows
        assert gate.closed_until is None


async def test_rate_limit_closes_the_channel_until_its_time_and_uses_no_attempt(tmp_path: Path):
    async with notifying(tmp_path) as notify:
        await notify.ada()
        notify.email.answers.append(Limited("429", retry_after_ms=3_600_000))
        one = await notify.send()
        gate = next(c for c in notify.boxes if c == "email").slots

        async def closed() -> bool:
            (state,) = (await notify.store.read(GatesQuery(names=(gate,)))).rows
            return state.closed_until is not None

        await notify.until(closed)
        two = await notify.send(category="otp")
        await notify.becomes(await notify.send(channel="sms"), "SENT")
        job = await notify.job(one)
        assert (job.attempt, len(notify.email.got)) == (0, 1)
        assert {(await notify.get(each))["status"] for each in (one, two)} == {"QUEUED"}
        assert (await notify.get(one))["reason"] == "email: 429"
        reply = await notify.call("DELETE", f"/v1/closures/{gate}")
        assert reply.status_code < 300, reply.text
        await notify.becomes(one, "SENT")
        await notify.becomes(two, "SENT")


async def test_rate_limit_without_a_time_closes_the_channel_as_configured(tmp_path: Path):
    async with notifying(tmp_path, channels={"email": {"closed_for": "1h"}}) as notify:
        await notify.ada()
        notify.email.answers.append(Limited("429", retry_after_ms=None))
        await notify.send()

        async def closed_until() -> int | None:
            query = GatesQuery(names=(Channel.EMAIL.slots,))
            return (await notify.store.read(query)).rows[0].closed_until

        before = REAL.wall_at()
        closed_ms = await notify.until(closed_until) - before
        assert 3_540_000 < closed_ms <= 3_600_000 + LIMIT_S * 1_000


async def test_rate_limit_that_is_over_at_once_still_closes_the_channel_for_a_second(
    tmp_path: Path,
):
    async with notifying(tmp_path) as notify:
        await notify.ada()
        notify.email.answers.append(Limited("429", retry_after_ms=0))
        one = await notify.send()
        await notify.becomes(one, "SENT")
        first, second = (await notify.job(one)).runs
        assert second.claimed_at - (first.ended_at or 0) >= 1_000


async def test_unreachable_provider_is_retried_then_the_next_channel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with notifying(tmp_path, attempts=2) as notify:
        await notify.ada()
        notify.email.answers += [Unavailable("no route"), Unavailable("no route")]
        one = await notify.send(channels=["email", "sms"])

        async def tried() -> bool:
            return (await notify.job(one)).attempt == 1 and len(notify.email.got) == 1

        await notify.until(tried)

        async def run_now() -> bool:
            await notify.call("POST", f"/v1/jobs/{one}/run-now", {})
            return bool(notify.sms.got)

        await notify.until(run_now)
        assert len(notify.email.got) == 2
        told = await notify.becomes(one, "SENT")
        assert told["channel"] == "sms"


async def test_retry_by_an_operator_gives_all_tries_by_the_channel_again(tmp_path: Path):
    async with notifying(tmp_path, attempts=3) as notify:
        await notify.ada()
        notify.email.answers += [Unavailable("no route")] * 5
        one = await notify.send()

        async def tried(number: int) -> None:
            async def done() -> bool:
                await notify.call("POST", f"/v1/jobs/{one}/run-now", {})
                return len(notify.email.got) == number

            await notify.until(done)

        await tried(3)
        await notify.becomes(one, "FAILED")
        await notify.ok("POST", f"/v1/jobs/{one}/retry", {})
        await tried(6)
        await notify.becomes(one, "SENT")


async def test_worker_without_the_sender_leaves_the_notification_to_another(tmp_path: Path):
    async with notifying(tmp_path, work=False) as notify:
        await notify.ada()
        one = await notify.send()
        sender = notify.boxes.pop(Channel.EMAIL)
        notify.work()

        async def postponed() -> bool:
            return (await notify.job(one)).state is State.SCHEDULED

        await notify.until(postponed)
        told = await notify.get(one)
        reason = "email: this worker has no sender for email"
        assert (told["status"], told["reason"]) == ("QUEUED", reason)
        notify.boxes[Channel.EMAIL] = sender
        await notify.ok("POST", f"/v1/jobs/{one}/run-now", {})
        await notify.becomes(one, "SENT")


@pytest.mark.parametrize(
    ("answers", "opt_out"),
    [([Unavailable("no route")] * 2, []), ([Refused("unknown")], []), ([], ["email"])],
    ids=["unreachable", "refused", "opted_out"],
)
async def test_next_channel_is_tried_as_often_whatever_the_previous_ones_outcome(
    tmp_path: Path, answers: list[SendResult], opt_out: list[str]
):
    async with notifying(tmp_path, attempts=2) as notify:
        await notify.ada(preferences={"opt_out": opt_out})
        notify.email.answers += answers
        notify.sms.answers += [Unavailable("no route")] * 2
        one = await notify.send(channels=["email", "sms", "push"])

        async def run_now() -> bool:
            await notify.call("POST", f"/v1/jobs/{one}/run-now", {})
            return (await notify.get(one))["status"] in {"SENT", "FAILED"}

        await notify.until(run_now)
        assert (await notify.get(one))["channel"] == "push"
        assert (len(notify.email.got), len(notify.sms.got)) == (len(answers), 2)


async def test_opt_out_while_a_provider_is_unreachable_is_no_failure(tmp_path: Path):
    async with notifying(tmp_path) as notify:
        await notify.ada()
        notify.email.answers.append(Unavailable("no route"))
        one = await notify.send()

        async def put_back() -> bool:
            job = await notify.job(one)
            return [run.outcome for run in job.runs] == ["failed"]

        await notify.until(put_back)
        change = {"preferences": {"opt_out": ["email"]}}
        await notify.ok("PATCH", "/recipients/ada", change)
        await notify.call("POST", f"/v1/jobs/{one}/run-now", {})
        told = await notify.becomes(one, "SKIPPED")
        assert told["reason"] == "opted out of email"
        assert len(notify.email.got) == 1


async def test_send_with_a_lost_reply_is_reported_and_never_repeated(tmp_path: Path):
    async with notifying(tmp_path) as notify:
        await notify.ada()

        async def broken(_: Message) -> SendResult:
            message = "a bug"
            raise RuntimeError(message)

        notify.email.answers += [Unsure("timed out"), broken]
        told = await notify.becomes(await notify.send(channels=["email", "sms"]), "SENT")
        assert told["reason"] == "sent, answer lost: timed out"
        told = await notify.becomes(await notify.send(channels=["email", "sms"]), "SENT")
        assert told["reason"].startswith("sent, answer lost: RuntimeError")
        assert (len(notify.email.got), notify.sms.got) == (2, [])


async def test_worker_stopped_during_a_send_leaves_one_send_and_the_report(
    tmp_path: Path,
):
    async with notifying(tmp_path, work=False, answer_within="1s") as notify:
        await notify.ada()
        reached = asyncio.Event()

        async def never(_: Message) -> SendResult:
            reached.set()
            await asyncio.Event().wait()
            raise AssertionError

        notify.email.answers.append(never)
        worker = notify.work()
        one = await notify.send(channels=["email", "sms"])
        async with asyncio.timeout(60):
            await reached.wait()
        assert (await notify.get(one))["status"] == "QUEUED"
        await notify.stop(worker, now=True)
        notify.work()
        told = await notify.becomes(one, "SENT")
        assert told["reason"] == "sent, answer lost"
        assert (len(notify.email.got), notify.sms.got) == (1, [])


@pytest.mark.parametrize("where", ["memory", "sqlite", "postgresql", "redis"])
async def test_send_of_a_worker_that_dies_after_the_hand_over_is_reported_not_repeated(
    tmp_path: Path, new_url: NewUrl, where: str
):
    async with notifying(tmp_path, new_url(where), work=False) as notify:
        await notify.ada()
        one = await notify.send(channels=["email", "sms"])
        claim = ClaimRequest(worker="dies", request=1, lanes=(("notify.email", 1),), lease_ms=300)
        (claimed,) = (await notify.store.claim(claim)).jobs
        handed = HandedOver(one, claimed.run, key=f"{one}:{claimed.run}", timeout_ms=3_600_000)
        await notify.store.settle(SettleRequest(worker="dies", outcomes=(handed,)))
        notify.work()
        told = await notify.becomes(one, "SENT")
        assert told["reason"] == "sent, answer lost"
        assert (notify.email.got, notify.sms.got) == ([], [])
        await notify.becomes(await notify.send(), "SENT")


async def test_send_of_a_worker_that_dies_after_the_reply_keeps_awaiting_its_delivery(
    tmp_path: Path,
):
    async with notifying(tmp_path, work=False, delivery_within="72h") as notify:
        await notify.ada()
        one = await notify.send()
        claim = ClaimRequest(worker="dies", request=1, lanes=(("notify.email", 1),), lease_ms=300)
        (claimed,) = (await notify.store.claim(claim)).jobs
        ref = f"{one}:{claimed.run}"
        handed = HandedOver(one, claimed.run, key=ref, timeout_ms=3_600_000)
        await notify.store.settle(SettleRequest(worker="dies", outcomes=(handed,)))
        said = body_of(SendRecord(status=Status.SENT, channel=Channel.EMAIL))
        accepted = Signal(
            key=ref, event="sent", kind=SignalKind.PROGRESS, body=said, known_as=known_as("p")
        )
        await notify.store.signal(accepted)
        notify.work()

        async def asked() -> bool:
            job = await notify.job(one)
            handed_at = job.runs[-1].handed_at or 0
            return (job.deadline_at or 0) > handed_at + 3_600_000 or job.state in FINAL

        await notify.until(asked)
        assert (await notify.job(one)).state is State.AWAITING
        await delivery.apply_event(notify.context, word("p"))
        assert (await notify.get(one))["status"] == "DELIVERED"


async def test_late_question_about_an_earlier_run_decides_nothing(tmp_path: Path):
    async with notifying(tmp_path) as notify:
        await notify.ada()
        notify.email.answers.append(Limited("429", retry_after_ms=1))
        one = await notify.send()
        await notify.becomes(one, "SENT")
        job = await notify.job(one)
        earlier, later = (cast("Awaited", SimpleNamespace(id=one, run=run.run)) for run in job.runs)
        assert await sending.reconcile(notify.context, earlier) == Unknown()
        assert isinstance(await sending.reconcile(notify.context, later), Running)


class Clock:
    """The real clocks, plus offsets set by the test."""

    def __init__(self) -> None:
        self.ahead_s = 0.0
        self.wall_ahead_ms = 0

    def __getattr__(self, name: str) -> object:
        return getattr(REAL, name)

    def monotonic(self) -> float:
        return REAL.monotonic() + self.ahead_s

    def wall_at(self) -> int:
        return REAL.wall_at() + self.wall_ahead_ms


async def test_opt_out_while_a_message_waits_for_its_connection_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with notifying(tmp_path) as notify:
        clock = Clock()
        monkeypatch.setattr(notify.context.parts, "timing", clock)
        await notify.ada()

        async def opts_out() -> None:
            change = {"preferences": {"opt_out": ["email:news"]}}
            await notify.ok("PATCH", "/recipients/ada", change)
            clock.ahead_s += 1.0

        notify.email.queue = opts_out
        one = await notify.send(category="news")
        told = await notify.becomes(one, "SKIPPED")
        assert told["reason"] == "opted out of email:news"
        assert notify.email.got == []
        assert [run.outcome for run in (await notify.job(one)).runs] == ["snoozed", "succeeded"]
        # Others are sent after the same wait.
        await notify.becomes(await notify.send(category="bills"), "SENT")


async def test_quiet_hours_that_begin_while_a_message_waits_for_its_connection_delay_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with notifying(tmp_path) as notify:
        clock = Clock()
        monkeypatch.setattr(notify.context.parts, "timing", clock)
        soon = datetime.fromtimestamp(REAL.wall_at() / 1000, UTC) + timedelta(hours=1)
        spans = f"{soon:%H:%M}-{soon + timedelta(hours=8):%H:%M}"
        await notify.ada(preferences={"quiet_hours": spans})

        async def until_they_begin() -> None:
            clock.ahead_s, clock.wall_ahead_ms = 0.2, 3_600_000

        notify.email.queue = until_they_begin
        one = await notify.send()

        async def postponed() -> bool:
            return (await notify.get(one))["reason"] == "quiet hours"

        await notify.until(postponed)
        assert notify.email.got == []
        await notify.becomes(await notify.send(category="otp"), "SENT")


async def test_one_that_expires_while_it_waits_for_its_connection_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with notifying(tmp_path) as notify:
        clock = Clock()
        monkeypatch.setattr(notify.context.parts, "timing", clock)
        await notify.ada()

        async def until_it_expires() -> None:
            clock.ahead_s, clock.wall_ahead_ms = 0.2, 3_600_000

        notify.email.queue = until_it_expires
        expires_at = datetime.fromtimestamp(REAL.wall_at() / 1000, UTC) + timedelta(hours=1)
        one = await notify.send(expires_at=expires_at.isoformat())
        told = await notify.becomes(one, "FAILED")
        assert told["reason"] == "it expired before it was sent"
        assert notify.email.got == []


@pytest.mark.parametrize(("connects_s", "reads_s"), [(0.2, 0.6), (0.2, 200.0), (200.0, 0.0)])
async def test_worker_frozen_while_it_read_or_sent_sends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, connects_s: float, reads_s: float
):
    monkeypatch.setattr(sending, "DIRECTORY_RETRY", "10ms")
    async with notifying(tmp_path) as notify:
        clock, reads = Clock(), 0
        monkeypatch.setattr(notify.context.parts, "timing", clock)
        read = notify.context.reader.read

        async def stands_still(*asked: str | None) -> object:
            nonlocal reads
            reads += 1
            found = await read(*asked)  # pyright: ignore[reportArgumentType]
            if reads == 2:
                clock.ahead_s += reads_s
            return found

        async def waits() -> None:
            clock.ahead_s += connects_s if reads == 1 else 0.2

        monkeypatch.setattr(notify.context.reader, "read", stands_still)
        notify.email.queue = waits
        await notify.ada()
        one = await notify.send()
        await notify.becomes(one, "SENT")
        assert len(notify.email.got) == 1
        assert next(run.outcome for run in (await notify.job(one)).runs) == "snoozed"


async def test_directory_lost_before_the_last_moment_holds_the_message_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sending, "DIRECTORY_RETRY", "10ms")
    async with notifying(tmp_path) as notify:
        clock, reads = Clock(), 0
        monkeypatch.setattr(notify.context.parts, "timing", clock)
        read = notify.context.reader.read

        async def away_once(*asked: str | None) -> object:
            nonlocal reads
            reads += 1
            if reads == 2:
                message = "away"
                raise StoreUnavailable(message)
            return await read(*asked)  # pyright: ignore[reportArgumentType]

        async def waits() -> None:
            clock.ahead_s += 0.2

        monkeypatch.setattr(notify.context.reader, "read", away_once)
        notify.email.queue = waits
        await notify.ada()
        one = await notify.send()
        await notify.becomes(one, "SENT")
        assert next(run.outcome for run in (await notify.job(one)).runs) == "snoozed"
        assert len(notify.email.got) == 1


async def test_slow_directory_is_not_read_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with notifying(tmp_path) as notify:
        clock = Clock()
        monkeypatch.setattr(notify.context.parts, "timing", clock)
        read = notify.context.reader.read

        async def slowly(*asked: str | None) -> object:
            clock.ahead_s += 0.6
            return await read(*asked)  # pyright: ignore[reportArgumentType]

        monkeypatch.setattr(notify.context.reader, "read", slowly)
        await notify.ada()
        one = await notify.send()

        async def postponed() -> bool:
            return (await notify.job(one)).state is State.SCHEDULED

        await notify.until(postponed)
        job = await notify.job(one)
        assert job.due_at - (job.runs[0].ended_at or 0) == 5_000
        assert notify.email.got == []


async def test_many_slow_devices_are_sent_to_concurrently_and_one_success_decides(tmp_path: Path):
    async with notifying(tmp_path) as notify:
        devices = [f"d{n}" for n in range(20)]
        await notify.ada(devices=devices)
        everybody = asyncio.Event()

        async def slow(message: Message) -> SendResult:
            if len(notify.push.got) == len(devices):
                everybody.set()
            # If they were sent one after another, the first would wait here forever.
            async with asyncio.timeout(60):
                await everybody.wait()
            if message.to == "d7":
                return Accepted("p-7")
            return Refused("410", gone=True) if message.to == "d3" else Unavailable("too slow")

        notify.push.answers += [slow] * len(devices)
        one = await notify.send(channel="push")
        told = await notify.becomes(one, "SENT")
        assert (told["attempts"], told["reason"]) == (1, "")
        assert sorted(got.to for got in notify.push.got) == sorted(devices)
        ada = await notify.ok("GET", "/recipients/ada")
        assert ada["devices"] == [each for each in devices if each != "d3"]


async def test_device_that_is_listed_twice_gets_one_message(tmp_path: Path):
    async with notifying(tmp_path) as notify:
        await notify.ada(devices=["d1", "d2", "d1"])
        await notify.becomes(await notify.send(channel="push"), "SENT")
        assert sorted(one.to for one in notify.push.got) == ["d1", "d2"]


async def test_expired_one_and_one_without_a_recipient_fail(tmp_path: Path):
    async with notifying(tmp_path, work=False) as notify:
        await notify.ada()
        await notify.ok("POST", "/recipients", {"id": "bo", "email": "b@example.org"}, 201)
        late = await notify.send(expires_at="1ms")
        gone = await notify.send(recipient="bo")
        await notify.ok("DELETE", "/recipients/bo", status=204)
        notify.work()
        assert "expired" in (await notify.becomes(late, "FAILED"))["reason"]
        assert (
            "the recipient 'bo' no longer exists"
            in (await notify.becomes(gone, "FAILED"))["reason"]
        )
        assert notify.email.got == []


async def test_one_that_expires_between_two_attempts_is_not_retried(tmp_path: Path):
    async with notifying(tmp_path) as notify:
        await notify.ada()

        async def outlast(message: Message) -> SendResult:
            left_ms = (message.expires_at or 0) - REAL.wall_at()
            await pause(max(0, left_ms) / 1000)
            return Unavailable("no route")

        notify.email.answers.append(outlast)
        one = await notify.send(expires_at="1s")
        assert "expired" in (await notify.becomes(one, "FAILED"))["reason"]
        # However slow the sending was, none was sent after that.
        assert len(notify.email.got) <= 1


async def test_template_that_cannot_be_rendered_fails_with_its_place(tmp_path: Path):
    async with notifying(tmp_path) as notify:
        await notify.ada()
        text = {"text": "Hi\n{{ name }}"}
        body = {"id": "hello", "channels": {"email": text}}
        await notify.ok("POST", "/message-templates", body, 201)
        good = await notify.send(text="", template="hello", data={"name": "Ada"})
        await notify.becomes(good, "SENT")
        assert notify.email.got[0].text == "Hi\nAda"
        bad = await notify.send(text="", template="hello")
        told = await notify.becomes(bad, "FAILED")
        assert told["reason"] == "template 'hello', email.text, line 2: 'name' is undefined"


async def test_urgent_ones_are_sent_first_of_the_waiting(tmp_path: Path):
    async with notifying(
        tmp_path, work=False, jitter="0s", channels={"email": {"at_once": 1}}
    ) as notify:
        await notify.ada()
        order = [
            await notify.send(priority="low"),
            await notify.send(),
            await notify.send(priority="high"),
            await notify.send(category="otp", priority="low"),
        ]
        notify.work(concurrency=1)
        for one in order:
            await notify.becomes(one, "SENT")
        assert [got.id for got in notify.email.got] == order[::-1]


async def test_rate_of_a_channel_is_never_exceeded_and_delays_no_other(tmp_path: Path):
    async with notifying(tmp_path, channels={"sms": {"rate": 2, "per": "1h"}}) as notify:
        await notify.ada()
        three = [await notify.send(channel="sms") for _ in range(3)]
        for one in three[:2]:
            await notify.becomes(one, "SENT")
        await notify.becomes(await notify.send(), "SENT")

        async def waits_there() -> bool:
            why = await notify.ok("GET", f"/v1/jobs/{three[2]}/why")
            return "notify.sms.rate" in why["sentence"]

        await notify.until(waits_there)
        assert (await notify.get(three[2]))["status"] == "QUEUED"
        assert len(notify.sms.got) == 2


async def _after_its_time(notify: NotifyRig, one: str) -> None:
    async def settled() -> bool:
        return (await notify.job(one)).finished_at is not None

    await notify.until(settled)


async def test_one_whose_delivery_is_never_reported_stays_sent_after_its_time(tmp_path: Path):
    async with notifying(tmp_path, delivery_within="50ms") as notify:
        await notify.ada()
        one = await notify.send()
        await _after_its_time(notify, one)
        told = await notify.get(one)
        assert (told["status"], told["reason"]) == ("SENT", "")
        await delivery.apply_event(
            notify.context, word(f"p-{one}-1", delivered=False, reason="bounced")
        )
        told = await notify.get(one)
        assert (told["status"], told["reason"]) == ("FAILED", "bounced")
