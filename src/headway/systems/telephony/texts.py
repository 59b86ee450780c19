"""Text messages: the protocol of their providers, and rendering."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, cast

from headway.core.errors import InvalidValue
from headway.server.hooks.request import HookRequest
from headway.systems.telephony.voice import TelephonyProvider


class TextStatus(StrEnum):
    """The status of a message; each provider's own statuses are mapped to these."""

    QUEUED = "queued"
    SENT = "sent"
    DELIVERED = "delivered"
    UNDELIVERED = "undelivered"
    FAILED = "failed"

    @property
    def ended(self) -> bool:
        """Whether no further status follows."""
        return self not in {TextStatus.QUEUED, TextStatus.SENT}


@dataclass(frozen=True, kw_only=True, slots=True)
class TextOrder:
    """A message to be sent.

    Attributes:
        ref: reference of the job's run, `id:run`; webhooks return it.
        to: E.164.
        from_: E.164, one of the provider's numbers.
        status_url: URL that receives the status from the provider; None for no reports.
    """

    ref: str
    to: str
    from_: str
    text: str
    status_url: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TextEvent:
    """The status of a message that was sent.

    Attributes:
        ref: reference of the job's run; None if the webhook does not contain it.
        event: id of the event: the same if the webhook is repeated, different for any other event.
        to: recipient, E.164; empty if the webhook does not contain it.
        reason: why it failed; may be empty.
        code: the provider's error code; may be empty.
    """

    provider: str
    message_id: str
    ref: str | None
    status: TextStatus
    event: str
    to: str = ""
    reason: str = ""
    code: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Inbound:
    """A message sent to one of our numbers.

    Attributes:
        from_: E.164.
        to: E.164.
        event: as in `TextEvent`.
        keyword: keyword that the provider recognized, such as STOP, START or HELP; None if it
            reports none.
    """

    from_: str
    to: str
    text: str
    event: str
    keyword: str | None = None


class TextProvider(TelephonyProvider, Protocol):
    """A provider of text messages."""

    async def send(self, order: TextOrder) -> str:
        """Send a message with one request, without retries.

        Returns:
            The provider's id of the message.

        Raises:
            ProviderRefused: it was definitely not sent.
            ProviderUnsure: it may have been sent.
        """
        ...

    def read_text_status(self, request: HookRequest) -> TextEvent | None:
        """Return the event of a verified status webhook; None if it is another kind."""
        ...

    def read_inbound(self, request: HookRequest) -> Inbound | None:
        """Return the message of a verified inbound webhook; None if it is another kind."""
        ...

    def reply_text(self, text: str | None) -> tuple[bytes, str]:
        """Return the reply to an inbound webhook: its body and its media type.

        Args:
            text: message to reply with; None for none.
        """
        ...


_UNSAID = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Controls, and what no XML document can contain, not even escaped."""


def plain_text(text: str) -> str:
    """Replace by spaces what a provider refuses, or speaks an error message for."""
    return _UNSAID.sub(" ", text)


_FIELD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def check_words(what: str, words: str) -> None:
    """Validate that each brace belongs to a placeholder, because others would be spoken.

    Args:
        what: subject of the error message.
        words: text with placeholders such as `{name}`.

    Raises:
        InvalidValue: there is another brace.
    """
    rest = _FIELD.sub("", words)
    if "{" in rest or "}" in rest:
        message = f"{what} contains a brace outside a placeholder"
        raise InvalidValue(message, hint="write placeholders as {name}, of letters, digits and _")


def render(words: str, payload: object) -> str:
    """Replace each `{name}` by the payload's text or number of that name, or by nothing."""
    known = cast("Mapping[str, object]", payload if isinstance(payload, dict) else {})

    def value_of(match: re.Match[str]) -> str:
        value = known.get(match[1])
        return str(value) if isinstance(value, str | int | float) else ""

    return _FIELD.sub(value_of, words)
