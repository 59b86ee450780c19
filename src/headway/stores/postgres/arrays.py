"""Lists as binary arrays of PostgreSQL, packed here because a call per value would be slow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from struct import Struct, pack
from typing import cast

from psycopg import adapt, pq
from psycopg.abc import Buffer

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


class _ListDumper(adapt.Dumper):
    format = pq.Format.BINARY


class NumbersDumper(_ListDumper):
    """Packs `Numbers`."""

    oid = 1016

    def dump(self, obj: Numbers) -> Buffer | None:
        """Pack a list."""
        if not obj:
            return _NO_NUMBERS
        size = len(obj)
        values = chain.from_iterable(zip(repeat(8, size), obj, strict=True))
        return pack(_HEAD + "iq" * size, 1, 0, _INT8, size, 1, *values)


class FlagsDumper(_ListDumper):
    """Packs `Flags`."""

    oid = 1000

    def dump(self, obj: Flags) -> Buffer | None:
        """Pack a list."""
        size = len(obj)
        values = chain.from_iterable(zip(repeat(1, size), obj, strict=True))
        return _head(size, _BOOL) + pack("!" + "i?" * size, *values)


class MaybeNumbersDumper(_ListDumper):
    """Packs `MaybeNumbers`."""

    oid = 1016

    def dump(self, obj: MaybeNumbers) -> Buffer | None:
        """Pack a list."""
        parts = [_NULL if one is None else pack("!iq", 8, one) for one in obj]
        return _head(len(obj), _INT8, nulls=True) + b"".join(parts)


class IdsDumper(_ListDumper):
    """Packs `Ids`."""

    oid = 2951

    def dump(self, obj: Ids) -> Buffer | None:
        """Pack a list."""
        if not obj:
            return _head(0, _UUID)
        # Each id is preceded by its length.
        rows = bytes.fromhex(_SIXTEEN + _SIXTEEN.join(obj).replace("-", ""))
        return _head(len(obj), _UUID) + rows


class BlobsDumper(_ListDumper):
    """Packs `Blobs`."""

    oid = 1001

    def dump(self, obj: Blobs) -> Buffer | None:
        """Pack a list."""
        return _pack_parts(obj, _BYTEA)


class TextsDumper(_ListDumper):
    """Packs `Texts`."""

    oid = 1009

    def dump(self, obj: Texts) -> Buffer | None:
        """Pack a list."""
        if None in obj:
            return _pack_parts([None if one is None else one.encode() for one in obj], _TEXT)
        return _pack_parts(list(map(str.encode, cast("tuple[str, ...]", obj))), _TEXT)


def _pack_parts(parts: Sequence[bytes | None], element: int) -> bytes:
    nulls = None in parts
    if nulls:
        packed = [_NULL if one is None else _LENGTH.pack(len(one)) + one for one in parts]
    else:
        # Without Python code per element.
        known = cast("Sequence[bytes]", parts)
        packed = chain.from_iterable(zip(map(_LENGTH.pack, map(len, known)), known, strict=True))
    return _head(len(parts), element, nulls=nulls) + b"".join(packed)


DUMPERS: tuple[tuple[type, type[adapt.Dumper]], ...] = (
    (Numbers, NumbersDumper),
    (MaybeNumbers, MaybeNumbersDumper),
    (Flags, FlagsDumper),
    (Texts, TextsDumper),
    (Blobs, BlobsDumper),
    (Ids, IdsDumper),
)
"""The dumpers to register with a connection."""


def ids_of(ids: Iterable[str]) -> Ids:
    """Return the valid job ids, each once, in their order."""
    return Ids(filter(is_job_id, dict.fromkeys(ids)))
