"""The [notifications] settings of headway.toml; neither errors nor reprs show their secrets."""

from __future__ import annotations

from email.headerregistry import Address
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from headway.core.local_time import DAY_MS
from headway.runtime.settings_table import Span, Table
from headway.systems.notifications.mail import SmtpTable, read_address
from headway.systems.notifications.notification import Channel
from headway.systems.notifications.push import PushTable
from headway.systems.notifications.senders import AppriseTable, SmsTable, WebhookTable
from headway.systems.notifications.sendgrid_mail import SendGridTable

Shortest = Annotated[Span, Field(ge=1)]


def _sender_address(text: str) -> str:
    fault = read_address(text)
    if isinstance(fault, Address):
        return text
    message = f"is not an address such as Shop <news@example.org>: {fault}"
    raise ValueError(message)


SenderAddress = Annotated[str, AfterValidator(_sender_address)]


class EmailTable(Table):
    """`[notifications.senders.email]`: a server, or an account at SendGrid."""

    from_: Annotated[SenderAddress, Field(alias="from")]
    smtp: SmtpTable | None = None
    sendgrid: SendGridTable | None = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.smtp is None) == (self.sendgrid is None):
            message = "set either a table smtp or a table sendgrid"
            raise ValueError(message)
        return self


class SendersTable(Table):
    """`[notifications.senders]`: a channel without a table is not used."""

    push: PushTable | None = None
    sms: SmsTable | None = None
    email: EmailTable | None = None
    webhook: WebhookTable | None = None
    apprise: AppriseTable | None = None


class ChannelSettings(Table):
    """How much a channel's provider accepts, from all workers together.

    Attributes:
        at_once: maximum number of sends running at once.
        rate: maximum number of sends in any window of `per`; None for no limit.
        per: length of the window, ms.
        closed_for: how long a 429 closes the channel if the provider does not say how long, ms.
    """

    at_once: int = Field(default=50, ge=1, le=100_000)
    rate: int | None = Field(default=None, ge=1)
    per: Shortest = 1_000
    closed_for: Shortest = 30_000


class NotificationSettings(Table):
    """Settings for all notifications; durations are milliseconds once they are read.

    Attributes:
        channels: how much each channel's provider accepts.
        urgent: categories that are sent first, are never spread, and are sent in quiet hours too.
        jitter: notifications of low priority are spread over this duration, never before their
            time.
        dedupe_window: how long, from the first accepted notification on, others are its duplicates.
        attempts: how often to try a channel whose provider cannot be reached.
        answer_within: how long a provider may take to reply; after that, its reply counts as lost.
        delivery_within: how long to wait for a delivery event; after that, a notification stays
            SENT.
        keep: how long to keep an ended notification.
        unsubscribe_url: URL of your own page for unsubscribing from a category; `{recipient}` and
            `{category}` are replaced. None for this server's page, which needs `public_url` and
            `signing_key`.
        senders: by channel.
        alerts: thresholds.
    """

    channels: dict[Channel, ChannelSettings] = Field(default={})
    urgent: list[str] = Field(default=["otp", "alert"])
    jitter: Span = 300_000
    dedupe_window: Shortest = DAY_MS
    attempts: int = Field(default=6, ge=1, le=1_000)
    answer_within: Annotated[Span, Field(ge=1_000)] = 180_000
    delivery_within: Shortest = 3 * DAY_MS
    keep: Shortest = 30 * DAY_MS
    unsubscribe_url: str | None = Field(default=None, pattern=r"^https://\S+$")
    senders: SendersTable = Field(default=SendersTable(), repr=False)
    alerts: dict[str, Any] = Field(default={})

    @model_validator(mode="after")
    def _kept_long_enough(self) -> Self:
        if self.keep < self.dedupe_window:
            message = "keep is shorter than dedupe_window, but duplicates refer to the first one"
            raise ValueError(message)
        return self

    def channel(self, channel: Channel) -> ChannelSettings:
        """Return the limits of a channel."""
        return self.channels.get(channel) or ChannelSettings()
