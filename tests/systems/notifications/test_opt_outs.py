"""Opting out from outside: STOP and START as Twilio signs them, one click in a received mail."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from twilio.request_validator import RequestValidator

from headway.core.errors import StoreUnavailable
from headway.runtime.signals import sign
from headway.runtime.timing import REAL
from headway.systems.directory.database import Directory
from headway.systems.notifications.mail import Smtp
from headway.systems.notifications.notification import Channel
from headway.systems.notifications.opt_outs import PURPOSE
from tests.server.problems import problem
from tests.systems.notifications.notify_rig import NotifyRig, notifying
from tests.systems.notifications.senders.messages import read_senders
from tests.systems.notifications.senders.smtp_server import Mailbox, smtp
from tests.systems.telephony.accounts import ACCOUNT, FROM, MESSAGE, TO, TOKEN

# Raised by apprise's own imports.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")

TWILIO = {"twilio": {"account_sid": ACCOUNT, "auth_token": TOKEN}}
KEY, OLDER = "k" * 40, "o" * 40


async def writes(notify: NotifyRig, text: str, token: str = TOKEN, **more: str) -> Any:
    """Post what Twilio sends for an incoming text, signed as Twilio signs."""
    path = "/notifications/hooks/twilio/texts"
    form = {"MessageSid": MESSAGE, "From": TO, "To": FROM, "Body": text, **more}
    signature = RequestValidator(token).compute_signature(notify.rig.url + path, form)
    head = {"X-Twilio-Signature": signature}
    return await notify.rig.http.post(path, data=form, headers=head)


async def opt_outs(notify: NotifyRig, recipient: str = "ada") -> Any:
    return (await notify.ok("GET", f"/recipients/{recipient}"))["preferences"]["opt_out"]


async def test_stop_forwarded_by_twilio_is_an_opt_out(tmp_path: Path):
    async with notifying(tmp_path, telephony=TWILIO) as notify:
        await notify.ada(phone=TO)
        problem(await writes(notify, "Stop", "f" * 32), 401, "unauthenticated")
        assert await opt_outs(notify) == []
        reply = await writes(notify, "Stop")
        assert (reply.status_code, reply.headers["content-type"][:15]) == (200, "application/xml")
        told = await notify.becomes(await notify.send(channel="sms", category="otp"), "SKIPPED")
        assert told["reason"] == "opted out of sms:STOP"
        assert notify.sms.got == []
        gone = await notify.rig.http.post("/notifications/hooks/nobody/texts", data={"Body": "x"})
        assert gone.status_code == 404


async def test_start_revokes_a_stop_and_no_other_opt_out(tmp_path: Path):
    async with notifying(tmp_path, telephony=TWILIO) as notify:
        own = ["sms:news", "*:offers"]
        await notify.ada(phone=TO, preferences={"opt_out": own})
        await notify.ok(
            "POST",
            "/recipients",
            {"id": "bo", "phone": TO, "preferences": {"opt_out": ["sms"]}},
            201,
        )
        version = (await notify.ok("GET", "/recipients/ada"))["version"]
        await writes(notify, "start")
        assert (await notify.ok("GET", "/recipients/ada"))["version"] == version
        for _ in range(2):
            await writes(notify, "STOPALL")
            assert await opt_outs(notify) == [*own, "sms:STOP"]
            assert await opt_outs(notify, "bo") == ["sms", "sms:STOP"]
        # A value that was read can be written back.
        change = {"preferences": {"opt_out": await opt_outs(notify)}}
        assert await notify.ok("PATCH", "/recipients/ada", change)
        problem(await writes(notify, "START", "f" * 32), 401, "unauthenticated")
        assert await opt_outs(notify) == [*own, "sms:STOP"]
        await writes(notify, " unstop\n")
        assert await opt_outs(notify) == own
        assert await opt_outs(notify, "bo") == ["sms"]
        await notify.becomes(await notify.send(channel="sms"), "SENT")
        blocked = await notify.send(recipient="bo", channel="sms")
        assert (await notify.becomes(blocked, "SKIPPED"))["reason"] == "opted out of sms"


async def test_twilios_own_interpretation_of_a_text_decides(tmp_path: Path):
    async with notifying(tmp_path, work=False, telephony=TWILIO) as notify:
        await notify.ada(phone=TO)
        await writes(notify, "Basta", OptOutType="STOP")
        assert await opt_outs(notify) == ["sms:STOP"]
        await writes(notify, "START", OptOutType="HELP")
        assert await opt_outs(notify) == ["sms:STOP"]
        await writes(notify, "Avanti", OptOutType="START")
        assert await opt_outs(notify) == []
        await writes(notify, "STOP", OptOutType="HELP")
        assert await opt_outs(notify) == []
        await writes(notify, "STOP", OptOutType="")
        assert await opt_outs(notify) == ["sms:STOP"]


async def test_only_a_start_or_another_number_revokes_a_stop(tmp_path: Path):
    async with notifying(tmp_path, telephony=TWILIO) as notify:
        await notify.ada(phone=TO)
        await writes(notify, "STOP")
        # A program that keeps the preferences elsewhere does not know of it.
        change = {"preferences": {"opt_out": ["email"], "quiet_hours": "22:00-07:00"}}
        await notify.ok("PATCH", "/recipients/ada", change)
        assert await opt_outs(notify) == ["email", "sms:STOP"]
        rows = f'id,phone,preferences\nada,{TO},"{{""opt_out"": []}}"\n'
        await notify.rig.http.post(
            "/recipients/import", content=rows, headers={"content-type": "text/csv"}
        )
        told = await notify.ok("GET", "/recipients/ada")
        assert told["preferences"] == {"opt_out": ["sms:STOP"], "quiet_hours": None}
        await notify.ok("PATCH", "/recipients/ada", {"phone": FROM, "preferences": {}})
        assert await opt_outs(notify) == []


async def test_stop_stays_with_its_number_when_its_recipient_gets_another(tmp_path: Path):
    async with notifying(tmp_path, work=False, telephony=TWILIO) as notify:
        await notify.ada(phone=TO, preferences={"opt_out": ["email"]})
        await writes(notify, "STOP")
        await notify.ok("PATCH", "/recipients/ada", {"phone": FROM})
        assert await opt_outs(notify) == ["email"]
        await notify.ok("PATCH", "/recipients/ada", {"phone": TO})
        assert await opt_outs(notify) == ["email", "sms:STOP"]
        await notify.rig.http.post(
            "/recipients/import",
            content=f"id,phone\nada,{FROM}\n",
            headers={"content-type": "text/csv"},
        )
        assert await opt_outs(notify) == ["email"]


async def test_stop_applies_to_every_recipient_that_has_or_gets_the_number(tmp_path: Path):
    async with notifying(tmp_path, telephony=TWILIO) as notify:
        # From a number that no recipient has yet.
        await writes(notify, "STOP")
        for _ in range(2):
            await notify.ada(phone=TO)
            assert await opt_outs(notify) == ["sms:STOP"]
            told = await notify.becomes(await notify.send(channel="sms"), "SKIPPED")
            assert told["reason"] == "opted out of sms:STOP"
            await notify.ok("DELETE", "/recipients/ada", status=204)
        await notify.ada(phone=FROM)
        await notify.ok("POST", "/recipients", {"id": "bo", "phone": TO}, 201)
        assert (await opt_outs(notify), await opt_outs(notify, "bo")) == ([], ["sms:STOP"])
        changed = await notify.ok("PATCH", "/recipients/ada", {"phone": TO})
        assert changed["preferences"]["opt_out"] == ["sms:STOP"]
        csv = f"id,phone\ncy,{TO}\n"
        await notify.rig.http.post(
            "/recipients/import", content=csv, headers={"content-type": "text/csv"}
        )
        assert await opt_outs(notify, "cy") == ["sms:STOP"]
        await writes(notify, "START")
        for one in ("ada", "bo", "cy"):
            assert await opt_outs(notify, one) == []
        await notify.becomes(await notify.send(channel="sms"), "SENT")


@pytest.mark.parametrize(
    "text", ["Stop.", "STOP!!", " \u201cstop\u201d\n", "(Unsubscribe)", "stop \u2026"]
)
async def test_punctuation_around_the_word_changes_nothing(tmp_path: Path, text: str):
    async with notifying(tmp_path, work=False, telephony=TWILIO) as notify:
        await notify.ada(phone=TO)
        assert (await writes(notify, text)).status_code == 200
        assert await opt_outs(notify) == ["sms:STOP"]
        await writes(notify, "Start.")
        assert await opt_outs(notify) == []


@pytest.mark.parametrize("text", ["", "...", "please stop", "non-stop", "1", "yes", "restart"])
async def test_other_texts_change_nothing(tmp_path: Path, text: str):
    async with notifying(tmp_path, work=False, telephony=TWILIO) as notify:
        await notify.ada(phone=TO)
        assert (await writes(notify, text)).status_code == 200
        assert await opt_outs(notify) == []


async def linked(notify: NotifyRig, box: Mailbox, url: str = "https://notify.example.org") -> Smtp:
    """Run a system that sends e-mail to a real server, with links at this address."""
    told = {"host": "localhost", "port": box.port, "tls": "none"}
    email = read_senders({"email": {"from": "news@example.org", "smtp": told}}).email
    assert email is not None
    assert email.smtp is not None
    made = Smtp(email.smtp, email.from_, REAL)
    notify.boxes[Channel.EMAIL] = made  # pyright: ignore[reportArgumentType]
    notify.context.parts.base_url = url
    notify.context.parts.signing_keys = (KEY,)
    return made


def path_in(box: Mailbox) -> str:
    """Return the path and query of the unsubscribe link in the first mail."""
    url = urlsplit(box.mails[0]["List-Unsubscribe"].strip("<>"))
    return f"{url.path}?{url.query}"


async def test_one_click_in_a_received_mail_only_ends_its_category_by_e_mail(tmp_path: Path):
    async with notifying(tmp_path, tokens=True) as notify, smtp(tmp_path) as box:
        await linked(notify, box)
        await notify.ada()
        await notify.becomes(await notify.send(category="news"), "SENT")
        (mail,) = box.mails
        assert mail["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
        url = mail["List-Unsubscribe"].strip("<>")
        assert url.startswith("https://notify.example.org/notifications/unsubscribe/ada/news/")
        path, http = path_in(box), notify.rig.http
        # A mail scanner fetches the link; a person who follows it sees a button.
        looked = await http.get(path)
        assert looked.status_code == 200
        assert '<form method="post">' in looked.text
        assert await opt_outs(notify) == []
        for _ in range(2):
            reply = await http.post(path, data={"List-Unsubscribe": "One-Click"})
            assert reply.status_code == 200, reply.text
            assert await opt_outs(notify) == ["email:news"]
        told = await notify.becomes(await notify.send(category="news"), "SKIPPED")
        assert told["reason"] == "opted out of email:news"
        await notify.becomes(await notify.send(category="bills"), "SENT")
        await notify.becomes(await notify.send(category="news", channel="sms"), "SENT")


async def test_unsubscription_stays_with_the_address_until_new_preferences_revoke_it(
    tmp_path: Path,
):
    async with notifying(tmp_path) as notify, smtp(tmp_path) as box:
        await linked(notify, box)
        await notify.ada(email="Ada@example.org")
        await notify.becomes(await notify.send(category="news"), "SENT")
        path = path_in(box)
        assert (await notify.rig.http.post(path)).status_code == 200
        await notify.ok("DELETE", "/recipients/ada", status=204)
        await notify.ada(email="ada@Example.org")
        told = await notify.becomes(await notify.send(category="news"), "SKIPPED")
        assert told["reason"] == "opted out of email:news"
        read = await notify.ok("GET", "/recipients/ada")
        quiet = {"preferences": {**read["preferences"], "quiet_hours": "22:00-07:00"}}
        await notify.ok("PATCH", "/recipients/ada", quiet)
        assert await opt_outs(notify) == ["email:news"]
        await notify.ok("POST", "/recipients", {"id": "bo", "email": "bo@example.org"}, 201)
        # These preferences were written for another address.
        moved = {"email": "ada@example.org", "preferences": {}}
        await notify.ok("PATCH", "/recipients/bo", moved)
        assert await opt_outs(notify, "bo") == ["email:news"]
        # These neither, nor for the address that they replace.
        moved["email"] = "else@example.org"
        await notify.ok("PATCH", "/recipients/ada", moved)
        await notify.ok("PATCH", "/recipients/ada", {"email": "ada@example.org"})
        assert await opt_outs(notify) == ["email:news"]
        await notify.ok("PATCH", "/recipients/ada", {"preferences": {"opt_out": []}})
        assert (await opt_outs(notify), await opt_outs(notify, "bo")) == ([], [])


async def test_change_read_before_an_unsubscription_of_the_same_address_is_refused(
    tmp_path: Path,
):
    async with notifying(tmp_path) as notify, smtp(tmp_path) as box:
        await linked(notify, box)
        await notify.ada(email="ada@example.org")
        for id_, email in (("bo", "Ada@Example.org"), ("cy", "cy@example.org")):
            await notify.ok("POST", "/recipients", {"id": id_, "email": email}, 201)
        await notify.becomes(await notify.send(category="news"), "SENT")
        for _ in range(2):
            assert (await notify.rig.http.post(path_in(box))).status_code == 200
        assert await opt_outs(notify, "bo") == ["email:news"]
        none, bo = {"preferences": {"opt_out": []}}, "/recipients/bo"
        late = await notify.rig.http.patch(bo, json=none, headers={"If-Match": '"1"'})
        assert late.status_code == 409, late.text
        assert await opt_outs(notify, "bo") == ["email:news"]
        # The repeated click changed nothing, and neither does any for other addresses.
        now = await notify.rig.http.patch(bo, json=none, headers={"If-Match": '"2"'})
        assert (now.status_code, now.headers["ETag"]) == (200, '"3"'), now.text
        versions = {
            one: (await notify.ok("GET", f"/recipients/{one}"))["version"]
            for one in ("ada", "bo", "cy")
        }
        assert versions == {"ada": 4, "bo": 3, "cy": 1}


async def test_link_of_a_removed_recipient_opts_its_address_out(tmp_path: Path):
    async with notifying(tmp_path) as notify, smtp(tmp_path) as box:
        await linked(notify, box)
        await notify.ada(email="Ada+lists@example.org")
        await notify.becomes(await notify.send(category="news"), "SENT")
        path = path_in(box)
        await notify.ok("DELETE", "/recipients/ada", status=204)
        reply = await notify.rig.http.post(path)
        assert "no more e-mails of the category news" in reply.text
        added = {"id": "bo", "email": "ada+lists@example.org"}
        await notify.ok("POST", "/recipients", added, 201)
        assert await opt_outs(notify, "bo") == ["email:news"]


async def test_link_without_an_address_as_older_mails_have_it_still_works(tmp_path: Path):
    async with notifying(tmp_path) as notify, smtp(tmp_path) as box:
        await linked(notify, box)
        await notify.ada(email="ada@example.org")
        path = f"/notifications/unsubscribe/ada/news/{sign(KEY, PURPOSE, 'ada', 'news')}"
        assert (await notify.rig.http.post(path)).status_code == 200
        assert await opt_outs(notify) == ["email:news"]
        problem(await notify.rig.http.post(f"{path}?email="), 401, "unauthenticated")
        await notify.ok("DELETE", "/recipients/ada", status=204)
        await notify.ada(email="ada@example.org")
        assert await opt_outs(notify) == ["email:news"]


async def test_page_shows_what_a_sender_called_the_category_as_text(tmp_path: Path):
    # Intake refuses such a name, but not everyone who may create jobs of any kind.
    async with notifying(tmp_path) as notify, smtp(tmp_path) as box:
        await linked(notify, box)
        signature = sign(KEY, PURPOSE, "ada", "<b>", "")
        path = f"/notifications/unsubscribe/ada/%3Cb%3E/{signature}?email="
        for reply in (await notify.rig.http.get(path), await notify.rig.http.post(path)):
            assert reply.status_code == 200, reply.text
            assert "&lt;b&gt;" in reply.text
            assert "<b>" not in reply.text


async def test_providers_and_mail_programs_use_any_name_and_any_page(tmp_path: Path):
    async with notifying(tmp_path, telephony=TWILIO) as notify, smtp(tmp_path) as box:
        await linked(notify, box)
        await notify.ada(phone=TO)
        await notify.becomes(await notify.send(category="news"), "SENT")
        path = path_in(box)
        head = {"Host": "notify.example.org", "Origin": "https://mail.example.com"}
        assert (await notify.rig.http.post(path, headers=head)).status_code == 200
        for hook, status in (("twilio/status", 401), ("twilio/texts", 401), ("sendgrid", 404)):
            url = f"/notifications/hooks/{hook}"
            reply = await notify.rig.http.post(url, data={"Body": "STOP"}, headers=head)
            assert reply.status_code == status, reply.text
        problem(await notify.rig.http.post("/recipients", json={}, headers=head), 403, "forbidden")


async def test_forged_or_altered_link_is_refused(tmp_path: Path):
    async with notifying(tmp_path) as notify, smtp(tmp_path) as box:
        await linked(notify, box)
        await notify.ada()
        await notify.ok("POST", "/recipients", {"id": "bo", "email": "bo@example.org"}, 201)
        await notify.becomes(await notify.send(category="news"), "SENT")
        path = path_in(box)
        signature, _, email = path.rpartition("/")[2].partition("?")
        wrong = [
            f"/notifications/unsubscribe/bo/news/{signature}?{email}",
            f"/notifications/unsubscribe/ada/otp/{signature}?{email}",
            f"/notifications/unsubscribe/ada/news/{signature[:-1]}?{email}",
            f"/notifications/unsubscribe/ada/news/{'A' * len(signature)}?{email}",
            f"/notifications/unsubscribe/ada/news/{signature}?email=bo@example.org",
            f"/notifications/unsubscribe/ada/news/{signature}",
            "/notifications/unsubscribe/ada/news/é",
        ]
        for one in wrong:
            for method in ("GET", "POST"):
                reply = await notify.rig.http.request(method, one)
                problem(reply, 401, "unauthenticated")
        assert (await opt_outs(notify), await opt_outs(notify, "bo")) == ([], [])
        # A key that no longer signs still verifies; one that was removed does not.
        notify.context.parts.signing_keys = (OLDER, KEY)
        assert (await notify.rig.http.get(path)).status_code == 200
        notify.context.parts.signing_keys = (OLDER,)
        problem(await notify.rig.http.post(path), 401, "unauthenticated")
        notify.context.parts.signing_keys = ()
        problem(await notify.rig.http.post(path), 401, "unauthenticated")


async def test_link_needs_a_key_and_an_address_and_is_in_no_urgent_mail(tmp_path: Path):
    async with notifying(tmp_path) as notify, smtp(tmp_path) as box:
        await linked(notify, box, url="")
        await notify.ada()
        await notify.becomes(await notify.send(), "SENT")
        await linked(notify, box)
        await notify.becomes(await notify.send(category="otp"), "SENT")
        notify.context.parts.signing_keys = ()
        await notify.becomes(await notify.send(), "SENT")
        assert [one["List-Unsubscribe"] for one in box.mails] == [None, None, None]


async def test_click_while_the_directory_is_unreachable_must_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with notifying(tmp_path, work=False, telephony=TWILIO) as notify, smtp(tmp_path) as box:
        await linked(notify, box)
        await notify.ada(phone=TO)
        notify.work()
        await notify.becomes(await notify.send(), "SENT")
        path = path_in(box)

        def away(self: Directory) -> object:
            message = "away"
            raise StoreUnavailable(message)

        with monkeypatch.context() as patch:
            patch.setattr(Directory, "change", away)
            assert (await notify.rig.http.post(path)).status_code == 503
            assert (await writes(notify, "STOP")).status_code == 503
        assert await opt_outs(notify) == []
