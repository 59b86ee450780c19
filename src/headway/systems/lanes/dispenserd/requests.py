"""What requests say: JSON whatever its Content-Type, read as leniently as clients rely on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from headway.core.errors import InvalidValue
from headway.core.job import DEFAULT_PRIORITY, MAX_PRIORITY
from headway.core.naming import check_name
from headway.server.strict_json import decode_bounded

DEFAULT_LANE = "main"
PREFIX = "dispenserd/"
"""Prefix of its lanes' names in the store, so that they collide with no other lane."""

Said = dict[str, object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Scheduling:
    """A job to be scheduled.

    Attributes:
        priority: smaller first.
    """

    message: str
    lane: str
    priority: int


def read_scheduling(body: bytes) -> Scheduling:
    """Read the body of a schedule.

    Raises:
        InvalidValue: there is no message, or a field is not what it must be.
    """
    said = _read(body)
    message = said.get("message")
    if message is None:
        text = "missing message"
        raise InvalidValue(text)
    if not isinstance(message, str):
        text = "message must be text"
        raise InvalidValue(text)
    priority = said.get("priority")
    if priority is None:
        priority = DEFAULT_PRIORITY
    is_whole = isinstance(priority, int) and not isinstance(priority, bool)
    if not is_whole or not 0 <= cast("int", priority) <= MAX_PRIORITY:
        text = f"priority must be a whole number from 0 to {MAX_PRIORITY}"
        raise InvalidValue(text)
    return Scheduling(message=message, lane=_lane(said), priority=cast("int", priority))


def read_lane(body: bytes) -> str:
    """Read the body of a receive; one that says nothing means the default lane.

    Raises:
        InvalidValue: the lane is not a name.
    """
    return _lane(_read(body))


def _lane(said: Said) -> str:
    lane = said.get("lane")
    if lane is None or lane == "":
        return DEFAULT_LANE
    if not isinstance(lane, str):
        text = "lane must be text"
        raise InvalidValue(text)
    check_name("lane", PREFIX + lane)
    return lane


def _read(body: bytes) -> Said:
    """The fields of a body; none if it is no JSON object, as clients send `[]` or nothing at all.

    The case of a field's name does not matter.

    Raises:
        PayloadTooLarge: it has too many values.
    """
    try:
        said = decode_bounded(body)
    except InvalidValue:
        return {}
    if not isinstance(said, dict):
        return {}
    return {name.lower(): value for name, value in cast("Said", said).items()}
