"""Text messages: the protocol of their providers, rendering, and sending one in a job."""

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
    """The status of a message; each provider's own words are translated to these."""

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
        ref: of the job's run, `id:run`; it comes back with the webhooks.
        to: E.164.
        from_: E.164, one of the provider's numbers.
        status_url: receives its status from the provider; None for no reports.
    """

    ref: str
    to: str
    from_: str
    text: str
    status_url: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TextEvent:
    """What a provider says of a message that was sent.

    Attributes:
        ref: of the job's run; None if the webhook does not hold it.
        to: who it was sent to, E.164; empty if the webhook does not hold it.
        event: the same whenever the webhook is sent again, another for anything else it says.
        reason: why it failed; may be empty.
        code: the provider's own for why it failed; may be empty.
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
        keyword: what the provider has taken it for, such as STOP, START or HELP; None if it does
            not say.
    """

    from_: str
    to: str
    text: str
    event: str
    keyword: str | None = None


class Texts(TelephonyProvider, Protocol):
    """A provider of text messages."""

    async def send(self, order: TextOrder) -> str:
        """Send a message; nothing here tries again.

        Returns:
            The provider's own id.

        Raises:
            ProviderRefused: it was definitely not sent.
            ProviderUnsure: it may have been sent.
        """
        ...

    def read_text_status(self, request: HookRequest) -> TextEvent | None:
        """Return what a proved status webhook says; None if it is of another sort."""
        ...

    def read_inbound(self, request: HookRequest) -> Inbound | None:
        """Return the inbound message of a verified webhook; None if it is of another sort."""
        ...

    def reply_text(self, text: str | None) -> tuple[bytes, str]:
        """Return the reply to an inbound webhook: this answer, or none; its body and media type."""
        ...


_FIELD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


def check_words(what: str, words: str) -> None:
    """Check that each brace belongs to a placeholder: any other would be read out.

    Args:
        words: with placeholders such as `{name}`.

    Raises:
        InvalidValue: one does not.
    """
    rest = _FIELD.sub("", words)
    if "{" in rest or "}" in rest:
        message = f"{what}: a brace in it belongs to no placeholder"
        raise InvalidValue(message, hint="a placeholder is {name}: letters, digits and _")


def render(words: str, payload: object) -> str:
    """Return words with each `{name}` replaced by the payload's text or number, or by nothing."""
    known = cast("Mapping[str, object]", payload if isinstance(payload, dict) else {})

    def value_of(match: re.Match[str]) -> str:
        value = known.get(match[1])
        return str(value) if isinstance(value, str | int | float) else ""

    return _FIELD.sub(value_of, words)
