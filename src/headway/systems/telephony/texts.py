"""Texts: what a provider of text messages does."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from headway.server.hooks.request import HookRequest


class TextStatus(StrEnum):
    """Where a message stands; every provider's own words are brought to these."""

    QUEUED = "queued"
    SENT = "sent"
    DELIVERED = "delivered"
    UNDELIVERED = "undelivered"
    FAILED = "failed"

    @property
    def ended(self) -> bool:
        """Whether nothing further is told."""
        return self not in {TextStatus.QUEUED, TextStatus.SENT}


@dataclass(frozen=True, kw_only=True, slots=True)
class TextOrder:
    """A message to be sent.

    Attributes:
        ref: of the job's run, `id:run`; it comes back with the webhooks.
        to: E.164.
        from_: E.164, one of the provider's numbers.
        text: what it says.
        status_url: where the provider tells what became of it; None for nowhere.
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
        provider: its name.
        message_id: the provider's own.
        ref: of the job's run; None if the webhook does not hold it.
        status: where it stands.
        event: the same whenever the webhook is sent again, another for anything else it says.
        reason: why it failed; may be empty.
        code: the provider's own for why it failed; may be empty.
    """

    provider: str
    message_id: str
    ref: str | None
    status: TextStatus
    event: str
    reason: str = ""
    code: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Inbound:
    """A message that somebody sent to one of our numbers.

    Attributes:
        from_: E.164.
        to: E.164.
        text: what it says.
        event: as in `TextEvent`.
    """

    from_: str
    to: str
    text: str
    event: str


class Texts(Protocol):
    """A provider of text messages."""

    @property
    def name(self) -> str:
        """As settings name it, such as "twilio"."""
        ...

    @property
    def answers_ms(self) -> int:
        """Within which a send returns or raises."""
        ...

    async def send(self, order: TextOrder) -> str:
        """Sends a message; nothing here tries again.

        Returns:
            The provider's own id.

        Raises:
            ProviderRefused: it was definitely not sent.
            ProviderUnsure: it may have been sent.
        """
        ...

    def verify(self, request: HookRequest, now: int) -> None:
        """Lets a webhook pass that this provider has signed.

        Raises:
            Unauthenticated: it is not signed, or not by the provider, or too long ago.
        """
        ...

    def read_text_status(self, request: HookRequest) -> TextEvent | None:
        """What a proved status webhook says; None if it is of another sort.

        Raises:
            InvalidValue: it is not understood.
        """
        ...

    def read_inbound(self, request: HookRequest) -> Inbound | None:
        """What a proved webhook tells that somebody wrote; None if it is of another sort.

        Raises:
            InvalidValue: it is not understood.
        """
        ...

    def reply_text(self, text: str | None) -> tuple[bytes, str]:
        """The reply to an inbound webhook: this answer, or none; its body and media type."""
        ...

    async def close(self) -> None:
        """Closes its connections."""
        ...
