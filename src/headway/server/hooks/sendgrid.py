"""SendGrid: mail events, several in one webhook.

Source: SendGrid, "Event Webhook Reference", "Getting started with the Event Webhook security".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import msgspec
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.hashes import SHA256

from headway.contract.signals import Decided, Signal, SignalKind
from headway.core.errors import InvalidValue
from headway.server.hooks.request import (
    TOLERANCE_MS,
    HookRequest,
    check_fresh,
    is_object,
    is_signed,
    refuse,
    strict_base64,
)
from headway.server.hooks.signals import (
    MAX_REASON,
    StatusMeaning,
    bounded_text,
    digest_id,
    event_id,
)

SIGNATURE = "x-twilio-email-event-webhook-signature"
TIMESTAMP = "x-twilio-email-event-webhook-timestamp"
REF = "headway_ref"
"""Custom argument of a mail with the reference of its job."""

EVENTS: Mapping[str, StatusMeaning] = {
    "processed": StatusMeaning(kind=SignalKind.NOTE),
    "deferred": StatusMeaning(kind=SignalKind.NOTE),
    "delivered": StatusMeaning(noted=True),
    "bounce": StatusMeaning(decided=Decided.DEAD, noted=True),
    "dropped": StatusMeaning(decided=Decided.DEAD, noted=True),
    "open": StatusMeaning(kind=SignalKind.NOTE),
    "click": StatusMeaning(kind=SignalKind.NOTE),
    "spamreport": StatusMeaning(kind=SignalKind.NOTE),
    "unsubscribe": StatusMeaning(kind=SignalKind.NOTE),
    "group_unsubscribe": StatusMeaning(kind=SignalKind.NOTE),
    "group_resubscribe": StatusMeaning(kind=SignalKind.NOTE),
}

_MOST_SIGNATURE = 200
# In an event, the mail's route through SendGrid follows the message id; the API returned only the
# id.
_WAY = re.compile(r"\.(?:filter|recv).*\Z", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class MailEvent:
    """One event of a mail.

    Attributes:
        status: one of `EVENTS`.
        ref: the custom argument `headway_ref`; None if the mail has none.
        message_id: the id that SendGrid returned when it accepted the mail.
        event: id of the event; the same each time the event is sent.
        reason: the status, followed by the response of the receiving server.
    """

    status: str
    ref: str | None
    message_id: str | None
    event: str
    reason: str
    body: Mapping[str, object]


@dataclass(frozen=True, kw_only=True, slots=True)
class SendGrid:
    """SendGrid's event webhooks.

    A job is found by the custom argument `headway_ref` of its mail, or else by the `X-Message-Id`
    that SendGrid returned, which the job passes as `known_as`.

    Attributes:
        public_keys: P-256 keys; several while a key is replaced.
        tolerance_ms: maximum difference between a timestamp and now.
        only_refs: ignore events without `headway_ref`, for an account that is shared with other
            senders.
    """

    public_keys: Sequence[EllipticCurvePublicKey]
    tolerance_ms: int = TOLERANCE_MS
    only_refs: bool = False

    def verify(self, request: HookRequest, now: int) -> None:
        encoded, timestamp = request.needed(SIGNATURE), request.needed(TIMESTAMP)
        signature = strict_base64(encoded) if len(encoded) <= _MOST_SIGNATURE else None
        signed = timestamp.encode("utf-8", "replace") + request.body
        algorithm = ECDSA(SHA256())
        if signature is None or not any(
            is_signed(key.verify, signature, signed, algorithm) for key in self.public_keys
        ):
            refuse()
        check_fresh(timestamp, now, self.tolerance_ms)

    def signals(self, request: HookRequest) -> Sequence[Signal]:
        return [one for event in read_events(request) for one in self._signals_of(event)]

    def _signals_of(self, event: MailEvent) -> list[Signal]:
        key = event.ref or (None if self.only_refs else event.message_id)
        if key is None:
            return []
        return EVENTS[event.status].signals(
            key, event.event, status=event.status, body=event.body, reason=event.reason
        )


def read_events(request: HookRequest) -> Sequence[MailEvent]:
    """Return the events of a verified webhook in order, without those of unknown types.

    Raises:
        InvalidValue: the body is not a list of events.
    """
    events = request.json()
    if not isinstance(events, list):
        message = "the webhook is not a list of events"
        raise InvalidValue(message)
    rows = cast("list[object]", events)
    return [one for row in rows if is_object(row) and (one := _event(row)) is not None]


def _event(body: Mapping[str, object]) -> MailEvent | None:
    status, ref, mail = body.get("event"), body.get(REF), body.get("sg_message_id")
    if not isinstance(status, str) or status not in EVENTS:
        return None
    own = body.get("sg_event_id")
    if not isinstance(own, str) or not own:
        own = digest_id(msgspec.json.encode(body, order="sorted"))
    details = body.get("reason") or body.get("response")
    reason = f"{status}, {details}" if isinstance(details, str) else status
    return MailEvent(
        status=status,
        ref=ref if isinstance(ref, str) and ref else None,
        message_id=_WAY.sub("", mail) if isinstance(mail, str) else None,
        event=event_id("sendgrid", own),
        reason=bounded_text(reason, MAX_REASON),
        body=body,
    )
