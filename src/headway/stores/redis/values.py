"""Encode and decode values of scripts, as MessagePack that Lua in Redis supports."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from datetime import date
from enum import Enum
from functools import lru_cache
from typing import Any, cast

import msgspec

from headway.contract.definitions import EntrySpec
from headway.contract.signals import Signal
from headway.core.gates.spec import GateUse
from headway.core.job import JobPolicy
from headway.core.records import field_names
from headway.core.timetable.schedule import At, Cron, Every
from headway.stores.ledger.packing import decode_signal, encode_json
from headway.stores.ledger.rows import SignalRow

encode: Callable[[object], bytes] = msgspec.msgpack.Encoder().encode

_SHORT, _BYTE, _WORD = 32, 256, 65_536
_decode = msgspec.msgpack.Decoder().decode
_NUMBERS = {
    0xCA: struct.Struct(">f"),
    0xCB: struct.Struct(">d"),
    0xCC: struct.Struct(">B"),
    0xCD: struct.Struct(">H"),
    0xCE: struct.Struct(">I"),
    0xCF: struct.Struct(">Q"),
    0xD0: struct.Struct(">b"),
    0xD1: struct.Struct(">h"),
    0xD2: struct.Struct(">i"),
    0xD3: struct.Struct(">q"),
}
_PLAIN = {0xC0: None, 0xC2: False, 0xC3: True}
_TEXT = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_ARRAY = {0xDC: 2, 0xDD: 4}
_MAP = {0xDE: 2, 0xDF: 4}


def text_of(data: bytes) -> msgspec.Raw:
    """Encode bytes unchanged as text, because Redis supports no binary type.

    Source: lua_cmsgpack.c of Redis, which does not read MessagePack's `bin`.
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
    """Decode text to the bytes that it contains."""
    data = bytes(text)
    first = data[0]
    if first < 0xC0:
        return data[1:]
    return data[2 if first == 0xD9 else 3 if first == 0xDA else 5 :]


def named(record: object) -> dict[str, Any]:
    """Return a record as a map of its fields, without those that are None.

    Values are converted recursively: enums to their values, dates to ISO text, tuples to arrays,
    bytes to text.
    """
    found: dict[str, Any] = {}
    for name in field_names(type(record)):
        value = getattr(record, name)
        if value is not None:
            found[name] = plain(value)
    if isinstance(record, EntrySpec):
        # The name of the field shows the kind of schedule.
        found[_place_of(record)] = found.pop("schedule")
    return found


def plain(value: object) -> object:
    """Return a record's value in the form in which it is sent."""
    if isinstance(value, tuple | list):
        return [plain(one) for one in cast("list[object]", value)]
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in cast("Mapping[str, object]", value).items()}
    if isinstance(value, JobPolicy):
        return packed_policy(value)
    return named(value) if field_names(type(value)) else _scalar(value)


def _scalar(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return text_of(value)
    return value.isoformat() if isinstance(value, date) else value


@lru_cache(maxsize=1024)
def packed_policy(policy: JobPolicy) -> msgspec.Raw:
    """Encode a policy, cached because many jobs share it."""
    return msgspec.Raw(encode(named(policy)))


@lru_cache(maxsize=1024)
def packed_gates(gates: tuple[GateUse, ...]) -> msgspec.Raw:
    """Encode a job's gates, cached because other jobs may share them."""
    return msgspec.Raw(encode([named(use) for use in gates]))


def _place_of(spec: EntrySpec) -> str:
    places: dict[type, str] = {Cron: "cron", Every: "every", At: "at"}
    return places[type(spec.schedule)]


def decode_untyped(data: msgspec.Raw) -> object:
    """Decode MessagePack as written by Redis.

    Returns:
        Maps, lists, texts, numbers. Texts that are not UTF-8, such as arguments that are not JSON,
        keep their bytes by `surrogateescape`.
    """
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Reader(bytes(data)).value()


class _Reader:
    """A slow decoder, for the rare reply with a text that is not UTF-8."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take(self, size: int) -> bytes:
        data = self._data[self._at : self._at + size]
        self._at += size
        return data

    def _size(self, size: int) -> int:
        return int.from_bytes(self._take(size))

    def _scalar(self, first: int) -> object:
        if first in _PLAIN:
            return _PLAIN[first]
        if first in _NUMBERS:
            number = _NUMBERS[first]
            return number.unpack(self._take(number.size))[0]
        return first if first < 0x80 else first - 0x100

    def value(self) -> object:
        """Return the next value."""
        first = self._size(1)
        if first < 0x80 or first >= 0xE0 or first in _PLAIN or first in _NUMBERS:
            return self._scalar(first)
        if first in _TEXT or 0xA0 <= first < 0xC0:
            size = self._size(_TEXT[first]) if first in _TEXT else first & 0x1F
            return self._take(size).decode("utf-8", "surrogateescape")
        if first in _ARRAY or 0x90 <= first < 0xA0:
            size = self._size(_ARRAY[first]) if first in _ARRAY else first & 0x0F
            return [self.value() for _ in range(size)]
        size = self._size(_MAP[first]) if first in _MAP else first & 0x0F
        return {self.value(): self.value() for _ in range(size)}


def signal_to_script(payload: bytes) -> bytes:
    """Convert an exported signal to the form that scripts store, unless it is no longer kept.

    Raises:
        msgspec.DecodeError: it is not a signal.
    """
    kept = payload not in {b"", SignalRow.LATE}
    return encode(named(decode_signal(payload))) if kept else payload


def signal_from_script(payload: bytes) -> bytes:
    """Convert a signal stored by a script to the ledger's form, unless it is no longer kept."""
    if payload in {b"", SignalRow.LATE}:
        return payload
    reply = cast("dict[str, Any]", decode_untyped(msgspec.Raw(payload)))
    if "body" in reply:
        reply["body"] = reply["body"].encode("utf-8", "surrogateescape")
    return encode_json(msgspec.convert(reply, Signal))
