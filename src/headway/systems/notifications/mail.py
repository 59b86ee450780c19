"""E-mail: messages in MIME, sent to an SMTP server by aiosmtplib, over connections that are kept.

Until the content is sent, a lost connection means that nothing was sent; after that, the outcome is
unknown.

Source: RFC 5322 (messages), RFC 2369 and RFC 8058 (List-Unsubscribe, one click).
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from datetime import UTC, datetime
from email import policy
from email.errors import MessageError
from email.header import Header
from email.headerregistry import Address, AddressHeader, BaseHeader, HeaderRegistry
from email.message import EmailMessage
from email.utils import format_datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Literal, Self, cast

from aiosmtplib import (
    SMTP,
    SMTPAuthenticationError,
    SMTPException,
    SMTPHeloError,
    SMTPRecipientRefused,
    SMTPResponseException,
)
from pydantic import Field, model_validator

from headway.runtime.settings_table import Table
from headway.runtime.timing import Timing
from headway.systems.notifications.sender import (
    Accepted,
    Limited,
    Message,
    Port,
    Refused,
    SendResult,
    Timeout,
    Unavailable,
    Unsure,
    tls_context,
)
from headway.systems.pre_send_check import check_before_send


class SmtpTable(Table):
    """`[notifications.senders.email.smtp]`.

    Attributes:
        port: port of the server. Defaults to 465 for "implicit", 587 for "starttls" and 25 for
            "none".
        tls: "starttls" and "implicit" require TLS; "none" sends everything unencrypted.
        ca_file: certificates to trust instead of the system's.
        timeout: timeout for connecting and for each reply of the server, ms.
        connections: maximum number of connections; each sends one message at a time.
    """

    host: Annotated[str, Field(min_length=1, max_length=255)]
    port: Port | None = None
    tls: Literal["starttls", "implicit", "none"] = "starttls"
    username: str | None = None
    password: Annotated[str | None, Field(repr=False)] = None
    ca_file: Path | None = None
    timeout: Timeout = 30_000
    connections: Annotated[int, Field(ge=1, le=100)] = 4

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.username is None) != (self.password is None):
            message = "set username and password together, or neither"
            raise ValueError(message)
        if self.tls == "none" and self.username is not None:
            message = 'tls = "none" would send the password in the clear'
            raise ValueError(message)
        return self


MAX_ADDRESS = 254
"""Source: RFC 5321, 4.5.3.1.3, with its erratum 1690."""
MAX_SUBJECT = 500
MAX_URL = 900
"""Maximum characters of a URL: with its header it must fit in a line, since it cannot be folded."""


class _Headers(HeaderRegistry):
    """Caches the class of each header, which the library creates again for every mail."""

    def __getitem__(self, name: str) -> type[BaseHeader]:
        return _header_class(name)


_header_class = cache(HeaderRegistry().__getitem__)
_header = _Headers()


@lru_cache(maxsize=1024)
def _addressed(name: str, text: str) -> BaseHeader:
    """Return an address header; cached, as parsing one takes longer than the rest of a mail."""
    return _header(name, text)


# 7-bit, so that any server transmits it unchanged.
_MIME = policy.SMTP.clone(cte_type="7bit", header_factory=_header)
# Not `str.isprintable`, which denies the joiners of Persian and of emoji, and new characters.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_ID = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*", re.ASCII)


_NOT_ASCII = "it has letters other than ASCII before or after the @"


def read_address(text: str) -> Address | str:
    """Parse an address, with or without a display name; return the fault if it is invalid."""
    if not text.isprintable() or len(text) > MAX_ADDRESS:
        return "it is too long, or has line breaks or control characters"
    header = _addressed("To", text)
    addresses = cast("AddressHeader", header).addresses
    if header.defects or len(addresses) != 1:
        # Letters other than ASCII are defects before the @, but not in the display name.
        one = text.rpartition("<")[2]
        foreign = text.count("@") == 1 and not one.isascii()
        return _NOT_ASCII if foreign else "it is not exactly one address"
    address = addresses[0]
    if not address.username or not address.domain:
        return "it has no user or no domain"
    if not address.addr_spec.isascii():
        return _NOT_ASCII
    return address


def check_mail(message: Message) -> str:
    """Return why a message cannot be an e-mail, or an empty string; prevents header injection."""
    fault = read_address(message.to)
    if isinstance(fault, str):
        return f"the address cannot be used: {fault}"
    if _CONTROL.search(message.title) or len(message.title) > MAX_SUBJECT:
        return "the title has line breaks or control characters, or is too long"
    url = message.unsubscribe_url
    if url is not None and (
        not url.isascii() or not url.isprintable() or " " in url or len(url) > MAX_URL
    ):
        return "the unsubscribe URL is not a URL, or is too long"
    return "" if _ID.fullmatch(message.id) else "the id cannot be a Message-ID"


def unsubscribe_headers(message: Message) -> dict[str, str]:
    """Return the headers for unsubscribing; one click is offered only for https."""
    url = message.unsubscribe_url
    if url is None:
        return {}
    one_click = {"List-Unsubscribe-Post": "List-Unsubscribe=One-Click"}
    return {"List-Unsubscribe": f"<{url}>"} | (one_click if url.startswith("https://") else {})


def write_mail(message: Message, from_: Address, now: int) -> bytes | str:
    """Write a message in MIME, with HTML as the alternative to the text.

    Args:
        now: current time, ms UTC.

    Returns:
        The whole message in ASCII, with lines ended by CRLF; or why it cannot be an e-mail.
    """
    if fault := check_mail(message):
        return fault
    mail = EmailMessage(_MIME)
    headers = unsubscribe_headers(message)
    try:
        mail["From"] = _addressed("From", str(from_))
        mail["To"] = _addressed("To", message.to)
        if "=?" in message.title:
            # The library would decode it, and write the line breaks in it as they are.
            subject = Header(message.title, "utf-8", header_name="Subject")
            headers["Subject"] = subject.encode(linesep="\r\n")
        else:
            mail["Subject"] = message.title
        mail["Date"] = format_datetime(datetime.fromtimestamp(now // 1000, UTC))
        mail["Message-ID"] = f"<{message.id}@{from_.domain}>"
        mail.set_content(message.text or "\n")
        if message.html is not None:
            mail.add_alternative(message.html, subtype="html")
        written = mail.as_bytes()
    except (MessageError, ValueError, LookupError) as error:
        return f"it cannot be written as an e-mail: {type(error).__name__}"
    # Folding would break a long URL in two, or encode it.
    head = "".join(f"{name}: {text}\r\n" for name, text in headers.items())
    return head.encode() + written


NO_SUCH_MAILBOX = frozenset({"5.1.1", "5.1.6", "5.1.10"})
"""The mailbox does not exist, has moved without a new address, or its domain accepts no mail.

Source: IANA, "SMTP Enhanced Status Codes".
"""
CREDENTIALS = frozenset({530, 534, 535, 538})
"""Codes for a missing, weak or wrong login: all messages wait until it is corrected.

Source: RFC 4954, section 6.
"""
_STATUS = re.compile(r"([245]\.[0-9]{1,3}\.[0-9]{1,3})\b", re.ASCII)
_TOO_FAST = re.compile(r"4\.7\.28|4\.4\.5|4\.3\.2|\brate\b|throttl|too many", re.IGNORECASE)
"""Codes of a busy system, and the wording of servers that give no such code."""
_MAILBOX = "4.2."
"""Beginning of the codes about the state of one mailbox.

Source: RFC 3463, section 3.3.
"""
_LONGEST = 300


class Smtp:
    """Sends e-mail through one server."""

    def __init__(self, settings: SmtpTable, from_: str, timing: Timing) -> None:
        """Read the certificates; connect nothing yet.

        Args:
            from_: address of the sender, with or without a display name.

        Raises:
            InvalidValue: the certificates cannot be read.
        """
        self._settings = settings
        # Validated by the settings.
        self._from = cast("Address", read_address(from_))
        self._timing = timing
        where = "notifications.senders.email.smtp.ca_file"
        self._context = tls_context(where, settings.ca_file)
        self._places = asyncio.Semaphore(settings.connections)
        self._idle: list[SMTP] = []

    async def send(self, message: Message) -> SendResult:
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
        idle, self._idle = self._idle, []
        for client in idle:
            with suppress(SMTPException, OSError):
                await client.quit()
            client.close()

    async def _deliver(self, delivery: _Delivery) -> SendResult:
        while True:
            kept = bool(self._idle)
            try:
                client = self._idle.pop() if kept else await self._connect()
                return await self._through(client, delivery)
            except SMTPResponseException as error:
                return _read(error, fatal=False)
            except (SMTPException, OSError) as error:
                # Most servers close idle connections, which shows only on the next use.
                if delivery.started or not kept:
                    why = f"the connection failed: {type(error).__name__}: {error}"
                    return delivery.failed(why[:_LONGEST])

    async def _through(self, client: SMTP, delivery: _Delivery) -> SendResult:
        """Send over a connection, and keep it if it is still usable.

        Raises:
            SMTPException: the connection was lost; `delivery.started` is true if the content may
                have been sent.
        """
        keep = False
        try:
            try:
                await delivery.send(client)
                outcome: SendResult = Accepted(None)
            except SMTPResponseException as error:
                # Without TLS and a login, the client says EHLO only before its first command.
                outcome = _read(error, fatal=not isinstance(error, SMTPHeloError))
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
    def __init__(self, from_: str, to: str, content: bytes, limit: asyncio.Timeout) -> None:
        self.started = False
        self._limit = limit
        self._from, self._to, self._content = from_, to, content

    async def send(self, client: SMTP) -> None:
        await client.mail(self._from)
        self._check_limit()
        await client.rcpt(self._to)
        self._check_limit()
        await check_before_send()
        self.started = True
        await client.data(self._content)

    def _check_limit(self) -> None:
        """Raise the limit's cancellation again if the client has lost it.

        `asyncio.wait_for` of Python 3.11 swallows a cancellation that arrives with its result.

        Raises:
            CancelledError: the limit has ended.
        """
        if self._limit.expired():
            raise asyncio.CancelledError

    def failed(self, why: str) -> SendResult:
        return Unsure(f"{why}, after the message was sent") if self.started else Unavailable(why)


def _read(error: SMTPResponseException, *, fatal: bool) -> SendResult:
    """Return the outcome of an error reply.

    Args:
        fatal: whether the reply is about this message, not about the connection.
    """
    text = " ".join(error.message.split())[:_LONGEST]
    reply = f"the server answered {error.code} {text}".rstrip()
    if isinstance(error, SMTPAuthenticationError) or error.code in CREDENTIALS:
        return Unavailable(f"the login was refused: {reply}")
    found = _STATUS.search(text)
    status = "" if found is None else found.group()
    if error.code >= 500 and fatal:
        absent = status in NO_SUCH_MAILBOX
        return Refused(reply, gone=absent and isinstance(error, SMTPRecipientRefused))
    # A mailbox that gets too much delays only its own messages.
    if error.code < 500 and _TOO_FAST.search(text) and not status.startswith(_MAILBOX):
        return Limited(reply, None)
    return Unavailable(reply)
