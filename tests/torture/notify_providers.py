"""The providers of notifications: a mail server, Twilio's messages and webhook receivers.

They record what reached them and when, and occasionally lose a reply or answer 429.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from aiosmtpd.smtp import SMTP, Envelope, Session

LOST, LIMITED, REPORTED = 0.002, 0.002, 0.2
"""Shares of all messages whose reply is lost after they arrived, and that are answered with 429;
and of texts whose delivery is reported."""
_NUMBER = re.compile(rb"No\. ([0-9]+)\.")


LOOK_MS, STOOD_MS = 20, 50


def now_ms() -> int:
    """Return the providers' time, ms UTC."""
    return time.time_ns() // 1_000_000


class _Mail(SMTP):
    """Records when the command DATA of a mail arrived."""

    begun = 0

    async def smtp_DATA(self, arg: str) -> None:  # noqa: N802  (the library's own name)
        self.begun = now_ms()
        await super().smtp_DATA(arg)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message that reached a provider and was accepted.

    Attributes:
        number: number of the notification.
        channel: its channel.
        at: when it had arrived completely, ms UTC.
        lost: whether its reply was lost.
        begun: when its request started: DATA by SMTP, the head by HTTP; ms UTC.
    """

    number: int
    channel: str
    at: int
    lost: bool
    begun: int


@dataclass(kw_only=True, slots=True)
class Providers:
    """What the providers received.

    Attributes:
        arrivals: messages, in order of arrival.
        limited: replies of 429 or similar: the channel, and when, ms UTC.
        reports: delivery reports that Twilio is to send: number, URL, and id of the message.
        mail_port: port of the mail server.
        http_port: port of Twilio (`/2010-04-01/…`) and of the webhooks (`/hook`).
        stood: periods in which they were stalled, ms UTC.
    """

    draw: random.Random
    arrivals: list[Arrival] = field(default_factory=list)
    limited: list[tuple[str, int]] = field(default_factory=list)
    reports: asyncio.Queue[tuple[int, str, str]] = field(default_factory=asyncio.Queue)
    mail_port: int = 0
    http_port: int = 0
    open: set[asyncio.Task[Any]] = field(default_factory=set)
    stood: list[tuple[int, int]] = field(default_factory=list)

    async def watch(self) -> None:
        """Record when this process itself was stalled, until it is cancelled."""
        while True:
            due_at = now_ms() + LOOK_MS
            await asyncio.sleep(LOOK_MS / 1000)
            woke_at = now_ms()
            if woke_at - due_at > STOOD_MS:
                begun_at = due_at - LOOK_MS
                if self.stood and begun_at <= self.stood[-1][1]:
                    begun_at = self.stood.pop()[0]
                self.stood.append((begun_at, woke_at + LOOK_MS))

    def take(self, channel: str, content: bytes, begun: int) -> bool:
        """Record a message; return whether its reply is lost."""
        found = _NUMBER.search(content)
        assert found is not None, content[:500]
        lost = self.draw.random() < LOST
        self.arrivals.append(Arrival(int(found[1]), channel, now_ms(), lost, begun))
        return lost

    def limits(self, channel: str) -> bool:
        """Return whether the next message is temporarily refused."""
        limits = self.draw.random() < LIMITED
        if limits:
            self.limited.append((channel, now_ms()))
        return limits

    async def handle_RCPT(  # noqa: N802  (the library's own name)
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        """Handle a mail's recipient."""
        if self.limits("email"):
            return "450 4.7.28 the rate is exceeded"
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802  (as above)
        """Handle a mail."""
        assert isinstance(envelope.content, bytes)
        assert isinstance(server, _Mail)
        if self.take("email", envelope.content, server.begun):
            assert server.transport is not None
            server.transport.abort()  # pyright: ignore[reportAttributeAccessIssue]
        return "250 2.0.0 OK"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve an HTTP connection."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                begun = now_ms()
                length = re.search(rb"(?i)\r\ncontent-length: *([0-9]+)", head)
                body = await reader.readexactly(int(length[1]) if length else 0)
                sms = not head.startswith(b"POST /hook")
                if self.limits("sms" if sms else "webhook"):
                    writer.write(_reply(429, b"{}", b"Retry-After: 1\r\n"))
                elif self.take(*(("sms", _of(body, "Body")) if sms else ("webhook", body)), begun):
                    break
                elif sms:
                    sid = f"SM{len(self.arrivals):032x}"
                    writer.write(_reply(201, b'{"sid": "%s"}' % sid.encode()))
                    if self.draw.random() < REPORTED:
                        url = _of(body, "StatusCallback").decode()
                        self.reports.put_nowait((self.arrivals[-1].number, url, sid))
                else:
                    writer.write(_reply(200, b""))
                await writer.drain()
        writer.close()


def _of(form: bytes, name: str) -> bytes:
    return parse_qs(form.decode())[name][0].encode()


def _reply(status: int, body: bytes, more: bytes = b"") -> bytes:
    return b"HTTP/1.1 %d Said\r\nContent-Length: %d\r\n%s\r\n%s" % (
        status,
        len(body),
        more,
        body,
    )


@asynccontextmanager
async def providing(seed: int) -> AsyncIterator[Providers]:
    """Run providers on free ports until the block exits."""
    made = Providers(draw=random.Random(f"providers {seed}"))
    loop = asyncio.get_running_loop()
    sessions: list[SMTP] = []

    def session() -> SMTP:
        sessions.append(_Mail(made, hostname="localhost", loop=loop))
        return sessions[-1]

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = loop.create_task(made.serve(reader, writer))
        made.open.add(task)
        task.add_done_callback(made.open.discard)

    mail = await loop.create_server(session, "127.0.0.1", 0)
    http = await asyncio.start_server(accept, "127.0.0.1", 0)
    watching = loop.create_task(made.watch())
    made.mail_port = mail.sockets[0].getsockname()[1]
    made.http_port = http.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        mail.close()
        http.close()
        running = [one._handler_coroutine for one in sessions if one._handler_coroutine]
        for task in (watching, *running, *made.open):
            task.cancel()
        await asyncio.gather(watching, *running, *made.open, return_exceptions=True)
