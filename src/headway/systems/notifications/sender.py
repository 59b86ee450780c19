"""Sender: hands one message to a provider, and returns the outcome as a value."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Protocol

from pydantic import Field

from headway.core.errors import InvalidValue, ProviderError, ProviderRefused
from headway.runtime.settings_table import Span

Timeout = Annotated[Span, Field(ge=100, le=120_000)]
Port = Annotated[int, Field(ge=1, le=65_535)]


@dataclass(frozen=True, slots=True)
class Message:
    """A rendered message for one address.

    Attributes:
        id: id of the notification, the same for every try.
        to: address: a device token, an E.164 number, an e-mail address or a URL.
        title: subject of an e-mail, or title of a push; may be empty.
        data: additional data for the app, as JSON values.
        expires_at: when the message expires, ms UTC; None for never.
        unsubscribe_url: URL that unsubscribes from this category by one click; None for none.
    """

    id: str
    channel: str
    to: str
    title: str
    text: str
    html: str | None
    data: Mapping[str, object]
    priority: Literal["high", "normal", "low"]
    category: str
    expires_at: int | None
    unsubscribe_url: str | None


@dataclass(frozen=True, slots=True)
class Accepted:
    """The provider accepted the message; its id, if any, is the one in delivery webhooks."""

    provider_id: str | None


@dataclass(frozen=True, slots=True)
class Refused:
    """The provider will never accept the message; `gone`: the address no longer exists."""

    reason: str
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Limited:
    """The provider accepts no messages now (429), perhaps for a given time; nothing was sent."""

    reason: str
    retry_after_ms: int | None


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The provider cannot be reached, or accepts nothing for this address now.

    Certainly nothing was sent, so try later, perhaps after a given time.
    """

    reason: str
    retry_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Unsure:
    """The message may have been sent; the answer was lost."""

    reason: str


SendResult = Accepted | Refused | Limited | Unavailable | Unsure


class MessageSender(Protocol):
    """Sends the messages of one channel through one provider."""

    async def send(self, message: Message) -> SendResult:
        """Send one message once; never retry after a byte was sent.

        Failures of the provider or the network are outcomes, not exceptions.

        Raises:
            Withdrawn: from `check_before_send`, called before the first byte of the message.
        """
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


def outcome_of(error: ProviderError) -> SendResult:
    """Return the outcome that a provider's error means for a message."""
    if not isinstance(error, ProviderRefused):
        return Unsure(error.message)
    if error.limited:
        return Limited(error.message, error.retry_after_ms)
    if error.concerns == "provider":
        return Unavailable(error.message)
    return Refused(error.message)


def tls_context(where: str, ca_file: Path | None) -> ssl.SSLContext:
    """Return a context that verifies servers by this file, or by the system's certificates.

    Raises:
        InvalidValue: the file cannot be read, or contains no certificate.
    """
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # an SSLError is one
        message = f"{where}: {ca_file} cannot be read: {type(error).__name__}"
        raise InvalidValue(message, hint="use certificates in PEM format") from None
