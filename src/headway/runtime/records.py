"""JSON records of a store's views, and encoding of values from handlers."""

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


class AnyDataclass(Protocol):
    """Any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


def record(view: AnyDataclass) -> Record:
    """Return the JSON record of any view.

    Returns:
        Its fields by name. Instants are in ms UTC, durations have their unit in their name, and
        JSON fields (arguments, result, progress) are embedded as JSON.
    """
    fields = cast("Record", _embedded(msgspec.to_builtins(view, builtin_types=(bytes,))))
    if isinstance(view, LaneView):
        fields["unfinished"] = view.unfinished
    return fields


def job_record(job: JobView) -> Record:
    """Return the record of a job, as `record` does, but fast enough for millions of jobs."""
    fields = cast("Record", msgspec.to_builtins(job, builtin_types=(bytes,)))
    for name in ("args", "result", "progress"):
        value = fields[name]
        if isinstance(value, bytes):
            fields[name] = embedded_json(value)
    return fields


def embedded_json(data: bytes) -> object:
    """Return JSON bytes in a form that embeds them in a larger document.

    Returns:
        The same JSON on one line, or the data as text if it is not valid JSON.
    """
    try:
        _check(data)
        data.decode()
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return data.decode(errors="replace")
    if b"\n" in data or b"\r" in data:
        # A raw line break can only occur between the tokens of a JSON document.
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
    """Encode a value as JSON.

    Args:
        what: what the value is, for the error message.

    Raises:
        InvalidValue: JSON cannot represent it, or a number in it is NaN or an infinity.
        PayloadTooLarge: it exceeds the size limit.
    """
    try:
        data = msgspec.json.encode(value)
        if b"null" in data:
            # NaN and the infinities have become null; `json` raises ValueError for them.
            json.dumps(value, allow_nan=False, skipkeys=True, default=_builtins)
    except Exception as error:  # noqa: BLE001  (a user's class may raise anything here)
        message = f"the {what} is not JSON-serialisable: {text_of(error, typed=False)}"
        raise InvalidValue(message[:400]) from None
    if len(data) > MAX_RESULT:
        message = f"the {what} has {len(data)} bytes"
        raise PayloadTooLarge(message, hint=f"at most {MAX_RESULT}; store it, keep a reference")
    return data


def _builtins(value: object) -> object:
    return None if isinstance(value, msgspec.Raw) else msgspec.to_builtins(value)


def text_of(value: object, *, typed: bool = True) -> str:
    """Return any value from a handler as text that a store can keep.

    Args:
        typed: whether an exception's text starts with its type.

    Returns:
        The value's `str`, with lone surrogates replaced.
    """
    kind = type(value).__name__
    try:
        text = str(value)
    except Exception:  # noqa: BLE001  (a user's class may raise anything here)
        text = f"<the str() of this {kind} failed>"
    if typed and isinstance(value, BaseException):
        text = f"{kind}: {text}"
    return text.encode("utf-8", "replace").decode()
