"""Lists as binary arrays of PostgreSQL, packed here because a call per value would be slow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from struct import Struct, pack
from typing import Any, cast

from psycopg import adapt, pq

from headway.core.check import is_job_id

_INT8, _TEXT, _BYTEA, _UUID, _BOOL = 20, 25, 17, 2950, 16
_HEAD = "!iIIii"
_HEADER = Struct(_HEAD)
_LENGTH = Struct("!i")
_NULL = _LENGTH.pack(-1)
_SIXTEEN = _LENGTH.pack(16).hex()


class Numbers(tuple[int, ...]):
    """Whole numbers, as bigint[]."""

    __slots__ = ()


class Texts(tuple[str | None, ...]):
    """Texts, as text[]."""

    __slots__ = ()


class Blobs(tuple[bytes | None, ...]):
    """Bytes, as bytea[]."""

    __slots__ = ()


class Ids(tuple[str, ...]):
    """Canonical texts of UUIDs, as uuid[]."""

    __slots__ = ()


class Flags(tuple[bool, ...]):
    """Booleans, as boolean[]."""

    __slots__ = ()


class MaybeNumbers(tuple[int | None, ...]):
    """Whole numbers or None, as bigint[]."""

    __slots__ = ()


def _head(size: int, element: int, *, nulls: bool = False) -> bytes:
    if not size:
        return pack("!iII", 0, 0, element)
    return _HEADER.pack(1, int(nulls), element, size, 1)


_NO_NUMBERS = _head(0, _INT8)


def _pack_numbers(numbers: Numbers) -> bytes:
    if not numbers:
        return _NO_NUMBERS
    size = len(numbers)
    values = chain.from_iterable(zip(repeat(8, size), numbers, strict=True))
    return pack(_HEAD + "iq" * size, 1, 0, _INT8, size, 1, *values)


def _pack_flags(flags: Flags) -> bytes:
    size = len(flags)
    values = chain.from_iterable(zip(repeat(1, size), flags, strict=True))
    return _head(size, _BOOL) + pack("!" + "i?" * size, *values)


def _pack_maybe_numbers(numbers: MaybeNumbers) -> bytes:
    parts = [_NULL if one is None else pack("!iq", 8, one) for one in numbers]
    return _head(len(numbers), _INT8, nulls=True) + b"".join(parts)


def _pack_ids(ids: Ids) -> bytes:
    if not ids:
        return _head(0, _UUID)
    # Each id is preceded by its length.
    rows = bytes.fromhex(_SIXTEEN + _SIXTEEN.join(ids).replace("-", ""))
    return _head(len(ids), _UUID) + rows


def _pack_blobs(blobs: Blobs) -> bytes:
    return _pack_parts(blobs, _BYTEA)


def _pack_texts(texts: Texts) -> bytes:
    if None in texts:
        return _pack_parts([None if one is None else one.encode() for one in texts], _TEXT)
    return _pack_parts(list(map(str.encode, cast("tuple[str, ...]", texts))), _TEXT)


def _pack_parts(parts: Sequence[bytes | None], element: int) -> bytes:
    nulls = None in parts
    if nulls:
        packed = [_NULL if one is None else _LENGTH.pack(len(one)) + one for one in parts]
    else:
        # Without Python code per element.
        known = cast("Sequence[bytes]", parts)
        packed = chain.from_iterable(zip(map(_LENGTH.pack, map(len, known)), known, strict=True))
    return _head(len(parts), element, nulls=nulls) + b"".join(packed)


def _dumper(oid: int, dump: Callable[[Any], bytes]) -> type[adapt.Dumper]:
    # A static method, so that packing a list takes one call.
    members = {"format": pq.Format.BINARY, "oid": oid, "dump": staticmethod(dump)}
    return type("ListDumper", (adapt.Dumper,), members)


DUMPERS: tuple[tuple[type, type[adapt.Dumper]], ...] = (
    (Numbers, _dumper(1016, _pack_numbers)),
    (MaybeNumbers, _dumper(1016, _pack_maybe_numbers)),
    (Flags, _dumper(1000, _pack_flags)),
    (Texts, _dumper(1009, _pack_texts)),
    (Blobs, _dumper(1001, _pack_blobs)),
    (Ids, _dumper(2951, _pack_ids)),
)
"""The dumpers to register with a connection."""


def ids_of(ids: Iterable[str]) -> Ids:
    """Return the valid job ids, each once, in their order."""
    return Ids(filter(is_job_id, dict.fromkeys(ids)))
