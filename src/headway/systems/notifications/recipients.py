"""Recipients: addresses and preferences; stored, changed, imported."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, cast

from pydantic import AfterValidator, ConfigDict, Field
from sqlalchemy import bindparam, delete, func
from sqlalchemy.ext.asyncio import AsyncSession

from headway.core.errors import InvalidValue
from headway.core.gates.hours import hours_spec
from headway.core.local_time import find_zone
from headway.server.alerts.apprise_sink import is_known, scheme_of
from headway.server.bodies.base import Body, FailFastList
from headway.server.caller import Caller
from headway.server.paging import PageQuery
from headway.server.routing import router
from headway.systems.directory.importing import json_of, split_by
from headway.systems.directory.record_routes import RouteDescriptions, add_routes
from headway.systems.directory.records import NewNamedRecord, PersonName, RecordChange, Records
from headway.systems.notifications.context import check_caller
from headway.systems.notifications.mail import MAX_ADDRESS, read_address
from headway.systems.notifications.notification import NAME, Channel
from headway.systems.notifications.records import (
    STOPPED,
    OptOut,
    Recipient,
    change_opt_outs,
    opt_outs_of,
)
from headway.systems.telephony.phone import Phone

MOST_DEVICES = 20
MOST_OPT_OUTS = 100

_OPT_OUT = re.compile(rf"(?:\*|{'|'.join(Channel)})(?::[a-z0-9][a-z0-9_.-]{{0,39}})?", re.ASCII)
_EMAIL = re.compile(r"[^@\s<>,;:\"\\]{1,64}@[^@\s<>,;:\"\\]{1,255}")
_WORD = r"[a-z0-9_+-]+(?:\.[a-z0-9_+-]+)*"
_ORDINARY = re.compile(rf"{_WORD}@{_WORD}", re.ASCII | re.IGNORECASE)


def _opt_out(text: str) -> str:
    if text != STOPPED and (_OPT_OUT.fullmatch(text) is None or text == "*"):
        message = f"{text[:60]!r} is not an opt-out"
        raise InvalidValue(
            message,
            hint=f'use a channel ({", ".join(Channel)}), "email:news" or "*:news"',
        )
    return text


def _hours(text: str) -> str:
    hours_spec(text)
    return text


def _email(text: str) -> str:
    if _EMAIL.fullmatch(text) is None:
        message = f"{text[:60]!r} is not an e-mail address"
        raise InvalidValue(message, hint="use for example ada@example.org, without a name")
    # The full check takes 0.2 ms, too long for imports, and accepts all ordinary addresses.
    if _ORDINARY.fullmatch(text) is not None and len(text) <= MAX_ADDRESS:
        return text
    fault = read_address(text)
    if isinstance(fault, str):
        message = f"{text[:60]!r} is not an e-mail address that can be sent to: {fault}"
        raise InvalidValue(
            message, hint="use for example ada@example.org, with the domain in its xn--… form"
        )
    return text


def _apprise(text: str) -> str:
    # The message omits the URL, which may contain a password.
    if not is_known(text):
        message = "it is not a URL that apprise supports"
        raise InvalidValue(message, hint="use for example ntfy://example.org/topic")
    return text


Device = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[\x21-\x7e]+$")]
Zone = Annotated[
    str,
    AfterValidator(lambda text: find_zone(text).key),
    Field(max_length=64, examples=["Europe/Berlin"]),
]
Email = Annotated[str, Field(max_length=320, examples=["ada@example.org"]), AfterValidator(_email)]
WebhookUrl = Annotated[str, Field(pattern=r"^https?://[^\s/?#]+[^\s]*$", max_length=2_000)]
AppriseUrl = Annotated[str, Field(min_length=1, max_length=1_000), AfterValidator(_apprise)]


class Preferences(Body):
    """A recipient's preferences, read when a notification is sent, not when it is created."""

    opt_out: Annotated[
        FailFastList[Annotated[str, AfterValidator(_opt_out)]], Field(max_length=MOST_OPT_OUTS)
    ] = Field(
        default=[],
        description="Opt-outs of a channel, or of a category in one channel or in all: sms, "
        "email:news, *:news.",
        examples=[["sms", "*:news"]],
    )
    quiet_hours: Annotated[str, AfterValidator(_hours)] | None = Field(
        default=None,
        description="Local times during which only urgent notifications are sent.",
        examples=["22:00-07:00"],
    )


class RecipientBody(NewNamedRecord):
    """A recipient to store."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"id": "ada", "email": "ada@example.org"}]}
    )

    tz: Zone = Field(default="UTC", description="IANA time zone of the quiet hours.")
    preferences: Preferences = Field(
        default=Preferences(), description="Preferences of the recipient."
    )
    devices: Annotated[FailFastList[Device], Field(max_length=MOST_DEVICES)] = Field(
        default=[], description="Device tokens for push; every device gets the notification."
    )
    email: Email | None = Field(default=None, description="E-mail address, without a name.")
    phone: Phone | None = Field(default=None, description="Phone number, in E.164 format.")
    webhook_url: WebhookUrl | None = Field(default=None, description="URL to which JSON is posted.")
    apprise: AppriseUrl | None = Field(default=None, description="An apprise URL.")


class RecipientChange(RecordChange):
    """Changes to a recipient; omitted fields stay unchanged."""

    clearable: ClassVar[frozenset[str]] = frozenset({"email", "phone", "webhook_url", "apprise"})
    model_config = ConfigDict(
        json_schema_extra={"examples": [{"preferences": {"opt_out": ["sms"]}}]}
    )

    name: PersonName | None = None
    tz: Zone | None = None
    preferences: Preferences | None = Field(
        default=None,
        description="New preferences, which replace all the old ones; `sms:STOP` stays until a "
        "START, or with a new number.",
    )
    devices: Annotated[FailFastList[Device], Field(max_length=MOST_DEVICES)] | None = None
    email: Email | None = Field(
        default=None, description="New e-mail address; null removes it, as for the fields below."
    )
    phone: Phone | None = None
    webhook_url: WebhookUrl | None = None
    apprise: AppriseUrl | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipientView:
    """A recipient.

    Attributes:
        id: id, as used in paths.
        tz: IANA time zone of the quiet hours.
        preferences: `opt_out` and `quiet_hours`.
        phone: phone number in E.164 format.
        webhook_url: URL to which JSON is posted.
        apprise: apprise URL. It may contain a password, so callers that cannot change it see only
            its beginning.
    """

    id: str
    name: str
    tz: str
    preferences: dict[str, Any]
    devices: tuple[str, ...]
    email: str | None
    phone: str | None
    webhook_url: str | None
    apprise: str | None
    version: int


class Recipients(Records[Recipient, RecipientBody]):
    """The recipients."""

    table = Recipient
    body = RecipientBody
    shape = RecipientView
    system = NAME
    needed: ClassVar[Sequence[str]] = ("id",)
    known: ClassVar[Sequence[str]] = tuple(RecipientChange.model_fields)
    parsers: ClassVar[Mapping[str, Callable[[str], object]]] = {
        "devices": split_by(r"[;\s|]+"),
        "preferences": json_of,
    }

    async def add(self, session: AsyncSession, body: RecipientBody, at: int) -> Recipient:
        """Add a recipient; the opt-outs of its addresses apply."""
        added = await super().add(session, body, at)
        await session.refresh(added, ["by_address"])
        return added

    async def change(
        self, session: AsyncSession, record: Recipient, values: dict[str, Any], at: int
    ) -> None:
        """Change a recipient; its new preferences revoke the unsubscriptions of the same address.

        A STOP is revoked by a START alone.
        """
        if "preferences" in values and values.get("email", record.email) == record.email:
            revoked = delete(OptOut).where(
                OptOut.address == func.lower(bindparam("address")),
                OptOut.opt_out.not_in((*values["preferences"]["opt_out"], STOPPED)),
            )
            await change_opt_outs(session, revoked, {"address": record.email})
        await super().change(session, record, values, at)
        await session.refresh(record, ["by_address", "version"])

    def _set(self, record: Recipient, values: dict[str, Any], at: int) -> bool:
        """Set the fields that differ; a STOP stays with its number and does not move to another."""
        outs = record.preferences.get("opt_out", ())
        moved = values.get("phone", record.phone) != record.phone
        if moved and "preferences" not in values and STOPPED in outs:
            kept = [one for one in outs if one != STOPPED]
            values = {**values, "preferences": {**record.preferences, "opt_out": kept}}
        return super()._set(record, values, at)

    def view(self, record: Recipient, caller: Caller) -> object:
        """Return the reply for a caller, with the opt-outs of the addresses."""
        shown = cast("RecipientView", super().view(record, caller))
        outs = opt_outs_of(record)
        return replace(shown, preferences={**shown.preferences, "opt_out": outs})

    def masked(self, record: Recipient) -> Mapping[str, object]:
        """Return only the beginning of the apprise URL, which may contain a password."""
        return {} if record.apprise is None else {"apprise": scheme_of(record.apprise)}


RECIPIENTS = Recipients()


ROUTES = router("system: notifications", operations="notify_", prefix="/recipients")

add_routes(
    ROUTES,
    RECIPIENTS,
    reach=check_caller,
    params=PageQuery,
    changed=RecipientChange,
    texts=RouteDescriptions(
        prefix="notify",
        example="ada",
        change="Change a recipient, from the very next send on.",
        remove="Remove a recipient; notifications that still wait for it fail.",
        imported="Import CSV with the column id, and optionally name, tz, preferences (JSON), "
        "devices, email, phone, webhook_url, apprise.\n\nRecipients that already exist are "
        "changed.",
    ),
)
