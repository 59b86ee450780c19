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
        id: the notification's id; the same message never gets another one.
        to: the address: a device token, E.164, an e-mail address or a URL.
        title: the subject of an e-mail, the title of a push; may be empty.
        data: what the app gets besides, as JSON.
        expires_at: when it is of no use any more, ms UTC; None if it always is.
        unsubscribe_url: where one click ends messages of this category; None for none.
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
    """The provider has taken the message; its own id is what delivery webhooks name, if any."""

    provider_id: str | None


@dataclass(frozen=True, slots=True)
class Refused:
    """The provider will never take the message; `gone`: the address does not exist any more."""

    reason: str
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Limited:
    """The provider takes no messages for now (429), or for so long; nothing was sent."""

    reason: str
    retry_after_ms: int | None


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The provider cannot be reached; nothing was sent for certain, so try later."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unsure:
    """The message may have been sent; the answer was lost."""

    reason: str


Outcome = Accepted | Refused | Limited | Unavailable | Unsure


class Sender(Protocol):
    """Sends the messages of one channel through one provider."""

    async def send(self, message: Message) -> Outcome:
        """Hand over one message once; nothing in here tries again after a byte was sent.

        Never raises for what a provider or a network does: that is an outcome.

        Raises:
            Withdrawn: by `last_moment`, which it calls before the first byte of the message.
        """
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


def outcome_of(error: ProviderError) -> Outcome:
    """Return what an error of a provider says of the message that it was asked to send."""
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
        InvalidValue: the file cannot be read, or holds no certificate.
    """
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # an SSLError is one
        message = f"{where}: {ca_file} cannot be read: {type(error).__name__}"
        raise InvalidValue(message, hint="certificates in PEM") from None
