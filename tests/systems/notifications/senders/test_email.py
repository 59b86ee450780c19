from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import aiosmtplib
import pytest

from headway.runtime.timing import REAL, Timing
from headway.systems.notifications.mail import Smtp, SmtpTable
from headway.systems.notifications.sender import (
    Accepted,
    Limited,
    Refused,
    Unavailable,
    Unsure,
)
from headway.systems.notifications.sendgrid_mail import SendGridMail
from tests.systems.notifications.senders.messages import message, read_senders
from tests.systems.notifications.senders.smtp_server import PASSWORD, USER, Mailbox, smtp
from tests.systems.telephony.raw_server import RawServer, cuts, hangs, hangs_up, raw_server, says

FROM = "Shop <news@example.org>"
TO = "ada@example.net"
KEY = "SG.hunter2-hunter2"
URL = "https://example.org/u/" + "a1-b2_" * 40


@asynccontextmanager
async def sender(box: Mailbox, timing: Timing = REAL, **more: Any) -> AsyncIterator[Smtp]:
    ca = {"ca_file": str(box.certificate)}
    told = {"host": "localhost", "port": box.port, "tls": "none", "timeout": "2m", **ca, **more}
    email = read_senders({"email": {"from": FROM, "smtp": told}}).email
    assert email is not None
    assert email.smtp is not None
    made = Smtp(email.smtp, email.from_, timing)
    try:
        yield made
    finally:
        await made.close()


@asynccontextmanager
async def by_sendgrid(end: RawServer, **more: Any) -> AsyncIterator[SendGridMail]:
    told = {"api_key": KEY, "base_url": end.url, "timeout": "2m", **more}
    email = read_senders({"email": {"from": FROM, "sendgrid": told}}).email
    assert email is not None
    assert email.sendgrid is not None
    made = SendGridMail(email.sendgrid, email.from_, REAL)
    try:
        yield made
    finally:
        await made.close()


class When(Timing):
    """A timeout that expires as soon as a condition holds."""

    def __init__(self, done: Callable[[], object]) -> None:
        self.done = done

    def limit(self, seconds: float | None) -> asyncio.Timeout:
        limit, loop = asyncio.timeout(None), asyncio.get_running_loop()

        def look() -> None:
            if self.done():
                limit.reschedule(loop.time())
            else:
                loop.call_later(0.005, look)

        loop.call_soon(look)
        return limit


# ----------------------------------------------------------------------------------- the message


async def test_mail_has_text_html_and_the_one_click_headers(tmp_path: Path):
    async with smtp(tmp_path) as box, sender(box) as one:
        sent = message(TO, title="Grüße 🎉", html="<p>Größe</p>", unsubscribe_url=URL)
        assert await one.send(sent) == Accepted(None)
    (mail,) = box.mails
    assert box.to == [[TO]]
    assert (mail["From"], mail["To"], mail["Subject"]) == (FROM, TO, "Grüße 🎉")
    assert mail["Message-ID"] == f"<{sent.id}@example.org>"
    assert abs(parsedate_to_datetime(mail["Date"]).timestamp() * 1000 - REAL.wall_at()) < 3_600_000
    assert mail.get_content_type() == "multipart/alternative"
    text, html = mail.iter_parts()
    assert (text.get_content_type(), html.get_content_type()) == ("text/plain", "text/html")
    assert text.get_content().strip() == "It comes today."  # type: ignore[attr-defined]
    assert html.get_content().strip() == "<p>Größe</p>"  # type: ignore[attr-defined]
    # As RFC 8058 requires: unfolded on one line, whatever its length.
    lines = box.got[0].split(b"\r\n")
    assert f"List-Unsubscribe: <{URL}>".encode() in lines
    assert b"List-Unsubscribe-Post: List-Unsubscribe=One-Click" in lines
    assert box.got[0].isascii()
    assert b"\n" not in box.got[0].replace(b"\r\n", b"")


async def test_one_click_is_offered_only_over_https(tmp_path: Path):
    async with smtp(tmp_path) as box, sender(box) as one:
        await one.send(message(TO, unsubscribe_url="http://example.org/u"))
        await one.send(message(TO))
    first, second = box.mails
    assert first["List-Unsubscribe"] == "<http://example.org/u>"
    assert first["List-Unsubscribe-Post"] is None
    assert second["List-Unsubscribe"] is None
    assert second.get_content_type() == "text/plain"


async def test_lines_of_dots_and_of_any_length_arrive_unchanged(tmp_path: Path):
    text = "..\n.\n" + "x" * 5_000 + "\nend\n"
    async with smtp(tmp_path) as box, sender(box) as one:
        await one.send(message(TO, text=text))
    assert box.mails[0].get_content().replace("\r\n", "\n") == text
    assert max(map(len, box.got[0].split(b"\r\n"))) <= 998


@pytest.mark.parametrize(
    "title",
    [
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "\u200f\u05e9\u05dc\u05d5\u05dd",
        "👨\u200d👩\u200d👧 soft\u00adhyphen \U0001fae9",
        "x" * 500,
        "50 % off =?utf-8?q?=0D=0ABcc:_eve@example.net?=",
        "=?utf-8?b?YQ0KQmNjOiBldmVAZXhhbXBsZS5uZXQ=?=",
        "é" * 200 + "=?utf-8?q?=0D=0A=0D=0A<p>?=" + "日" * 200,
    ],
)
async def test_title_arrives_unchanged_and_as_nothing_else(tmp_path: Path, title: str):
    async with smtp(tmp_path) as box, sender(box) as one:
        assert await one.send(message(TO, title=title)) == Accepted(None)
        await one.send(message(TO))
    mail, plain = box.mails
    assert mail["Subject"] == title
    assert sorted(mail.keys()) == sorted(plain.keys())
    assert mail.get_content() == plain.get_content()
    assert max(map(len, box.got[0].split(b"\r\n"))) <= 78


INJECTED: list[dict[str, Any]] = [
    {"to": "ada@example.net\r\nBcc: eve@example.net"},
    {"to": "ada@example.net, eve@example.net"},
    {"to": "ada@example.net> <eve@example.net"},
    {"to": "not an address"},
    {"to": ""},
    {"to": "a" * 300 + "@example.net"},
    {"to": TO, "title": "Hello\r\nBcc: eve@example.net"},
    {"to": TO, "title": "Hello\nBcc: eve@example.net"},
    {"to": TO, "title": "Hello\u2028Bcc: eve@example.net"},
    {"to": TO, "unsubscribe_url": "https://x/>\r\nBcc: eve@example.net"},
    {"to": TO, "id": "x>\r\nBcc: eve@example.net"},
]


@pytest.mark.parametrize("given", INJECTED)
async def test_text_that_would_add_a_header_or_a_recipient_is_refused_unsent(
    tmp_path: Path, given: dict[str, Any]
):
    async with smtp(tmp_path) as box, sender(box) as one:
        outcome = await one.send(message(**given))
    assert isinstance(outcome, Refused)
    assert "eve" not in outcome.reason
    assert box.sessions == []
    async with raw_server(says(202)) as end, by_sendgrid(end) as other:
        assert await other.send(message(**given)) == outcome
    assert end.seen == []


@pytest.mark.parametrize("to", ["böb@example.org", "Bo <böb@example.org>", "bob@exämple.org"])
async def test_address_with_non_ascii_letters_is_refused_for_them(tmp_path: Path, to: str):
    async with smtp(tmp_path) as box, sender(box) as one:
        outcome = await one.send(message(to))
    letters = "it has letters other than ASCII before or after the @"
    assert outcome == Refused(f"the address cannot be used: {letters}")


# -------------------------------------------------------------------------- the server's replies


@pytest.mark.parametrize(
    ("replies", "expected"),
    [
        ({"RCPT": "550 5.1.1 no such user"}, Refused("", gone=True)),
        ({"RCPT": "550 5.7.1 not wanted"}, Refused("")),
        ({"RCPT": "552 5.2.2 mailbox full"}, Refused("")),
        ({"RCPT": "452 4.2.2 mailbox full"}, Unavailable("")),
        ({"RCPT": "450 4.2.0 greylisted"}, Unavailable("")),
        ({"RCPT": "450 4.7.28 slow down"}, Limited("", None)),
        ({"MAIL": "421 4.7.0 rate exceeded"}, Limited("", None)),
        # About one mailbox, not the channel: as Gmail answers.
        ({"RCPT": "450 4.2.1 is receiving mail at a rate that prevents more"}, Unavailable("")),
        ({"MAIL": "451 4.3.0 try later"}, Unavailable("")),
        ({"MAIL": "550 5.7.1 not your domain"}, Refused("")),
        ({"MAIL": "530 5.7.0 log in first"}, Unavailable("")),
        ({"DATA": "554 5.6.0 spam"}, Refused("")),
        ({"DATA": "550 5.1.1 it was the content"}, Refused("")),
        ({"DATA": "451 4.3.0 try later"}, Unavailable("")),
        ({"MAIL": ""}, Unavailable("")),
        ({"RCPT": ""}, Unavailable("")),
        ({"DATA": ""}, Unsure("")),
    ],
)
async def test_reply_of_the_server_is_the_outcome(
    tmp_path: Path, replies: dict[str, str], expected: Any
):
    async with smtp(tmp_path, **replies) as box, sender(box) as one:
        outcome = await one.send(message(TO))
        assert type(outcome) is type(expected)
        assert getattr(outcome, "gone", None) == getattr(expected, "gone", None)
        (reply,) = replies.values()
        words = " ".join(reply.split()[1:])
        assert words in outcome.reason  # type: ignore[union-attr]
        # The next message is sent, whatever happened to that connection.
        box.replies = {}
        assert await one.send(message(TO)) == Accepted(None)
    assert box.to[-1] == [TO]


@pytest.mark.parametrize("refused", ["greeting", "EHLO"])
async def test_server_without_free_connections_has_refused_no_message(refused: str):
    """The reply is not about the message, though it is permanent by its code."""

    left = asyncio.Event()

    async def refuses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"554 5.3.2 no service\r\n" if refused == "greeting" else b"220 hello\r\n")
        with suppress(ConnectionError):
            while await reader.readline():
                writer.write(b"554 5.3.2 no service\r\n")
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        left.set()

    async with await asyncio.start_server(refuses, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        one = Smtp(SmtpTable(host="127.0.0.1", port=port, tls="none"), FROM, REAL)
        outcome = await one.send(message(TO))
        await one.close()
        await left.wait()
    assert isinstance(outcome, Unavailable)
    assert "554 5.3.2 no service" in outcome.reason


async def test_server_without_a_reply_to_the_content_leaves_it_uncertain(tmp_path: Path):
    async with smtp(tmp_path, DATA="wait") as box, sender(box, When(lambda: box.got)) as one:
        outcome = await one.send(message(TO))
    assert outcome == Unsure("the server did not answer in time, after the message was sent")


async def test_server_that_does_not_answer_before_the_content_was_sent_nothing(tmp_path: Path):
    async with (
        smtp(tmp_path, RCPT="wait") as box,
        sender(box, When(lambda: box.sessions)) as one,
    ):
        outcome = await one.send(message(TO))
    assert outcome == Unavailable("the server did not answer in time")


async def test_deadline_that_ends_as_a_reply_arrives_applies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    real = aiosmtplib.SMTP.mail

    async def mail(client: aiosmtplib.SMTP, *args: Any) -> object:
        reply = await real(client, *args)
        task = asyncio.current_task()
        assert task is not None
        # The client itself may have lost the cancellation: there will be no other.
        while not task.cancelling():
            with suppress(asyncio.CancelledError):  # as `asyncio.wait_for` may do
                await asyncio.Event().wait()
        return reply

    monkeypatch.setattr(aiosmtplib.SMTP, "mail", mail)
    async with (
        smtp(tmp_path, RCPT="wait") as box,
        sender(box, When(lambda: box.sessions), timeout="1s") as one,
    ):
        outcome = await one.send(message(TO))
    assert outcome == Unavailable("the server did not answer in time")


async def test_unreachable_server_was_sent_nothing(tmp_path: Path):
    async with smtp(tmp_path) as box:
        pass
    async with sender(box) as one:
        outcome = await one.send(message(TO))
    assert isinstance(outcome, Unavailable)
    assert "SMTPConnectError" in outcome.reason


# ------------------------------------------------------------------------------------ connections


async def test_one_connection_sends_one_mail_after_another(tmp_path: Path):
    async with smtp(tmp_path) as box, sender(box) as one:
        for _ in range(5):
            assert await one.send(message(TO)) == Accepted(None)
    assert len(box.sessions) == 1


async def test_concurrent_mails_use_as_many_connections_as_allowed(tmp_path: Path):
    async with smtp(tmp_path) as box, sender(box, connections=3) as one:
        outcomes = await asyncio.gather(*(one.send(message(TO)) for _ in range(30)))
    assert outcomes == [Accepted(None)] * 30
    assert len(box.got) == 30
    assert len(box.sessions) <= 3


async def test_connection_closed_while_idle_costs_no_mail(tmp_path: Path):
    async with smtp(tmp_path) as box, sender(box) as one:
        await one.send(message(TO))
        box.sessions[0].transport.abort()
        assert await one.send(message(TO)) == Accepted(None)
    assert len(box.got) == 2


async def test_kept_connection_lost_after_the_content_is_not_replaced(tmp_path: Path):
    async with smtp(tmp_path) as box, sender(box) as one:
        await one.send(message(TO))
        box.replies["DATA"] = ""
        assert isinstance(await one.send(message(TO)), Unsure)
    assert len(box.got) == 2


# -------------------------------------------------------------------------------------------- TLS


async def test_starttls_and_login(tmp_path: Path):
    async with (
        smtp(tmp_path, tls="starttls", auth=True) as box,
        sender(box, tls="starttls", username=USER, password=PASSWORD) as one,
    ):
        assert await one.send(message(TO)) == Accepted(None)
    assert box.logins == [(USER.encode(), PASSWORD.encode())]
    assert box.tls == [True]


async def test_implicit_tls(tmp_path: Path):
    async with smtp(tmp_path, tls="implicit") as box, sender(box, tls="implicit") as one:
        assert await one.send(message(TO)) == Accepted(None)
    assert len(box.got) == 1


async def test_wrong_password_is_reported_and_never_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG, "headway")
    async with (
        smtp(tmp_path, tls="starttls", auth=True) as box,
        sender(box, tls="starttls", username=USER, password="hunter2!") as one,  # noqa: S106  (made up)
    ):
        outcome = await one.send(message(TO))
        assert "hunter2" not in repr(one._settings)
    assert isinstance(outcome, Unavailable)
    assert outcome.reason.startswith("the login was refused: the server answered 535")
    assert "hunter2" not in outcome.reason + caplog.text
    assert box.got == []


async def test_nothing_is_sent_unencrypted_to_a_server_without_tls(tmp_path: Path):
    async with smtp(tmp_path) as box, sender(box, tls="starttls") as one:
        outcome = await one.send(message(TO))
    assert isinstance(outcome, Unavailable)
    assert "STARTTLS" in outcome.reason
    assert box.got == []


@pytest.mark.parametrize("tls", ["starttls", "implicit"])
async def test_server_with_another_certificate_is_sent_nothing(tmp_path: Path, tls: str):
    async with smtp(tmp_path, tls=tls) as box, sender(box, tls=tls, ca_file=None) as one:
        outcome = await one.send(message(TO))
    assert isinstance(outcome, Unavailable)
    assert "CERTIFICATE_VERIFY_FAILED" in outcome.reason
    assert box.got == []


# --------------------------------------------------------------------------------------- SendGrid


async def test_mail_is_sent_to_sendgrid_as_its_api_requires():
    async with raw_server(says(202, X_Message_Id="m-1")) as end, by_sendgrid(end) as one:
        outcome = await one.send(message(TO, html="<p>Größe</p>", unsubscribe_url=URL))
    assert outcome == Accepted("m-1")
    (seen,) = end.seen
    assert (seen.method, seen.path) == ("POST", "/v3/mail/send")
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    assert seen.json() == {
        "from": {"email": "news@example.org", "name": "Shop"},
        "subject": "Your parcel",
        "personalizations": [{"to": [{"email": TO}]}],
        "content": [
            {"type": "text/plain", "value": "It comes today."},
            {"type": "text/html", "value": "<p>Größe</p>"},
        ],
        "headers": {
            "List-Unsubscribe": f"<{URL}>",
            "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
        },
        "custom_args": {"headway_ref": "0190a1b2-0000-7000-8000-000000000001"},
    }


def fault(text: str) -> dict[str, Any]:
    return {"errors": [{"message": text, "field": "x", "help": None}]}


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (says(400, fault("bad address")), Refused("sendgrid refused with 400: bad address")),
        (says(413, fault("too large")), Refused("sendgrid refused with 413: too large")),
        (says(401, fault("bad key")), Unavailable("sendgrid refused with 401: bad key")),
        (
            says(404, "no such page"),
            Unavailable("sendgrid refused with 404: the reply has no SendGrid error"),
        ),
        (
            says(429, fault("too many requests"), Retry_After="7"),
            Limited("sendgrid refused with 429: too many requests", 7_000),
        ),
        (
            says(503, fault("away")),
            Unavailable("sendgrid refused with 503: away"),
        ),
    ],
)
async def test_refusal_by_sendgrid_is_the_outcome(act: Any, expected: Any):
    async with raw_server(act) as end, by_sendgrid(end) as one:
        assert await one.send(message(TO)) == expected
    assert len(end.seen) == 1


@pytest.mark.parametrize("act", [says(500, fault("oh")), cuts, hangs_up])
async def test_unclear_sendgrid_reply_is_uncertain_and_sent_once(act: Any):
    async with raw_server(act) as end, by_sendgrid(end) as one:
        assert isinstance(await one.send(message(TO)), Unsure)
    assert len(end.seen) == 1


async def test_sendgrid_that_never_answers_is_uncertain():
    async with raw_server(hangs) as end, by_sendgrid(end, timeout="1s") as one:
        outcome = await one.send(message(TO))
    assert isinstance(outcome, Unsure)


async def test_unreachable_sendgrid_was_sent_nothing():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with by_sendgrid(RawServer(url=f"http://127.0.0.1:{port}")) as one:
        assert isinstance(await one.send(message(TO)), Unavailable)


async def test_key_is_never_logged(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    async with raw_server(says(401, fault("bad key"))) as end, by_sendgrid(end) as one:
        outcome = await one.send(message(TO))
    assert end.seen
    assert "hunter2" not in caplog.text + str(outcome)
    assert "It comes today" not in caplog.text
