"""SMTP: e-mail to a server, by aiosmtplib, over connections that are kept.

Until the content is sent, a lost connection means that nothing was sent; after that, the outcome is
unknown.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from email.headerregistry import Address
from typing import cast

from aiosmtplib import (
    SMTP,
    SMTPAuthenticationError,
    SMTPException,
    SMTPRecipientRefused,
    SMTPResponseException,
)

from headway.runtime.timing import Timing
from headway.systems.last_moment import last_moment
from headway.systems.notifications.senders.mail import read_address, write_mail
from headway.systems.notifications.senders.sender import (
    Accepted,
    Limited,
    Message,
    Outcome,
    Refused,
    Unavailable,
    Unsure,
)
from headway.systems.notifications.senders.settings import SmtpTable, tls_context

NO_SUCH_MAILBOX = frozenset({"5.1.1", "5.1.6", "5.1.10"})
"""It does not exist, has moved without a new address, or its domain takes no mail.

Source: IANA, "SMTP Enhanced Status Codes".
"""
CREDENTIALS = frozenset({530, 534, 535, 538})
"""Codes for a missing, weak or wrong login: all messages wait until it is corrected.

Source: RFC 4954, section 6.
"""
_STATUS = re.compile(r"([245]\.[0-9]{1,3}\.[0-9]{1,3})\b", re.ASCII)
_TOO_FAST = re.compile(r"4\.7\.28|4\.4\.5|4\.3\.2|\brate\b|throttl|too many", re.IGNORECASE)
"""Codes of a busy system, and the words of those servers that say it in words alone."""
_LONGEST = 300


class Smtp:
    """Sends e-mail through one server."""

    def __init__(self, settings: SmtpTable, from_: str, timing: Timing) -> None:
        """Connect nothing yet; `from_` is who sends, with or without a display name.

        Raises:
            InvalidValue: the certificates cannot be read.
        """
        self._settings = settings
        # The settings have looked at it.
        self._from = cast("Address", read_address(from_))
        self._timing = timing
        where = "notifications.senders.email.smtp.ca_file"
        self._context = tls_context(where, settings.ca_file)
        self._places = asyncio.Semaphore(settings.connections)
        self._idle: list[SMTP] = []

    async def send(self, message: Message) -> Outcome:
        """See `Sender.send`."""
        written = write_mail(message, self._from, self._timing.wall_at())
        if isinstance(written, str):
            return Refused(written)
        to = cast("Address", read_address(message.to)).addr_spec
        limit = self._timing.limit(self._settings.timeout / 1000)
        delivery = _Delivery(self._from.addr_spec, to, written, limit)
        try:
            async with limit, self._places:
                return await self._deliver(delivery)
        except TimeoutError:
            return delivery.failed("the server did not answer in time")

    async def close(self) -> None:
        """See `Sender.close`."""
        idle, self._idle = self._idle, []
        for client in idle:
            with suppress(SMTPException, OSError):
                await client.quit()
            client.close()

    async def _deliver(self, delivery: _Delivery) -> Outcome:
        while True:
            kept = bool(self._idle)
            try:
                client = self._idle.pop() if kept else await self._connect()
                return await self._through(client, delivery)
            except SMTPResponseException as error:
                return _read(error, fatal=False)
            except (SMTPException, OSError) as error:
                # Most servers close what is idle for a while, and say so too late.
                if delivery.begun or not kept:
                    why = f"the connection failed: {type(error).__name__}: {error}"
                    return delivery.failed(why[:_LONGEST])

    async def _through(self, client: SMTP, delivery: _Delivery) -> Outcome:
        """Send by a connection, and keep it if it is still of use.

        Raises:
            SMTPException: the connection was lost; `begun` says whether before the content.
        """
        keep = False
        try:
            try:
                await delivery.send(client)
                outcome: Outcome = Accepted(None)
            except SMTPResponseException as error:
                outcome = _read(error, fatal=True)
                with suppress(SMTPException, OSError):
                    await client.rset()
                    keep = True
            else:
                keep = client.is_connected
            return outcome
        finally:
            if keep:
                self._idle.append(client)
            else:
                client.close()

    async def _connect(self) -> SMTP:
        settings = self._settings
        client = SMTP(
            hostname=settings.host,
            port=settings.port,
            username=settings.username,
            password=settings.password,
            timeout=settings.timeout / 1000,
            use_tls=settings.tls == "implicit",
            start_tls=settings.tls == "starttls",
            tls_context=None if settings.tls == "none" else self._context,
        )
        try:
            await client.connect()
        except BaseException:
            client.close()
            raise
        return client


class _Delivery:
    """One message on its way."""

    def __init__(self, from_: str, to: str, content: bytes, limit: asyncio.Timeout) -> None:
        self.begun = False
        self._limit = limit
        self._from, self._to, self._content = from_, to, content

    async def send(self, client: SMTP) -> None:
        await client.mail(self._from)
        self._look_at_limit()
        await client.rcpt(self._to)
        self._look_at_limit()
        await last_moment()
        self.begun = True
        await client.data(self._content)

    def _look_at_limit(self) -> None:
        """Raise what the limit raised, if a reply that came with it made the client lose that.

        `asyncio.wait_for` of Python 3.11 swallows a cancellation that arrives with its result.

        Raises:
            CancelledError: the limit has ended.
        """
        if self._limit.expired():
            raise asyncio.CancelledError

    def failed(self, why: str) -> Outcome:
        return Unsure(f"{why}, after the message was sent") if self.begun else Unavailable(why)


def _read(error: SMTPResponseException, *, fatal: bool) -> Outcome:
    """What a server's reply says; `fatal` if it is about this message, not the connection."""
    text = " ".join(error.message.split())[:_LONGEST]
    said = f"the server answered {error.code} {text}".rstrip()
    if isinstance(error, SMTPAuthenticationError) or error.code in CREDENTIALS:
        return Unavailable(f"the login was refused: {said}")
    if error.code >= 500 and fatal:
        status = _STATUS.search(text)
        absent = status is not None and status.group() in NO_SUCH_MAILBOX
        return Refused(said, gone=absent and isinstance(error, SMTPRecipientRefused))
    if error.code < 500 and _TOO_FAST.search(text):
        return Limited(said, None)
    return Unavailable(said)
