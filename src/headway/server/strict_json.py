"""Strict JSON, bounded before it is decoded; and routes that admit callers before they read it.

Every value of a body costs far more as an object of Python than as a few bytes of text, and a call
that decodes or validates holds the interpreter until it ends. So the text is counted first, in
operations that make no object of a value, and a large body is decoded and validated in a thread,
in slices, one body at a time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from itertools import accumulate
from typing import Any, NoReturn, cast, get_type_hints

import msgspec
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.types import Receive, Scope

from headway.core.errors import InvalidValue, PayloadTooLarge
from headway.server.access.policy import policy_of
from headway.server.replies.error_members import add_members

MAX_DEPTH = 100
"""Objects and lists within each other. Whoever decodes a job later may have less stack left, or
another Python, which allows fewer."""
MOST_VALUES = 100_000
"""Values of a body, or of one item of a body that is a list; each key counts as one."""
MOST_LISTED = 1_000_000
"""Values of a body that is a list."""
MOST_ITEMS = 10_000
"""Items of a body that is a list."""
INLINE = 65_536
"""Bytes of a body that is decoded and validated at once, in the event loop."""

_BRACKETS = b"[]{}"
_NO_BRACKETS = bytes(set(range(256)) - set(_BRACKETS))
_STEPS = bytes.maketrans(_BRACKETS, bytes((1, 255, 1, 255)))
_SHAPING = (b",", b":", b"[", b"{")

_decode = msgspec.json.Decoder().decode
_split = msgspec.json.Decoder(list[msgspec.Raw]).decode


def read_json(body: bytes) -> object:
    """Decode strict JSON.

    Args:
        body: a JSON text.

    Returns:
        Its value, of dicts, lists and scalars.

    Raises:
        InvalidValue: it is not JSON, nested too deeply, or gives a key twice; answered as 400.
            Or it is a list of too many items.
        PayloadTooLarge: it has too many values; nothing was decoded.
    """
    if len(body) <= INLINE or not body.lstrip(b" \t\r\n").startswith(b"["):
        return _one_value(body)
    if _values_at_most(body) > MOST_LISTED and _values(_structure(body, MOST_LISTED)) > MOST_LISTED:
        _refuse_size(MOST_LISTED)
    items = _decoded(_split, body)
    if len(items) > MOST_ITEMS:
        message = f"body: it is a list of {len(items)} items"
        raise InvalidValue(message, hint=f"send it in parts of at most {MOST_ITEMS}")
    # One by one, so that no call holds the interpreter for the whole list.
    return [_one_value(bytes(one)) for one in items]


def decode_bounded(body: bytes) -> object:
    """Decode JSON whose size and depth are bounded; of keys given twice the last counts.

    Raises:
        InvalidValue: it is not JSON, or nested too deeply; answered as 400.
        PayloadTooLarge: it has too many values; nothing was decoded.
    """
    is_large = _values_at_most(body) > MOST_VALUES
    if is_large or body.count(b"[") + body.count(b"{") > MAX_DEPTH:
        structure = _structure(body, MOST_VALUES)
        if _values(structure) > MOST_VALUES:
            _refuse_size(MOST_VALUES)
        steps = structure.translate(_STEPS, _NO_BRACKETS)
        if max(accumulate(memoryview(steps).cast("b")), default=0) > MAX_DEPTH:
            message = f"it is nested more than {MAX_DEPTH} deep"
            _refuse(message)
    return _decoded(_decode, body)


def _one_value(body: bytes) -> object:
    value = decode_bounded(body)
    keys = _keys(value)
    if body.count(b":") != keys and _structure(body, MOST_VALUES).count(b":") != keys:
        json.loads(body, object_pairs_hook=_refuse_repeated_key)
    return value


def _decoded(decode: Callable[[bytes], Any], body: bytes) -> Any:  # noqa: ANN401  (whatever the body says)
    try:
        return decode(body)
    except RecursionError:
        _refuse(f"it is nested more than {MAX_DEPTH} deep")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        # The body itself stays out of the error: it may hold a secret.
        _refuse(f"it is not JSON: {error}")


def _refuse(message: str) -> NoReturn:
    error = InvalidValue(f"body: {message}")
    add_members(error, status=400, errors=[{"where": "body", "what": message}])
    raise error from None


def _refuse_size(most: int) -> NoReturn:
    message = f"the body has more than {most} values and keys"
    raise PayloadTooLarge(message, hint="send it in parts")


def _values_at_most(body: bytes) -> int:
    """An upper bound of the values and keys of a JSON text."""
    return sum(map(body.count, _SHAPING))


_values = _values_at_most
"""The number of values and keys, but for one, of a text without its strings."""


def _structure(body: bytes, most: int) -> bytes:
    """What of a JSON text is outside its strings.

    Raises:
        PayloadTooLarge: it has more strings than values are allowed.
    """
    if b"\\" in body:
        # In a string of JSON a backslash escapes the next character; nowhere else is there one.
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if body.count(b'"') > 2 * (most + 1):
        _refuse_size(most)
    return b"".join(body.split(b'"')[::2])


def _keys(value: object) -> int:
    """The number of members of all objects within a value."""
    count, open_ = 0, [value]
    while open_:
        one = open_.pop()
        if isinstance(one, dict):
            held = cast("dict[str, object]", one)
            count += len(held)
            open_ += [each for each in held.values() if isinstance(each, dict | list)]
        elif isinstance(one, list):
            items = cast("list[object]", one)
            open_ += [each for each in items if isinstance(each, dict | list)]
    return count


def _refuse_repeated_key(members: list[tuple[str, object]]) -> None:
    seen: set[str] = set()
    for key, _ in members:
        if key in seen:
            message = f"the key {key[:80]!r} is given twice"
            _refuse(message)
        seen.add(key)


class StrictRequest(Request):
    """A request whose JSON is decoded strictly.

    Args:
        scope: of the request.
        receive: of the request.
        adapter: of the body; None if it has no model.
    """

    def __init__(
        self, scope: Scope, receive: Receive, adapter: TypeAdapter[Any] | None = None
    ) -> None:
        super().__init__(scope, receive)
        self._adapter = adapter

    async def json(self) -> Any:  # noqa: ANN401  (whatever the body says)
        """The body as JSON; if it is large, as its model has it already.

        Raises:
            InvalidValue: it is not strict JSON.
            PayloadTooLarge: it has too many values.
            RequestValidationError: it is large, and its model refuses it.
        """
        body = await self.body()
        if len(body) <= INLINE:
            return read_json(body)
        # Another body, or its decoding, would hold up everything else in the meantime.
        async with self.app.state.service.large_body:
            return await asyncio.to_thread(self._read, body)

    async def validated(self, adapter: TypeAdapter[Any]) -> Any:  # noqa: ANN401  (a model)
        """The body as a model has it.

        Raises:
            InvalidValue: it is not strict JSON.
            PayloadTooLarge: it has too many values.
            RequestValidationError: the model refuses it.
        """
        self._adapter = adapter
        value = await self.json()
        return value if len(await self.body()) > INLINE else validated(adapter, value)

    def _read(self, body: bytes) -> object:
        value = read_json(body)
        return value if self._adapter is None else validated(self._adapter, value)


def validated(adapter: TypeAdapter[Any], value: object, *where: str) -> Any:  # noqa: ANN401  (a model)
    """A value as a model has it.

    Args:
        adapter: of the model.
        value: plain JSON.
        where: the place of the value in the request; the body if not given.

    Raises:
        RequestValidationError: the model refuses it.
    """
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        found = error.errors(include_url=False)
        place = where or ("body",)
        raise RequestValidationError(
            [{**one, "loc": (*place, *one["loc"])} for one in found], body=value
        ) from None


class Strict(APIRoute):
    """A route whose callers are admitted first, and whose bodies are strict JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, given strict requests of admitted callers."""
        handle = super().get_route_handler()
        policy, lists, adapter = policy_of(self), _lists_asked(self), _body_adapter(self)

        async def strictly(request: Request) -> Response:
            # FastAPI reads the body before its dependencies: nobody unknown may make it do so.
            if policy is not None:
                await policy.admit(request)
            _refuse_repeated(request, lists)
            return await handle(StrictRequest(request.scope, request.receive, adapter))

        return strictly


def _body_adapter(route: APIRoute) -> TypeAdapter[Any] | None:
    if route.body_field is None:
        return None
    return TypeAdapter(get_type_hints(route.endpoint, include_extras=True)[route.body_field.name])


class AnyType(Strict):
    """A strict route whose body is JSON whatever its Content-Type, as `curl -d` sends it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, told that the body is JSON."""
        handle = super().get_route_handler()

        async def as_json(request: Request) -> Response:
            headers = [one for one in request.scope["headers"] if one[0] != b"content-type"]
            scope = {**request.scope, "headers": [*headers, _JSON]}
            return await handle(Request(scope, request.receive))

        return as_json


_JSON = (b"content-type", b"application/json")


def _lists_asked(route: APIRoute) -> frozenset[str]:
    """The names that a query may say more than once: fields of models that are lists."""
    models = [
        one
        for one in get_type_hints(route.endpoint).values()
        if isinstance(one, type) and issubclass(one, BaseModel)
    ]
    return frozenset(
        field.alias or name
        for model in models
        for name, field in model.model_fields.items()
        if "list[" in str(field.annotation)
    )


def _refuse_repeated(request: Request, lists: frozenset[str]) -> None:
    """Lets a query pass that says each thing once: of two, one would be dropped without a word.

    Raises:
        InvalidValue: a parameter that is no list was given twice.
    """
    if not request.url.query:
        return
    seen: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name in seen and name not in lists:
            message = f"the parameter {name[:80]!r} was given twice"
            raise InvalidValue(message, hint="give it once")
        seen.add(name)
