"""The application: whoever places calls and sends messages, as the simulated world tells it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headway.carrier.ledger import Call, Text
from headway.carrier.twiml import write_reply, write_twiml
from headway.core.errors import CallerError, HeadwayError
from headway.systems.telephony.texts import Inbound, TextEvent, TextStatus
from headway.systems.telephony.voice import Ask, CallEvent, CallStatus, Pressed, Say

Told = CallEvent | Pressed | TextEvent | Inbound
"""What an application in this process is told."""

Tell = Callable[[Told], Awaitable[object]]
"""Hears it. What it returns for `Pressed` is said, and for `Inbound` written, in answer: words that
are a `Say`, an `Ask` or text; anything else is nothing."""


class NotHeard(Exception):
    """The application could not be told; it may be told again."""


class NotUnderstood(NotHeard):
    """The application was told, and refused it; telling it again is in vain."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """A status as it was when the webhook was made; calls go on while it travels.

    Attributes:
        event: initiated, ringing, answered, or completed whatever the end.
        status: where the call stood.
        number: of the webhook among those of its call, from 0.
        at: ms UTC.
        duration_s: of an ended call.
    """

    event: str
    status: CallStatus
    number: int
    at: int
    duration_s: int | None = None


class Application(Protocol):
    """Whoever places calls and sends messages, as the world tells it."""

    async def call_status(self, call: Call, notice: Notice) -> None:
        """Tells how a call goes on.

        Raises:
            NotHeard: it could not be told.
        """
        ...

    async def words(
        self, call: Call, url: str, method: str, more: Sequence[tuple[str, str]] = ()
    ) -> str:
        """Asks what is to be said.

        Args:
            call: in which it is said.
            url: where to ask.
            method: how.
            more: what is told besides; keys that were pressed are `Digits`.

        Returns:
            TwiML.

        Raises:
            NotHeard: it did not tell.
        """
        ...

    async def text_status(self, text: Text, status: TextStatus, number: int) -> None:
        """Tells what became of a message.

        Raises:
            NotHeard: it could not be told.
        """
        ...

    async def inbound(self, text: Text, url: str) -> str:
        """Tells that somebody wrote.

        Returns:
            TwiML.

        Raises:
            NotHeard: it could not be told.
        """
        ...

    async def close(self) -> None:
        """Closes its connections."""
        ...


class DirectApplication:
    """An application in this process, told without a network: on virtual time, or in a test.

    Args:
        name: of the provider.
        tell: hears all that is told.
    """

    def __init__(self, name: str, tell: Tell) -> None:
        self._name = name
        self._tell = tell

    async def call_status(self, call: Call, notice: Notice) -> None:
        """See `Application`."""
        await self._told(event_of(self._name, call, notice))

    async def words(
        self, call: Call, url: str, method: str, more: Sequence[tuple[str, str]] = ()
    ) -> str:
        """See `Application`."""
        del url, method
        digits = dict(more).get("Digits")
        if digits is None:
            return ""
        event = f"{self._name}:{call.sid}:pressed:{len(call.pressed)}"
        ref = call.plan.ref or None
        said = await self._told(Pressed(call_id=call.sid, ref=ref, digits=digits, event=event))
        return write_twiml(said) if isinstance(said, Say | Ask) else ""

    async def text_status(self, text: Text, status: TextStatus, number: int) -> None:
        """See `Application`."""
        await self._told(
            TextEvent(
                provider=self._name,
                message_id=text.sid,
                ref=text.plan.ref or None,
                status=status,
                event=f"{self._name}:{text.sid}:{status}:{number}",
                reason=reason_of_text(status),
            )
        )

    async def inbound(self, text: Text, url: str) -> str:
        """See `Application`."""
        del url
        plan = text.plan
        event = f"{self._name}:{text.sid}"
        said = await self._told(Inbound(from_=plan.from_, to=plan.to, text=plan.text, event=event))
        return write_reply(said if isinstance(said, str) else None)

    async def close(self) -> None:
        """See `Application`."""

    async def _told(self, one: Told) -> object:
        """What an application answers whose errors are those of a server that runs it.

        Raises:
            NotUnderstood: it refused.
            NotHeard: it could not hear it now.
        """
        try:
            return await self._tell(one)
        except CallerError as error:
            raise NotUnderstood(str(error)) from error
        except HeadwayError as error:
            raise NotHeard(str(error)) from error


def event_of(name: str, call: Call, notice: Notice) -> CallEvent:
    """What is told of a call."""
    return CallEvent(
        provider=name,
        call_id=call.sid,
        ref=call.plan.ref or None,
        status=notice.status,
        event=f"{name}:{call.sid}:{notice.status}:{notice.number}",
        duration_s=notice.duration_s,
        reason="the number cannot be reached" if notice.status is CallStatus.FAILED else "",
    )


def reason_of_text(status: TextStatus) -> str:
    """Why a message did not arrive; empty if it did."""
    return "30003 the handset cannot be reached" if status is TextStatus.UNDELIVERED else ""
