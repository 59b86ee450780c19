"""Webhooks of Twilio and SendGrid at the system's own routes: verified, applied once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from twilio.request_validator import RequestValidator
from uuid_utils import uuid7

from headway.contract.claims import ClaimRequest
from headway.contract.outcomes import HandedOver, SettleRequest
from headway.core.job import NewJob
from headway.runtime.timing import REAL
from headway.server.hooks.signals import MAX_REASON
from headway.systems.notifications.sender import Accepted, Message, SendResult
from tests.server.hooks.awaiting_jobs import post
from tests.server.hooks.senders import Mailer
from tests.server.problems import problem
from tests.systems.notifications.notify_rig import NotifyRig, notifying
from tests.systems.telephony.accounts import ACCOUNT, MESSAGE, TO, TOKEN

# Raised by apprise's own imports.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")

TWILIO = {"twilio": {"account_sid": ACCOUNT, "auth_token": TOKEN}}


async def posts(notify: NotifyRig, what: str, token: str = TOKEN, **form: str) -> Any:
    """Post what Twilio posts, signed as Twilio signs."""
    path = f"/notifications/hooks/twilio/{what}"
    signature = RequestValidator(token).compute_signature(notify.rig.url + path, form)
    head = {"X-Twilio-Signature": signature}
    return await notify.rig.http.post(path, data=form, headers=head)


def history(told: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(event["status"], event["channel"], event["reason"]) for event in told["events"]]


async def test_twilio_report_about_a_text_is_its_status(tmp_path: Path):
    async with notifying(tmp_path, telephony=TWILIO) as notify:
        await notify.ada(phone=TO)
        notify.sms.answers.append(Accepted(MESSAGE))
        one = await notify.send(channels=["sms", "email"])
        await notify.becomes(one, "SENT")
        said = {"MessageSid": MESSAGE, "MessageStatus": "undelivered", "ErrorCode": "30003"}
        forged = await posts(notify, "status", "f" * 32, **said)
        problem(forged, 401, "unauthenticated")
        assert (
            await posts(notify, "status", **{**said, "MessageStatus": "sent"})
        ).status_code == 204
        assert (await notify.get(one))["channel"] == "sms"
        for _ in range(2):
            assert (await posts(notify, "status", **said)).status_code == 204

        async def by_mail() -> bool:
            told = await notify.get(one)
            return (told["channel"], told["status"]) == ("email", "SENT")

        await notify.until(by_mail)
        told = await notify.get(one)
        # Twilio had accepted it, so it was SENT by SMS before it failed.
        assert history(told) == [
            ("QUEUED", "", ""),
            ("SENT", "sms", ""),
            ("FAILED", "sms", "sms: undelivered, error 30003"),
            ("SENT", "email", ""),
        ]
        moments = [event["at"] for event in told["events"]]
        assert moments == sorted(moments)
        assert len(notify.email.got) == 1
        job = await notify.job(one)
        # The next channel was due at once, not after the delay of a retry.
        assert job.due_at == job.runs[0].ended_at


async def test_failure_by_the_last_channel_keeps_that_it_was_sent(tmp_path: Path):
    async with notifying(tmp_path, telephony=TWILIO) as notify:
        await notify.ada(phone=TO)
        notify.sms.answers.append(Accepted(MESSAGE))
        one = await notify.send(channel="sms")
        await notify.becomes(one, "SENT")
        said = {"MessageSid": MESSAGE, "MessageStatus": "undelivered", "ErrorCode": "30003"}
        assert (await posts(notify, "status", **said)).status_code == 204
        assert history(await notify.becomes(one, "FAILED")) == [
            ("QUEUED", "", ""),
            ("SENT", "sms", ""),
            ("FAILED", "sms", "sms: undelivered, error 30003"),
        ]


async def test_failure_after_the_delivery_undoes_nothing(tmp_path: Path):
    async with notifying(tmp_path, telephony=TWILIO) as notify:
        await notify.ada(phone=TO)
        notify.sms.answers.append(Accepted(MESSAGE))
        one = await notify.send(channel="sms")
        await notify.becomes(one, "SENT")
        said = {"MessageSid": MESSAGE, "MessageStatus": "delivered"}
        assert (await posts(notify, "status", **said)).status_code == 204
        arrived = await notify.get(one)
        assert history(arrived) == [
            ("QUEUED", "", ""),
            ("SENT", "sms", ""),
            ("DELIVERED", "sms", ""),
        ]
        said = {"MessageSid": MESSAGE, "MessageStatus": "failed", "ErrorCode": "30005"}
        for _ in range(2):
            assert (await posts(notify, "status", **said, To=TO)).status_code == 204
        assert await notify.get(one) == arrived
        assert (await notify.ok("GET", "/recipients/ada"))["phone"] == TO


async def test_delivery_after_a_failure_is_the_last_of_its_history(tmp_path: Path):
    async with notifying(tmp_path, telephony=TWILIO) as notify:
        await notify.ada(phone=TO)
        notify.sms.answers.append(Accepted(MESSAGE))
        one = await notify.send(channel="sms")
        await notify.becomes(one, "SENT")
        said = {"MessageSid": MESSAGE, "MessageStatus": "undelivered", "ErrorCode": "30003"}
        assert (await posts(notify, "status", **said)).status_code == 204
        failed = await notify.becomes(one, "FAILED")
        said = {"MessageSid": MESSAGE, "MessageStatus": "delivered"}
        assert (await posts(notify, "status", **said)).status_code == 204
        told = await notify.get(one)
        assert told["status"] == "DELIVERED"
        assert told["events"][:-1] == failed["events"]
        assert history(told)[-1] == ("DELIVERED", "sms", "")


async def test_status_that_names_a_job_of_another_kind_changes_nothing(tmp_path: Path):
    async with notifying(tmp_path, telephony=TWILIO) as notify:
        (sent,) = await notify.store.enqueue([NewJob(id=str(uuid7()), kind="call", lane="other")])
        claim = ClaimRequest(worker="w", request=1, lanes=(("other", 1),), n=1, free=1)
        (claimed,) = (await notify.store.claim(claim)).jobs
        handed = HandedOver(sent.id, claimed.run, key="call-1", timeout_ms=60_000)
        await notify.store.settle(SettleRequest(worker="w", outcomes=(handed,)))
        before = await notify.job(sent.id)
        assert before.state == "awaiting"
        for way, more in (("delivered", {}), ("undelivered", {"ErrorCode": "30003"})):
            said = {"MessageSid": MESSAGE, "MessageStatus": way, **more}
            told = await posts(notify, f"status?ref={sent.id}", **said)
            assert told.status_code == 204
        assert await notify.job(sent.id) == before


async def test_sendgrid_report_about_mails_is_their_status(tmp_path: Path):
    mailer = Mailer()
    async with notifying(
        tmp_path, hooks={"sendgrid": {"public_keys": mailer.public_key}}
    ) as notify:
        await notify.ada()
        notify.email.answers += [Accepted("m-1"), Accepted("m-2")]
        one, two = await notify.send(), await notify.send()
        await notify.becomes(one, "SENT")
        await notify.becomes(two, "SENT")
        by_mail = {got.id: n for n, got in enumerate(notify.email.got, 1)}
        good, bad = (f"m-{by_mail[id_]}.recv-1" for id_ in (one, two))
        events = [
            {"event": "bounce", "sg_event_id": "e3", "sg_message_id": "m" * 600},
            {"event": "bounce", "sg_event_id": "e4", "sg_message_id": "m\0"},
            {"event": "delivered", "sg_event_id": "e1", "sg_message_id": good},
            {
                "event": "bounce",
                "sg_event_id": "e2",
                "sg_message_id": bad,
                "email": "ada@example.org",
                "status": "5.1.1",
                "reason": "no such mailbox\0" + "." * 2_000,
            },
        ]
        url = f"{notify.rig.url}/notifications/hooks/sendgrid"
        reply = await post(notify.rig.http, mailer.sends(url, events, now=REAL.wall_at()))
        assert reply.status_code == 204, reply.text
        assert (await notify.get(one))["status"] == "DELIVERED"
        told = await notify.get(two)
        reason = "email: " + "bounce, no such mailbox".ljust(MAX_REASON, ".")
        assert (told["status"], told["reason"]) == ("FAILED", reason)
        # The address no longer exists.
        assert (await notify.ok("GET", "/recipients/ada"))["email"] is None
        forged = await notify.rig.http.post("/notifications/hooks/sendgrid", json=events)
        assert forged.status_code == 401


async def test_bounce_before_the_reply_falls_back_to_the_next_channel(tmp_path: Path):
    mailer = Mailer()
    async with notifying(
        tmp_path, hooks={"sendgrid": {"public_keys": mailer.public_key}}
    ) as notify:
        await notify.ada(phone=TO)

        async def bounced(message: Message) -> SendResult:
            event = {
                "event": "bounce",
                "sg_event_id": "e1",
                "sg_message_id": "m-1.recv-1",
                "headway_ref": message.id,
                "email": "ada@example.org",
                "status": "5.1.1",
            }
            url = f"{notify.rig.url}/notifications/hooks/sendgrid"
            reply = await post(notify.rig.http, mailer.sends(url, [event], now=REAL.wall_at()))
            assert reply.status_code == 204, reply.text
            return Accepted("m-1")

        notify.email.answers.append(bounced)
        one = await notify.send(channels=["email", "sms"])

        async def by_text() -> bool:
            told = await notify.get(one)
            return (told["channel"], told["status"]) == ("sms", "SENT")

        await notify.until(by_text)
        assert len(notify.sms.got) == 1
        assert (await notify.ok("GET", "/recipients/ada"))["email"] is None
