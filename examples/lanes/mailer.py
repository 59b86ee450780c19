"""Email by SMTP: one message for each job, as far as SMTP allows.

An accepted message is recorded by the job's id, and not sent again. If the worker dies between the
server's reply and the record, the message is sent twice with the same Message-ID, which is derived
from the job's id. Most mailboxes then show it once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from email.message import EmailMessage

import aiosmtplib

import headway as hw
from examples.lanes.database import Database, now

REFUSED_FOR_GOOD = 500
"""Reply codes from this one on are permanent; lower ones are temporary."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mailer:
    """An SMTP server and a sender address.

    Attributes:
        tls: "no", "starttls", or "tls" from the first byte.
        user: User name; "" for none.
        sender: The From address of each message.
        database: The database in which deliveries are recorded.
    """

    host: str
    port: int
    tls: str
    user: str
    password: str
    sender: str
    database: Database

    def message(self, to: str, title: str, text: str) -> EmailMessage:
        """Return a message, without sending it.

        Raises:
            Dead: an address or the title is not valid in a header.
        """
        if "=?" in title:
            # EmailMessage would decode it, and write the line breaks in it as they are.
            raise hw.Dead("the message cannot be written: the title contains =?")
        message = EmailMessage()
        try:
            message["From"], message["To"], message["Subject"] = self.sender, to, title
        except (ValueError, IndexError) as error:
            reason = f"the message cannot be written: {error}"
            raise hw.Dead(reason) from None
        message.set_content(text)
        return message

    async def send(self, job: hw.Job, message: EmailMessage) -> str:
        """Send a job's message, unless it was sent before; return its Message-ID.

        Raises:
            Dead: the server refuses it permanently.
            Retry: the server refuses it temporarily, or is unreachable.
        """
        reference = f"<{job.id}@{self.sender.partition('@')[2] or 'localhost'}>"
        if await asyncio.to_thread(self._was_sent, job.id):
            return reference
        message["Message-ID"] = reference
        try:
            await self._hand_in(message)
        except (aiosmtplib.SMTPException, OSError) as error:
            code, reason = _said(error)
            if code >= REFUSED_FOR_GOOD:
                raise hw.Dead(reason) from error
            raise hw.Retry(reason) from error
        await asyncio.to_thread(self._note, job.id, str(message["To"]), reference)
        return reference

    async def greet(self) -> None:
        """Check that the server answers."""
        async with aiosmtplib.SMTP(
            hostname=self.host,
            port=self.port,
            use_tls=self.tls == "tls",
            start_tls=self.tls == "starttls",
            timeout=10,
        ) as server:
            await server.noop()

    async def _hand_in(self, message: EmailMessage) -> None:
        await aiosmtplib.send(
            message,
            hostname=self.host,
            port=self.port,
            username=self.user or None,
            password=self.password or None,
            use_tls=self.tls == "tls",
            start_tls=self.tls == "starttls",
            timeout=20,
        )

    def _was_sent(self, job: str) -> bool:
        with self.database.read() as db:
            found = db.execute("SELECT 1 FROM delivery WHERE job = ?", (job,)).fetchone()
        return found is not None

    def _note(self, job: str, to: str, reference: str) -> None:
        with self.database.write() as db:
            db.execute(
                "INSERT OR IGNORE INTO delivery (job, channel, recipient, reference, at)"
                " VALUES (?, 'email', ?, ?, ?)",
                (job, to, reference, now()),
            )


def _said(error: Exception) -> tuple[int, str]:
    """Return the server's reply code, or 0 without a reply, and a sentence."""
    if isinstance(error, aiosmtplib.SMTPRecipientsRefused):
        error = error.recipients[0]
    if isinstance(error, aiosmtplib.SMTPResponseException):
        return error.code, f"the mail server said {error.code} {error.message}"
    return 0, f"the mail server cannot be reached: {error}"
