"""A signal as it is said over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, cast

from pydantic import Field, ValidationError

from headway.contract.signals import Signal
from headway.core.errors import InvalidValue
from headway.core.naming import MAX_NAME
from headway.runtime.signals import Final, SignalOptions, read_signal
from headway.server.bodies.base import Body, Name, Span, Text
from headway.server.replies.faults import faults, sentence

VERBS = ("final", "progress", "note")
"""Of these, a signal says exactly one."""


class SignalBody(Body):
    """What a signal says: exactly one of `final`, `progress` and `note`."""

    event: Name = Field(description="The event's id; each is applied once.", examples=["evt-7"])
    final: Final | None = Field(default=None, description="Settles the job with this outcome.")
    progress: bool = Field(default=False, description="The work goes on.")
    note: Name | None = Field(
        default=None, description="A label for the record; also after the end."
    )
    extend: Span | None = Field(
        default=None, description="Of a progress: the new time from now to the deadline."
    )
    body: Any = Field(default=None, description="For the record: any JSON.")
    reason: Text = Field(default="", description="Of a final dead, retry or declined; of a note.")
    after: Span | None = Field(
        default=None, description="Of a final retry: replaces the policy's delay."
    )
    candidate: str = Field(
        default="",
        max_length=MAX_NAME,
        description="Who answers an offer; else the candidate whose turn it is.",
    )

    offer: bool = Field(
        default=False, description="It is about an offer alone: late once that was accepted."
    )
    known_as: str = Field(
        default="",
        max_length=MAX_NAME,
        description="A key, such as the provider's id, under which signals find the run from now "
        "on.",
    )

    def signal(self, key: str) -> Signal:
        """Return the signal for a key.

        Raises:
            InvalidValue: it says nothing or too much, or the key is unusable.
            PayloadTooLarge: the body is above the limit.
        """
        options: SignalOptions = {
            "progress": self.progress,
            "body": self.body,
            "reason": self.reason,
            "candidate": self.candidate.replace("\0", "\ufffd"),
            "offer": self.offer,
            "known_as": self.known_as.replace("\0", "\ufffd"),
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


def signal_of(key: str, fields: Mapping[str, object]) -> Signal:
    """Return the signal that fields say which came by another way than as a JSON body.

    Raises:
        InvalidValue: they are none; the message names the field and what is allowed.
        PayloadTooLarge: the body is above the limit.
    """
    said = dict(fields)
    try:
        return SignalBody.model_validate(said).signal(key)
    except ValidationError as error:
        found = faults(cast("list[dict[str, Any]]", error.errors(include_url=False)), said)
        message = f"the signal: {sentence(found)}"
        raise InvalidValue(message) from None
