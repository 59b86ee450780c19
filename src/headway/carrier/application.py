"""The application that uses the simulated network: its events, and its TwiML."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from xml.etree import ElementTree as ET

from headway.carrier.ledger import PlacedCall, TextMessage
from headway.core.errors import CallerError, HeadwayError, InvalidValue
from headway.systems.telephony.texts import Inbound, TextEvent, TextStatus
from headway.systems.telephony.twilio_webhooks import reply_twiml, to_twiml
from headway.systems.telephony.voice import Ask, CallEvent, CallStatus, Pressed, Say

_MOST = 65_536
_TALKS = frozenset(
    {"Play", "Dial", "Connect", "Record", "Enqueue", "Conference", "Start", "Stream"}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SpokenText:
    """A spoken text."""

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Silence:
    """A pause."""

    pause_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Talk:
    """A step that lasts as long as the person talks."""

    verb: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Gather:
    """A wait for keys.

    Attributes:
        action: URL that receives the keys; None for that of this document.
        digits: number of keys that end the wait.
        timeout_ms: how long to wait after the texts.
        reports_none: whether a timeout without keys is reported as well.
    """

    prompts: tuple[str, ...] = ()
    action: str | None = None
    method: str = "POST"
    digits: int = 1_000
    timeout_ms: int = 5_000
    reports_none: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Redirect:
    """A redirect to another document."""

    url: str
    method: str = "POST"


@dataclass(frozen=True, kw_only=True, slots=True)
class HangUp:
    """The end of the call."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplyMessage:
    """A message sent in reply."""

    text: str


CallStep = SpokenText | Silence | Talk | Gather | Redirect | HangUp | ReplyMessage


def read_twiml(text: str) -> list[CallStep]:
    """Parse an application's document; an empty one has no steps.

    Raises:
        InvalidValue: it is not valid TwiML.
    """
    if not text.strip():
        return []
    if len(text) > _MOST or "<!DOCTYPE" in text or "<!ENTITY" in text:
        message = "12100 the document is too long, or defines entities"
        raise InvalidValue(message)
    try:
        root = ET.fromstring(text)  # noqa: S314  (documents with entities are refused above)
    except (ET.ParseError, ValueError) as error:
        message = f"12100 the document is not valid XML: {error}"
        raise InvalidValue(message) from None
    if root.tag != "Response":
        message = f"12100 the document is a <{root.tag:.40}>, not a <Response>"
        raise InvalidValue(message)
    try:
        return [_step(one) for one in root]
    except (ValueError, OverflowError) as error:
        message = f"12200 the document has an invalid value: {error}"
        raise InvalidValue(message) from None


def _step(one: ET.Element) -> CallStep:
    words = "".join(one.itertext()).strip()
    made = _PLAIN.get(one.tag)
    if made is not None:
        return made(one, words)
    if one.tag in _TALKS:
        return Talk(verb=one.tag)
    message = f"the verb <{one.tag:.40}> is unknown"
    raise ValueError(message)


def _gather(one: ET.Element) -> Gather:
    prompts = ("".join(each.itertext()).strip() for each in one if each.tag == "Say")
    return Gather(
        prompts=tuple(prompts),
        action=one.get("action"),
        method=_method(one),
        digits=_number(one, "numDigits", 1_000),
        timeout_ms=1_000 * _number(one, "timeout", 5),
        reports_none=one.get("actionOnEmptyResult", "false").lower() == "true",
    )


def _method(one: ET.Element) -> str:
    method = one.get("method", "POST").upper()
    if method not in {"GET", "POST"}:
        message = f"the method {method!r:.40} is not GET or POST"
        raise ValueError(message)
    return method


def _number(one: ET.Element, name: str, usual: int) -> int:
    number = int(one.get(name, str(usual)))
    if number < 0:
        message = f"{name} is {number}, which is below 0"
        raise ValueError(message)
    return number


_PLAIN: Mapping[str, Callable[[ET.Element, str], CallStep]] = {
    "Say": lambda _, words: SpokenText(text=words),
    "Message": lambda _, words: ReplyMessage(text=words),
    "Pause": lambda one, _: Silence(pause_ms=1_000 * _number(one, "length", 1)),
    "Gather": lambda one, _: _gather(one),
    "Redirect": lambda one, words: Redirect(url=words, method=_method(one)),
    "Hangup": lambda _, __: HangUp(),
    "Reject": lambda _, __: HangUp(),
    "Leave": lambda _, __: HangUp(),
}


ApplicationEvent = CallEvent | Pressed | TextEvent | Inbound
"""An event for an application in this process."""

EventHandler = Callable[[ApplicationEvent], Awaitable[object]]
"""Handles an event. For `Pressed` it may return a `Say` or an `Ask` to speak, for `Inbound` a text
to reply with; anything else is ignored."""


class DeliveryFailed(Exception):
    """Raised if a delivery failed and may be retried."""


class DeliveryRefused(DeliveryFailed):
    """Raised if the application refused a delivery, as it would refuse a retry."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallNotice:
    """The status of a call when its webhook was created; it may change before the delivery.

    Attributes:
        event: initiated, ringing, answered, or completed, whatever the end.
        number: sequence number of the webhook in its call, from 0.
        at: ms UTC.
    """

    event: str
    status: CallStatus
    number: int
    at: int
    duration_s: int | None = None


class Application(Protocol):
    """The application that places calls and sends messages.

    Its methods raise DeliveryFailed if a delivery fails.
    """

    async def call_status(self, call: PlacedCall, notice: CallNotice) -> None:
        """Report a call's status."""
        ...

    async def words(
        self, call: PlacedCall, url: str, method: str, more: Sequence[tuple[str, str]] = ()
    ) -> str:
        """Return the script of a call, in TwiML.

        Args:
            more: additional fields of the request; `Digits` contains pressed keys.
        """
        ...

    async def text_status(self, text: TextMessage, status: TextStatus, number: int) -> None:
        """Report a message's status."""
        ...

    async def inbound(self, text: TextMessage, url: str) -> str:
        """Report an inbound message, and return the reply, in TwiML."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


class DirectApplication:
    """An application in this process, called without a network, for virtual time and tests.

    Args:
        handler: called with each event.
    """

    def __init__(self, name: str, handler: EventHandler) -> None:
        self._name = name
        self._handler = handler

    async def call_status(self, call: PlacedCall, notice: CallNotice) -> None:
        await self._handle(event_of(self._name, call, notice))

    async def words(
        self, call: PlacedCall, url: str, method: str, more: Sequence[tuple[str, str]] = ()
    ) -> str:
        del url, method
        digits = dict(more).get("Digits")
        if digits is None:
            return ""
        event = f"{self._name}:{call.sid}:pressed:{len(call.pressed)}"
        ref = call.plan.ref or None
        reply = await self._handle(Pressed(call_id=call.sid, ref=ref, digits=digits, event=event))
        return to_twiml(reply) if isinstance(reply, Say | Ask) else ""

    async def text_status(self, text: TextMessage, status: TextStatus, number: int) -> None:
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

    async def inbound(self, text: TextMessage, url: str) -> str:
        del url
        plan = text.plan
        event = f"{self._name}:{text.sid}"
        reply = await self._handle(
            Inbound(from_=plan.from_, to=plan.to, text=plan.text, event=event)
        )
        return reply_twiml(reply if isinstance(reply, str) else None)

    async def close(self) -> None:
        """Do nothing: there is no connection."""

    async def _handle(self, one: ApplicationEvent) -> object:
        # Map errors as a server that runs the handler would.
        try:
            return await self._handler(one)
        except CallerError as error:
            raise DeliveryRefused(str(error)) from error
        except HeadwayError as error:
            raise DeliveryFailed(str(error)) from error


def event_of(name: str, call: PlacedCall, notice: CallNotice) -> CallEvent:
    """Return the event for a call's status."""
    return CallEvent(
        provider=name,
        call_id=call.sid,
        ref=call.plan.ref or None,
        status=notice.status,
        event=f"{name}:{call.sid}:{notice.status}:{notice.number}",
        duration_s=notice.duration_s,
        reason=reason_of_call(notice.status),
    )


def reason_of_call(status: CallStatus) -> str:
    """Return why a call was not connected; empty if it was."""
    return "the number cannot be reached" if status is CallStatus.FAILED else ""


def reason_of_text(status: TextStatus) -> str:
    """Return why a message was not delivered; empty if it was."""
    return "30003 the handset cannot be reached" if status is TextStatus.UNDELIVERED else ""
