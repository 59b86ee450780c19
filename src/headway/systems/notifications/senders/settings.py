"""The table [notifications.senders]: one table for each channel, with what its provider needs.

No secret is shown: not by an error, not by a repr.
"""

from __future__ import annotations

import ssl
from email.headerregistry import Address
from pathlib import Path
from typing import Annotated, Literal, Self

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from pydantic import AfterValidator, Field, model_validator

from headway.core.errors import InvalidValue
from headway.runtime.settings_table import BaseUrl, Span, Table
from headway.server.hooks.providers import Keys
from headway.systems.notifications.senders.mail import read_address
from headway.systems.telephony.phone import Phone

SENDGRID_URL = "https://api.sendgrid.com"
APNS_HOST = "api.push.apple.com"
APNS_SANDBOX_HOST = "api.development.push.apple.com"


def _sender_address(text: str) -> str:
    fault = read_address(text)
    if isinstance(fault, Address):
        return text
    message = f"is not an address such as Shop <news@example.org>: {fault}"
    raise ValueError(message)


Timeout = Annotated[Span, Field(ge=100, le=120_000)]
Secret = Annotated[str, Field(min_length=8, repr=False)]
Port = Annotated[int, Field(ge=1, le=65_535)]
SenderAddress = Annotated[str, AfterValidator(_sender_address)]


class PushTable(Table):
    """`[notifications.senders.push]`: APNs, by a token key.

    Attributes:
        key: the private key as PEM; or a file with it, `key_file`.
        topic: the app's bundle id.
        sandbox: whether apps are development builds.
        host: of the server, if it is not Apple's.
        ca_file: certificates to trust instead of the system's.
        timeout: until when Apple must have answered, ms.
    """

    key: Annotated[str | None, Field(repr=False)] = None
    key_file: Path | None = None
    key_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9]{10}$")]
    team_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9]{10}$")]
    topic: Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]{1,255}$")]
    sandbox: bool = False
    host: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9.-]+$")] = None
    port: Port = 443
    ca_file: Path | None = None
    timeout: Timeout = 10_000

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        if (self.key is None) == (self.key_file is None):
            message = "give key_file, or key with the PEM itself"
            raise ValueError(message)
        return self

    def read_key(self) -> str:
        """Read the private key, as PEM.

        Raises:
            InvalidValue: there is no such file, or it is not a private key of P-256.
        """
        where, text = "notifications.senders.push", self.key or ""
        if self.key_file is not None:
            where = f"{where}.key_file: {self.key_file}"
            try:
                text = self.key_file.read_text("utf-8")
            except (OSError, UnicodeDecodeError) as error:
                message = f"{where} cannot be read: {type(error).__name__}"
                raise InvalidValue(message, hint="the AuthKey_….p8 from Apple") from None
        try:
            key = load_pem_private_key(text.encode(), None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if isinstance(key, EllipticCurvePrivateKey) and isinstance(key.curve, SECP256R1):
            return text
        message = f"{where} is not a private key of P-256 in PEM"
        raise InvalidValue(message, hint="the AuthKey_….p8 from Apple, as it was downloaded")

    @property
    def server(self) -> str:
        """The host to connect to."""
        return self.host or (APNS_SANDBOX_HOST if self.sandbox else APNS_HOST)


class SmsTable(Table):
    """`[notifications.senders.sms]`: a provider of `[telephony]`.

    Attributes:
        from_: written `from`.
        provider: as [telephony] names it; the first one that sends texts if it is not given.
    """

    from_: Annotated[Phone, Field(alias="from")]
    provider: str | None = None


class SmtpTable(Table):
    """`[notifications.senders.email.smtp]`.

    Attributes:
        port: 465 for "implicit", 587 for "starttls", 25 for "none", if not given.
        tls: "starttls" and "implicit" require it; "none" sends everything in the clear.
        ca_file: certificates to trust instead of the system's.
        timeout: for connecting, and for each answer of the server, ms.
        connections: the most at once; each carries one message at a time.
    """

    host: Annotated[str, Field(min_length=1, max_length=255)]
    port: Port | None = None
    tls: Literal["starttls", "implicit", "none"] = "starttls"
    username: str | None = None
    password: Annotated[str | None, Field(repr=False)] = None
    ca_file: Path | None = None
    timeout: Timeout = 30_000
    connections: Annotated[int, Field(ge=1, le=100)] = 4

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.username is None) != (self.password is None):
            message = "give username and password together, or neither"
            raise ValueError(message)
        if self.tls == "none" and self.username is not None:
            message = 'tls = "none" would send the password in the clear'
            raise ValueError(message)
        return self


class SendGridTable(Table):
    """`[notifications.senders.email.sendgrid]`; `timeout`, in ms, is for a whole reply."""

    api_key: Secret
    base_url: BaseUrl = SENDGRID_URL
    timeout: Timeout = 10_000


class EmailTable(Table):
    """`[notifications.senders.email]`: a server, or an account at SendGrid."""

    from_: Annotated[SenderAddress, Field(alias="from")]
    smtp: SmtpTable | None = None
    sendgrid: SendGridTable | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.smtp is None) == (self.sendgrid is None):
            message = "give a table smtp, or a table sendgrid"
            raise ValueError(message)
        return self


class WebhookTable(Table):
    """`[notifications.senders.webhook]`.

    Attributes:
        keys: `whsec_…`; each signs, so that receivers can change theirs.
        private: whether addresses that are not on the open internet may be sent to.
    """

    keys: Annotated[Keys, Field(min_length=1)]
    private: bool = False


class AppriseTable(Table):
    """`[notifications.senders.apprise]`.

    Attributes:
        threads: the most services that are sent to at once.
        timeout: until when a service must have answered, ms.
    """

    threads: Annotated[int, Field(ge=1, le=64)] = 8
    timeout: Timeout = 30_000


class SendersTable(Table):
    """`[notifications.senders]`: a channel without a table is not sent by."""

    push: PushTable | None = None
    sms: SmsTable | None = None
    email: EmailTable | None = None
    webhook: WebhookTable | None = None
    apprise: AppriseTable | None = None


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
