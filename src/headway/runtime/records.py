"""The JSON form of what a store answers: the fields of the contract's views, by their own names."""

from __future__ import annotations

import json
from dataclasses import Field
from typing import Any, ClassVar, Protocol, cast

import msgspec

from headway.contract.views import JobView, LaneView
from headway.core.errors import InvalidValue, PayloadTooLarge
from headway.core.job import MAX_RESULT

Record = dict[str, object]

_check = msgspec.json.Decoder(msgspec.Raw).decode


class View(Protocol):
    """Any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


def record(view: View) -> Record:
    """The record of any view.

    Returns:
        Its fields. Instants are milliseconds since 1970 UTC, spans carry their unit in their
        name, and fields of JSON (arguments, result, progress) stand as that JSON.
    """
    fields = cast("Record", _embedded(msgspec.to_builtins(view, builtin_types=(bytes,))))
    if isinstance(view, LaneView):
        fields["unfinished"] = view.unfinished
    return fields


def job_record(job: JobView) -> Record:
    """The record of a job, as `record`, quick enough for millions."""
    fields = cast("Record", msgspec.to_builtins(job, builtin_types=(bytes,)))
    for name in ("args", "result", "progress"):
        value = fields[name]
        if isinstance(value, bytes):
            fields[name] = embedded_json(value)
    return fields


def embedded_json(data: bytes) -> object:
    """JSON bytes as a part of a larger document.

    Args:
        data: what a job carries; meant to be JSON.

    Returns:
        The same JSON on one line; where it is none, its text.
    """
    try:
        _check(data)
        data.decode()
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return data.decode(errors="replace")
    if b"\n" in data or b"\r" in data:
        # A raw line break can only stand between the tokens of a JSON document.
        data = data.replace(b"\n", b" ").replace(b"\r", b" ")
    return msgspec.Raw(data)


def _embedded(value: object) -> object:
    if isinstance(value, bytes):
        return embedded_json(value)
    if isinstance(value, dict):
        fields = cast("Record", value)
        return {name: _embedded(one) for name, one in fields.items()}
    if isinstance(value, list | tuple):
        return [_embedded(one) for one in cast("list[object]", value)]
    return value


def encode(what: str, value: object) -> bytes:
    """A value as JSON.

    Raises:
        InvalidValue: JSON cannot carry it, or a number in it: NaN or an infinity.
        PayloadTooLarge: it is above the limit.
    """
    try:
        data = msgspec.json.encode(value)
        if b"null" in data:
            # NaN and the infinities have become null; `json` raises ValueError for them.
            json.dumps(value, allow_nan=False, skipkeys=True, default=_builtins)
    except Exception as error:  # noqa: BLE001  (a value of a class of the user's may raise anything)
        message = f"the {what} is not JSON-serialisable: {text_of(error, typed=False)}"
        raise InvalidValue(message[:400]) from None
    if len(data) > MAX_RESULT:
        message = f"the {what} has {len(data)} bytes"
        raise PayloadTooLarge(message, hint=f"at most {MAX_RESULT}; store it, keep a reference")
    return data


def _builtins(value: object) -> object:
    return None if isinstance(value, msgspec.Raw) else msgspec.to_builtins(value)


def text_of(said: object, *, typed: bool = True) -> str:
    """Free text as a store can keep it, whatever a handler gave for it.

    Args:
        typed: whether an exception is shown with its type.

    Returns:
        Text as it is, and anything else as `str` shows it; lone surrogates are replaced.
    """
    kind = type(said).__name__
    try:
        text = str(said)
    except Exception:  # noqa: BLE001  (a class of the user's may raise anything here)
        text = f"<the str() of this {kind} failed>"
    if typed and isinstance(said, BaseException):
        text = f"{kind}: {text}"
    return text.encode("utf-8", "replace").decode()
