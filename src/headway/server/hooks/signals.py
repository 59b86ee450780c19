"""Signals from outside: parsed from JSON, or mapped from the statuses of a provider."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any, Protocol, cast

import msgspec
from pydantic import Field, ValidationError

from headway.contract.signals import Decided, Signal, SignalKind, SignalReply, SignalResult
from headway.contract.store import Store
from headway.core.errors import InvalidValue
from headway.core.job import MAX_RESULT
from headway.core.naming import MAX_NAME, check_name
from headway.runtime.faults import faults, sentence
from headway.runtime.signals import Final, SignalOptions, read_signal
from headway.server.bodies.base import Body, Name, Span, Text, without_nul
from headway.server.hooks.request import HookRequest

VERBS = ("final", "progress", "note")
"""The fields of which a signal has exactly one."""


class SignalBody(Body):
    """A signal, with exactly one of `final`, `progress` and `note`."""

    event: Name = Field(
        description="Id of the event; each event is applied once.", examples=["evt-7"]
    )
    final: Final | None = Field(default=None, description="Settles the job with this outcome.")
    progress: bool = Field(
        default=False, description="Whether this reports progress: the work continues."
    )
    note: Name | None = Field(
        default=None, description="Label to record; also accepted after the end of the job."
    )
    extend: Span | None = Field(
        default=None, description="For `progress`: new time from now to the deadline."
    )
    body: Any = Field(default=None, description="Data to record: any JSON.")
    reason: Text = Field(
        default="", description="Reason for a note, or for `final` with dead, retry or declined."
    )
    after: Span | None = Field(
        default=None, description="For `final` with retry: replaces the policy's delay."
    )
    candidate: str = Field(
        default="",
        max_length=MAX_NAME,
        description="Candidate who answers an offer (default: the one whose turn it is).",
    )

    offer: bool = Field(
        default=False,
        description="Whether this concerns only an offer; it is late once the offer has been "
        "accepted.",
    )
    known_as: str = Field(
        default="",
        max_length=MAX_NAME,
        description="Another key, such as the provider's id, under which signals find the run from "
        "now on.",
    )

    def signal(self, key: str) -> Signal:
        """Return the signal for a key.

        Raises:
            InvalidValue: the signal does not have exactly one of `VERBS`, or a field or the key is
                invalid.
            PayloadTooLarge: the body is above the limit.
        """
        check_own_key(key, self.known_as)
        options: SignalOptions = {
            "progress": self.progress,
            "body": self.body,
            "reason": self.reason,
            "candidate": without_nul(self.candidate),
            "offer": self.offer,
            "known_as": without_nul(self.known_as),
        }
        if self.final is not None:
            options["final"] = self.final
        if self.note is not None:
            options["note"] = self.note
        if self.extend is not None:
            options["extend"] = timedelta(milliseconds=self.extend)
        if self.after is not None:
            options["after"] = timedelta(milliseconds=self.after)
        return read_signal(key, self.event, options)


_REFERENCE = re.compile(r"([0-9a-f-]{36})(?::[0-9]{1,9})?", re.ASCII)


def job_of(key: str) -> str | None:
    """Return the job that a signal key refers to as `id` or `id:run`; None for any other key."""
    found = _REFERENCE.fullmatch(key)
    return None if found is None else found[1]


def check_own_key(of: str, key: str) -> None:
    """Check that a key to be added to a run is not the reference of another job.

    Otherwise signals of that job, including those from its signed URLs, would find this run.

    Args:
        of: an existing key of the run, such as its job's id.

    Raises:
        InvalidValue: the key is another job's reference.
    """
    if job_of(key) not in {None, job_of(of)}:
        message = f"the key {key!r} is the reference of another job"
        raise InvalidValue(message, hint="use the provider's id, or the run's own reference")


def signal_of(key: str, fields: Mapping[str, object]) -> Signal:
    """Build a signal from fields that were not received as the JSON body of a signal request.

    Raises:
        InvalidValue: a field is invalid; the message names the field and what is allowed.
    """
    given = dict(fields)
    try:
        return SignalBody.model_validate(given).signal(key)
    except ValidationError as error:
        found = faults(cast("list[dict[str, Any]]", error.errors(include_url=False)), given)
        message = f"the signal: {sentence(found)}"
        raise InvalidValue(message) from None


MAX_REASON = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class StatusMeaning:
    """How a provider's status is mapped to signals.

    Attributes:
        noted: for a final status: whether to add a note as well, because the job may have ended
            before.
    """

    kind: SignalKind = SignalKind.FINAL
    decided: Decided = Decided.SUCCEEDED
    noted: bool = False

    def signals(
        self, key: str, event: str, *, status: str, body: Mapping[str, object], reason: str = ""
    ) -> list[Signal]:
        """Return the signals for a key, in the order to send them; empty if the key is invalid."""
        try:
            check_name("key", key)
        except InvalidValue:
            return []
        label = bounded_text(status.upper().replace("-", "_"))
        bounded = bounded_text(reason, MAX_REASON)
        note = Signal(
            key=key, event=f"{event}:note", kind=SignalKind.NOTE, label=label, reason=bounded
        )
        if self.kind is SignalKind.NOTE:
            return [note]
        main = Signal(
            key=key,
            event=f"{event}:{self.kind}",
            kind=self.kind,
            decided=self.decided,
            body=_encoded(body),
            reason="" if self.decided is Decided.SUCCEEDED else bounded,
        )
        return [note, main] if self.noted else [main]


def bounded_text(text: str, most: int = MAX_NAME) -> str:
    """Remove NUL characters from a text and truncate it, so that every store accepts it."""
    return text.replace("\0", "")[:most]


def event_id(*parts: str) -> str:
    """Build the id of an event from the parts that identify it."""
    # The lengths keep ("a:b", "c") and ("a", "b:c") apart.
    whole = ":".join(parts)
    if len(whole) <= MAX_NAME - 16 and "\0" not in whole and whole.count(":") == len(parts) - 1:
        return whole
    counted = "".join(f"{len(part)}:{part}" for part in parts)
    return digest_id(counted.encode())


def digest_id(data: bytes) -> str:
    """Build the id of an event from its content."""
    return f"sha256:{sha256(data).hexdigest()}"


def _encoded(body: Mapping[str, object]) -> bytes | None:
    data = msgspec.json.encode(dict(body))
    return data if len(data) <= MAX_RESULT else None


AT_ONCE = 16


async def deliver(store: Store, signals: Sequence[Signal]) -> list[SignalReply]:
    """Apply signals: in order for each key, and for several keys concurrently.

    Returns:
        The replies, in the order of the signals.

    Raises:
        StoreError: some signals were not applied, or their result is unknown; it is safe to send
            all of them again.
    """
    keys: dict[str, list[int]] = {}
    for place, one in enumerate(signals):
        keys.setdefault(one.key, []).append(place)
    replies = [SignalReply(answer=SignalResult.KEPT)] * len(signals)
    gate = asyncio.Semaphore(AT_ONCE)

    async def send(places: Sequence[int]) -> None:
        async with gate:
            for place in places:
                replies[place] = await store.signal(signals[place])

    if len(keys) <= 1:
        await send(range(len(signals)))
        return replies
    # Without cancelling the others on an error: a repeated signal has no effect, a missing one
    # is late.
    ends = await asyncio.gather(*map(send, keys.values()), return_exceptions=True)
    for end in ends:
        if end is not None:
            raise end
    return replies


Reading = Callable[[HookRequest], Sequence[Signal]]
"""Returns the signals of a verified webhook; empty if it concerns no job.

It must return the same event ids for the same webhook: they make a repeated webhook idempotent.
"""


class WebhookProvider(Protocol):
    """A sender of webhooks: how they are verified, and which signals they contain."""

    def verify(self, request: HookRequest, now: int) -> None:
        """Verify the signature of a webhook.

        Args:
            now: in ms UTC.

        Raises:
            Unauthenticated: the webhook is not signed, not by the provider, or not recently.
        """
        ...

    def signals(self, request: HookRequest) -> Sequence[Signal]:
        """Return the signals of a verified webhook.

        Raises:
            InvalidValue: the webhook is malformed.
        """
        ...
