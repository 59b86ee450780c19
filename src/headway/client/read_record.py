"""Records read: what a server tells, as the records of the contract."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from headway.core.errors import StoreUnavailable

Record = TypeVar("Record")
Reader = Callable[[Any], Any]

_encode = msgspec.json.Encoder().encode


def read_record(kind: type[Record], said: object) -> Record:
    """A record that a server told.

    Args:
        kind: a dataclass or named tuple of the contract.
        said: its fields, as JSON says them. Fields that the record lacks are passed over, for the
            server may be newer; fields that are not said take their defaults.

    Returns:
        The record.

    Raises:
        StoreUnavailable: it cannot be read as one: the server is of another time, or is none.
    """
    try:
        return cast("Record", _reader(kind)(said))
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        message = f"the server's {kind.__name__} cannot be read: {error}"
        raise StoreUnavailable(message, hint="use one version for server and client") from None


@cache
def _reader(hint: Any) -> Reader:  # noqa: ANN401, PLR0911  (one line for each sort of type)
    if hint is bytes:
        return _json
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint
    if isinstance(hint, type) and (hasattr(hint, "_fields") or _is_dataclass(hint)):
        return _RecordReader(cast("type[Any]", hint))
    origin, args = get_origin(hint), get_args(hint)
    if origin is Union or origin is types.UnionType:
        return _union(args)
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        each = _Later(args[0])
        return lambda said: tuple(map(each, said))
    if origin is tuple:
        readers = tuple(map(_Later, args))
        return lambda said: tuple(one(part) for one, part in zip(readers, said, strict=True))
    if origin is list:
        each = _Later(args[0])
        return lambda said: list(map(each, said))
    if origin in {dict, Mapping} or getattr(origin, "__name__", "") == "Mapping":
        value = _Later(args[1])
        return lambda said: {name: value(one) for name, one in said.items()}
    if origin is Literal or hint in {int, str, bool, float, object, Any}:
        return _as_it_is
    message = f"no way to read {hint}"
    raise TypeError(message)


class _Later:
    """The reader of a type, made when it is first needed: a record may hold its own kind."""

    def __init__(self, hint: Any) -> None:  # noqa: ANN401  (any type)
        self._hint = hint
        self._read: Reader | None = None

    def __call__(self, said: object) -> object:
        if self._read is None:
            self._read = _reader(self._hint)
        return self._read(said)


class _RecordReader:
    """Reads one kind of record."""

    def __init__(self, kind: type[Any]) -> None:
        self._kind = kind
        self._fields = {name: _Later(hint) for name, hint in get_type_hints(kind).items()}

    def __call__(self, said: Mapping[str, object]) -> object:
        known = {name: read(said[name]) for name, read in self._fields.items() if name in said}
        return self._kind(**known)


def _is_dataclass(kind: object) -> bool:
    return is_dataclass(kind)


def _union(args: tuple[Any, ...]) -> Reader:
    kinds = [one for one in args if one is not type(None)]
    if len(kinds) == 1:
        read = _Later(kinds[0])
        return lambda said: None if said is None else read(said)
    records = {frozenset(get_type_hints(one)): _Later(one) for one in kinds}
    return lambda said: None if said is None else records[frozenset(said)](said)


def _json(said: object) -> bytes:
    return _encode(said)


def _as_it_is(said: object) -> object:
    return said
