"""Values on their way to a script: MessagePack as the Lua inside Redis reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum
from functools import cache, lru_cache
from typing import Any, cast

import msgspec

from headway.contract.definitions import EntrySpec
from headway.core.gates.spec import GateUse
from headway.core.job import JobPolicy, NewJob
from headway.core.timetable.schedule import At, Cron, Every

encode: Callable[[object], bytes] = msgspec.msgpack.Encoder().encode

_SHORT, _BYTE, _WORD = 32, 256, 65_536


def text_of(data: bytes) -> msgspec.Raw:
    """Bytes as they are, which go as text: Redis knows no other.

    Source: lua_cmsgpack.c of Redis, which reads no `bin` of MessagePack.
    """
    size = len(data)
    if size < _SHORT:
        return msgspec.Raw(b"%c%b" % (0xA0 | size, data))
    if size < _BYTE:
        return msgspec.Raw(b"\xd9%c%b" % (size, data))
    if size < _WORD:
        return msgspec.Raw(b"\xda%b%b" % (size.to_bytes(2), data))
    return msgspec.Raw(b"\xdb%b%b" % (size.to_bytes(4), data))


def bytes_of(text: msgspec.Raw) -> bytes:
    """The bytes that came back as text."""
    data = bytes(text)
    first = data[0]
    if first < 0xC0:
        return data[1:]
    return data[2 if first == 0xD9 else 3 if first == 0xDA else 5 :]


def named(record: object) -> dict[str, Any]:
    """A record by the names of its fields; those that are None are left out.

    What is in them is turned likewise: enums to their values, dates to ISO text, tuples to
    arrays, bytes to text.
    """
    found: dict[str, Any] = {}
    for name in _names(type(record)):
        value = getattr(record, name)
        if value is not None:
            found[name] = plain(value)
    if isinstance(record, EntrySpec):
        # The kind of schedule is told by where it stands.
        found[_place_of(record)] = found.pop("schedule")
    return found


def plain(value: object) -> object:
    """A value of a record, as it is sent."""
    if isinstance(value, tuple | list):
        return [plain(one) for one in cast("list[object]", value)]
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in cast("Mapping[str, object]", value).items()}
    if isinstance(value, JobPolicy):
        return packed_policy(value)
    return named(value) if is_dataclass(value) else _scalar(value)


def _scalar(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return text_of(value)
    return value.isoformat() if isinstance(value, date) else value


@lru_cache(maxsize=1024)
def packed_policy(policy: JobPolicy) -> msgspec.Raw:
    """A policy, which many jobs share."""
    return msgspec.Raw(encode(named(policy)))


@lru_cache(maxsize=1024)
def packed_gates(gates: tuple[GateUse, ...]) -> msgspec.Raw:
    """The gates of a job, which others may share."""
    return msgspec.Raw(encode([named(use) for use in gates]))


def new_job(job: NewJob) -> dict[str, Any]:
    """A job by the names of its fields."""
    return named(job)


@cache
def _names(kind: type) -> tuple[str, ...]:
    assert is_dataclass(kind)  # noqa: S101  (records are nothing else)
    return tuple(field.name for field in fields(kind))


def _place_of(spec: EntrySpec) -> str:
    places: dict[type, str] = {Cron: "cron", Every: "every", At: "at"}
    return places[type(spec.schedule)]
