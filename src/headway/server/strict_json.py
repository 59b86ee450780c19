"""Strict JSON, with limits that are checked before decoding; large bodies are decoded in steps.

A value costs far more as a Python object than as a few bytes of text, and a call that decodes or
validates holds the interpreter until it returns. So the values of the text are counted first,
without creating an object for each, and a large body is counted, decoded and validated in a
thread, in slices, one body at a time; other requests are served between slices.

In each step the thread holds the interpreter, and an event loop that contends for it waits again
for each event. So after each step the thread waits until the loop has run.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from contextvars import ContextVar
from itertools import accumulate, compress
from typing import Any, NamedTuple, NoReturn, TypeVar, cast

import msgspec
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError
from starlette.types import Receive, Scope

from headway.core.errors import InvalidValue, PayloadTooLarge
from headway.server.problems import add_members

Result = TypeVar("Result")

_give: ContextVar[Callable[[], None] | None] = ContextVar("_give", default=None)


def yield_to_loop() -> None:
    """Let the event loop run before the next step; do nothing outside of `run_in_steps`."""
    give = _give.get()
    if give is not None:
        give()


async def run_in_steps(work: Callable[[], Result]) -> Result:
    """Run `work` in a thread and return its result.

    Args:
        work: calls `yield_to_loop` between its steps; if this coroutine is cancelled, that call
            raises CancelledError.
    """
    loop = asyncio.get_running_loop()
    is_over = False

    def give() -> None:
        if is_over:
            raise asyncio.CancelledError
        served = threading.Event()
        # Two rounds of the loop: one reads what has arrived, the next handles it.
        loop.call_soon_threadsafe(loop.call_soon, served.set)
        served.wait()

    def run() -> Result:
        _give.set(give)
        return work()

    try:
        return await asyncio.to_thread(run)
    finally:
        is_over = True


MAX_DEPTH = 100
"""Maximum nesting of objects and lists. Later decoders may have less stack left, and other Python
versions may allow less."""
MOST_VALUES = 100_000
"""Maximum number of values and keys in a body, or in each item of a body that is a list."""
MOST_LISTED = 1_000_000
"""Maximum number of values and keys in a body that is a list."""
MOST_ITEMS = 10_000
"""Maximum number of items in a body that is a list."""
INLINE = 65_536
"""Maximum size in bytes of a body that is decoded and validated in the event loop.

Of a larger body, this many bytes are counted in a step, or decoded as items of its list.
"""

_SHAPING = (b",", b":", b"[", b"{")
# By how much each bracket and comma changes the depth.
_NO_STEP = bytes(set(range(256)) - set(b"[]{},"))
_STEPS = bytes.maketrans(b"[]{},", bytes((1, 255, 1, 255, 0)))
_IS_COMMA = bytes((1, *[0] * 255))
_NESTED = frozenset((dict, list))

_decode = msgspec.json.Decoder().decode
_split = msgspec.json.Decoder(list[msgspec.Raw]).decode


def read_json(body: bytes) -> object:
    """Decode strict JSON.

    Raises:
        InvalidValue: the body is not JSON, is nested too deeply, or repeats a key (status 400), or
            it is a list with too many items (status 422).
        PayloadTooLarge: the body has too many values; nothing was decoded.
    """
    if len(body) <= INLINE or not body.lstrip(b" \t\r\n").startswith(b"["):
        return _one_value(body)
    items = _scanned(body, MOST_LISTED).items
    if items > MOST_ITEMS:
        message = f"body: the list has {items} items"
        raise InvalidValue(message, hint=f"send it in parts of at most {MOST_ITEMS} items")
    # Item by item, so that no call holds the interpreter for the whole list.
    values: list[object] = []
    size = 0
    for one in _decoded(_split, body):
        text = bytes(one)
        values.append(_one_value(text))
        size += len(text)
        if size > INLINE:
            size = 0
            yield_to_loop()
    return values


def decode_bounded(body: bytes) -> object:
    """Decode JSON with limits on its size and depth; the last one of repeated keys counts.

    Raises:
        InvalidValue: the body is not JSON, or is nested too deeply; status 400.
        PayloadTooLarge: the body has too many values; nothing was decoded.
    """
    if (
        len(body) > INLINE
        or _values(body) > MOST_VALUES
        or body.count(b"[") + body.count(b"{") > MAX_DEPTH
    ):
        _scanned(body, MOST_VALUES)
    return _decoded(_decode, body)


def _one_value(body: bytes) -> object:
    value = decode_bounded(body)
    if len(body) > INLINE:
        yield_to_loop()
    keys = _keys(value)
    if body.count(b":") != keys and _colons(body) != keys:
        json.loads(body, object_pairs_hook=_refuse_repeated_key)
    return value


def _decoded(decode: Callable[[bytes], Any], body: bytes) -> Any:  # noqa: ANN401  (any JSON)
    try:
        return decode(body)
    except RecursionError:
        _refuse(f"it is nested more than {MAX_DEPTH} deep")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        # Without the body, which may contain a secret.
        _refuse(f"it is not JSON: {error}")


def _refuse(message: str) -> NoReturn:
    error = InvalidValue(f"body: {message}")
    add_members(error, status=400, errors=[{"where": "body", "what": message}])
    raise error from None


def _values(text: bytes) -> int:
    """Return the number of values and keys less one; if there are strings, an upper bound."""
    return sum(map(text.count, _SHAPING))


class _Shape(NamedTuple):
    """Counts of a JSON text outside its strings."""

    colons: int
    items: int


def _scanned(body: bytes, most: int) -> _Shape:
    """Count the structure of a JSON text outside its strings, in slices.

    Args:
        most: maximum number of values and keys; counting stops above it.

    Returns:
        The colons, one for each member of an object; the items, if it is a list that is not empty.

    Raises:
        InvalidValue: the text is nested too deeply.
        PayloadTooLarge: it has more than `most` values or strings.
    """
    values = quotes = colons = commas = depth = start = 0
    while start < len(body):
        if start:
            yield_to_loop()
        piece = body[start : start + INLINE]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            # A backslash escapes the next character; JSON has backslashes only in strings.
            piece = body[start : start + INLINE + 1]
        start += len(piece)
        if b"\\" in piece:
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = piece.split(b'"')
        outside = b"".join(parts[quotes % 2 :: 2])
        quotes += len(parts) - 1
        values += _values(outside)
        if values > most or quotes > 2 * (most + 1):
            message = f"the body has more than {most} values and keys"
            raise PayloadTooLarge(message, hint="send it in parts")
        colons += outside.count(b":")
        steps = outside.translate(_STEPS, _NO_STEP)
        depths = list(accumulate(memoryview(steps).cast("b"), initial=depth))
        if max(depths) > MAX_DEPTH:
            _refuse(f"it is nested more than {MAX_DEPTH} deep")
        depth = depths[-1]
        commas += list(compress(depths[1:], steps.translate(_IS_COMMA))).count(1)
    return _Shape(colons=colons, items=commas + 1)


def _colons(text: bytes) -> int:
    """Return the number of colons outside strings: one for each member of an object."""
    if len(text) > INLINE or b"\\" in text:
        return _scanned(text, MOST_VALUES).colons
    return b"".join(text.split(b'"')[::2]).count(b":")


def _keys(value: object) -> int:
    """Return the number of members of all objects in a decoded value."""
    count, open_ = 0, [value]
    while open_:
        one = open_.pop()
        if isinstance(one, dict):
            held = cast("dict[str, object]", one)
            count += len(held)
            open_ += [each for each in held.values() if type(each) in _NESTED]
        elif isinstance(one, list):
            items = cast("list[object]", one)
            open_ += [each for each in items if type(each) in _NESTED]
    return count


def _refuse_repeated_key(members: list[tuple[str, object]]) -> None:
    seen: set[str] = set()
    for key, _ in members:
        if key in seen:
            message = f"the key {key[:80]!r} appears twice"
            _refuse(message)
        seen.add(key)


class StrictRequest(Request):
    """A request whose JSON is decoded strictly, and validated by the `adapter` of its model."""

    def __init__(
        self, scope: Scope, receive: Receive, adapter: TypeAdapter[Any] | None = None
    ) -> None:
        super().__init__(scope, receive)
        self._adapter = adapter
        self._large: asyncio.Lock | None = None

    async def json(self) -> Any:  # noqa: ANN401  (any JSON)
        """Decode the body; if it is large and has a model, also validate it.

        After a large list, other large bodies wait until `done`. Otherwise several lists of objects
        could fill the memory, and slow down each full garbage collection.

        Raises:
            InvalidValue: the body is not strict JSON.
            PayloadTooLarge: the body has too many values.
            RequestValidationError: the body is large and does not match its model.
        """
        body = await self.body()
        if len(body) <= INLINE:
            return read_json(body)
        large: asyncio.Lock = self.app.state.service.large_body
        await large.acquire()
        self._large = large
        is_list = False
        try:
            value = await run_in_steps(lambda: self._read(body))
            is_list = isinstance(value, list)
            return value
        finally:
            if not is_list:
                self.done()

    def done(self) -> None:
        """Release the lock for large bodies, because this body is no longer needed."""
        if self._large is not None:
            self._large.release()
            self._large = None

    async def validated(self, adapter: TypeAdapter[Any]) -> Any:  # noqa: ANN401  (a model)
        """Decode and validate the body.

        Raises:
            InvalidValue: the body is not strict JSON.
            PayloadTooLarge: the body has too many values.
            RequestValidationError: the body does not match the model.
        """
        self._adapter = adapter
        value = await self.json()
        return value if len(await self.body()) > INLINE else validated(adapter, value)

    def _read(self, body: bytes) -> object:
        value = read_json(body)
        return value if self._adapter is None else validated(self._adapter, value)


def validated(adapter: TypeAdapter[Any], value: object, *where: str) -> Any:  # noqa: ANN401  (a model)
    """Validate a decoded JSON value.

    Args:
        where: location of the value in the request (default: the body).

    Raises:
        RequestValidationError: the value does not match the model.
    """
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        found = error.errors(include_url=False)
        place = where or ("body",)
        raise RequestValidationError(
            [{**one, "loc": (*place, *one["loc"])} for one in found], body=value
        ) from None
