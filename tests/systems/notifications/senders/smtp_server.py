"""A real SMTP server on a free port, with answers set by the test."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from headway.server.listener import close_servers
from tests.servers.certificates import self_signed

USER, PASSWORD = "shop", "hunter2-of-the-shop"


@dataclass
class Mailbox:
    """The messages that the server received, and its answers.

    Attributes:
        certificate: its certificate, which a client must trust.
        replies: by command: "MAIL", "RCPT", "DATA" (after the content); "" cuts the connection,
            "wait" never answers.
        got: complete messages, in order.
        to: the envelope recipients of each message.
        sessions: connections on which a command arrived.
    """

    certificate: Path
    port: int = 0
    replies: dict[str, str] = field(default_factory=dict)
    got: list[bytes] = field(default_factory=list)
    to: list[list[str]] = field(default_factory=list)
    sessions: list[Any] = field(default_factory=list)
    logins: list[tuple[bytes, bytes]] = field(default_factory=list)
    tls: list[bool] = field(default_factory=list)

    @property
    def mails(self) -> list[EmailMessage]:
        return [message_from_bytes(one, policy=policy.default) for one in self.got]  # type: ignore[misc]

    async def handle_MAIL(  # noqa: N802  (the library's own name)
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if server not in self.sessions:
            self.sessions.append(server)
        envelope.mail_from = address
        return await self._reply(server, "MAIL")

    async def handle_RCPT(  # noqa: N802  (as above)
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        reply = await self._reply(server, "RCPT")
        if reply.startswith("250"):
            envelope.rcpt_tos.append(address)
        return reply

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802  (as above)
        assert isinstance(envelope.content, bytes)
        self.got.append(envelope.content)
        self.to.append(list(envelope.rcpt_tos))
        self.tls.append(session.ssl is not None)
        return await self._reply(server, "DATA")

    async def _reply(self, server: SMTP, command: str) -> str:
        reply = self.replies.get(command, "250 2.0.0 OK")
        if reply == "wait":
            await asyncio.Event().wait()
        if not reply:
            server.transport.abort()  # type: ignore[union-attr]
        return reply

    def login(
        self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any
    ) -> AuthResult:
        assert isinstance(data, LoginPassword)
        self.logins.append((data.login, data.password))
        right = (data.login, data.password) == (USER.encode(), PASSWORD.encode())
        return AuthResult(success=right, handled=False)


@asynccontextmanager
async def smtp(
    folder: Path, *, tls: str = "none", auth: bool = False, **replies: str
) -> AsyncIterator[Mailbox]:
    """Run a server on a free port until the block exits."""
    certificate, key = self_signed(folder)
    box = Mailbox(certificate, replies=replies)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    made: list[SMTP] = []

    def factory() -> SMTP:
        server = SMTP(
            box,
            hostname="localhost",
            tls_context=context if tls == "starttls" else None,
            require_starttls=tls == "starttls",
            auth_required=auth,
            auth_require_tls=tls == "starttls",
            authenticator=box.login if auth else None,
            loop=asyncio.get_running_loop(),
        )
        made.append(server)
        return server

    listening = await asyncio.get_running_loop().create_server(
        factory, "127.0.0.1", 0, ssl=context if tls == "implicit" else None
    )
    box.port = listening.sockets[0].getsockname()[1]
    try:
        yield box
    finally:
        await close_servers([listening])
        running = [one._handler_coroutine for one in made if one._handler_coroutine]
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for one in made:
            if one.transport is not None:
                one.transport.abort()  # pyright: ignore[reportAttributeAccessIssue]
        await listening.wait_closed()
