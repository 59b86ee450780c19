"""Channels: how a user is told things."""

from __future__ import annotations

from typing import Annotated

from apprise import Apprise
from pydantic import AfterValidator, Field

from headway.core.errors import InvalidValue
from headway.systems.telephony.phone import check_phone

PHONES = ("text", "call")
"""What stands before a telephone number."""
MAX_CHANNEL = 1_000


def _channel(text: str) -> str:
    way, _, rest = text.partition(":")
    if way in PHONES:
        return f"{way}:{check_phone('it', rest)}"
    # What is wrong with it is not told: it may hold a password.
    if Apprise.instantiate(text) is None:  # pyright: ignore[reportUnknownMemberType]  (its dicts are bare)
        message = "it is neither text:<phone>, call:<phone>, nor a URL that apprise knows"
        raise InvalidValue(message, hint="such as text:+14155550100 or mailto://…")
    return text


Channel = Annotated[
    str,
    Field(min_length=1, max_length=MAX_CHANNEL, examples=["text:+14155550100"]),
    AfterValidator(_channel),
]
"""A channel: `text:<phone>`, `call:<phone>`, or a URL of apprise."""


def masked(channel: str) -> str:
    """A channel for those who may not know its secrets: of a URL only what it begins with."""
    way, _, _ = channel.partition(":")
    return channel if way in PHONES else f"{way}://…"
