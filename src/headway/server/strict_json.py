"""Routes that look at the caller first, and then read a body that is strict JSON."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from json import JSONDecodeError
from typing import Any, cast, get_type_hints

import msgspec
from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel

from headway.core.errors import InvalidValue
from headway.server.access.policy import policy_of

MAX_DEPTH = 100
"""Objects and lists within each other. Whoever decodes a job later may have less stack left, or
another Python, which allows fewer."""

_decode = msgspec.json.Decoder().decode


class StrictRequest(Request):
    """A request whose JSON is decoded strictly."""

    async def json(self) -> Any:  # noqa: ANN401  (whatever the body says)
        """The body as JSON.

        Raises:
            JSONDecodeError: it is none, or nested too deeply.
        """
        body = await self.body()
        try:
            said = _decode(body)
            if body.count(b"[") + body.count(b"{") <= MAX_DEPTH or not _is_deep(said):
                return said
            message = f"it is nested more than {MAX_DEPTH} deep"
        except RecursionError:
            message = f"it is nested more than {MAX_DEPTH} deep"
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            message = str(error)
        # The body itself stays out of the error: it may hold a secret.
        raise JSONDecodeError(message, "", 0)


def _is_deep(said: object) -> bool:
    level = list(_nests([said]))
    for _ in range(MAX_DEPTH):
        level = [nest for each in level for nest in _nests(each)]
        if not level:
            return False
    return True


def _nests(each: object) -> Iterable[object]:
    """The objects and lists that lie in an object or a list."""
    held = cast("Iterable[object]", each.values() if isinstance(each, dict) else each)
    return (cast("object", one) for one in held if isinstance(one, dict | list))


class Strict(APIRoute):
    """A route whose callers are admitted first, and whose bodies are strict JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, given strict requests of admitted callers."""
        handle = super().get_route_handler()
        policy, lists = policy_of(self), _lists_asked(self)

        async def strictly(request: Request) -> Response:
            # FastAPI reads the body before its dependencies: nobody unknown may make it do so.
            if policy is not None:
                await policy.admit(request)
            _refuse_repeated(request, lists)
            return await handle(StrictRequest(request.scope, request.receive))

        return strictly


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
