"""The application that places calls and sends messages, and the simulated world's events to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headway.carrier.ledger import Call, Text
from headway.carrier.twiml import write_reply, write_twiml
from headway.core.errors import CallerError, HeadwayError
from headway.systems.telephony.texts import Inbound, TextEvent, TextStatus
from headway.systems.telephony.voice import Ask, CallEvent, CallStatus, Pressed, Say

Event = CallEvent | Pressed | TextEvent | Inbound
"""An event for an application in this process."""

EventHandler = Callable[[Event], Awaitable[object]]
"""Handles an event. For `Pressed` it may return a `Say` or an `Ask` to be spoken, for `Inbound` a
text to be sent as the reply; anything else is no reply."""


class DeliveryFailed(Exception):
    """The delivery failed; it may be retried."""


class DeliveryRefused(DeliveryFailed):
    """The application received it and refused it; a retry would be refused again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """A status as it was when the webhook was made; calls go on while it travels.

    Attributes:
        event: initiated, ringing, answered, or completed whatever the end.
        number: of the webhook among those of its call, from 0.
        at: ms UTC.
    """

    event: str
    status: CallStatus
    number: int
    at: int
    duration_s: int | None = None


class Application(Protocol):
    """The application that places calls and sends messages.

    What cannot be delivered to it raises DeliveryFailed.
    """

    async def call_status(self, call: Call, notice: Notice) -> None:
        """Report a call's status."""
        ...

    async def words(
        self, call: Call, url: str, method: str, more: Sequence[tuple[str, str]] = ()
    ) -> str:
        """Return the script of a call, in TwiML.

        Args:
            more: further fields of the request; pressed keys are `Digits`.
        """
        ...

    async def text_status(self, text: Text, status: TextStatus, number: int) -> None:
        """Report a message's status."""
        ...

    async def inbound(self, text: Text, url: str) -> str:
        """Report an inbound message, and return the reply, in TwiML."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


class DirectApplication:
    """An application in this process, called without a network: on virtual time, or in a test.

    Args:
        handler: called with each event.
    """

    def __init__(self, name: str, handler: EventHandler) -> None:
        self._name = name
        self._handler = handler

    async def call_status(self, call: Call, notice: Notice) -> None:
        """See `Application`."""
        await self._handle(event_of(self._name, call, notice))

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
        said = await self._handle(Pressed(call_id=call.sid, ref=ref, digits=digits, event=event))
        return write_twiml(said) if isinstance(said, Say | Ask) else ""

    async def text_status(self, text: Text, status: TextStatus, number: int) -> None:
        """See `Application`."""
        await self._handle(
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
        said = await self._handle(
            Inbound(from_=plan.from_, to=plan.to, text=plan.text, event=event)
        )
        return write_reply(said if isinstance(said, str) else None)

    async def close(self) -> None:
        """See `Application`."""

    async def _handle(self, one: Event) -> object:
        # Errors are translated as a server that runs the handler would.
        try:
            return await self._handler(one)
        except CallerError as error:
            raise DeliveryRefused(str(error)) from error
        except HeadwayError as error:
            raise DeliveryFailed(str(error)) from error


def event_of(name: str, call: Call, notice: Notice) -> CallEvent:
    """Return the event for a call's status."""
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
