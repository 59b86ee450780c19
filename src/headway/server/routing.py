"""Routes: strict bodies, callers admitted before, and a fast path for the most called.

FastAPI solves dependencies and keeps exit stacks for each request, which costs more than an
enqueue. A few routes need neither: their parameters are bound once, at the start. Replies are the
same on both paths, and tests hold them to it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints

from fastapi import APIRouter, Depends, Request, Response, params
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from headway.core.errors import InvalidValue, InvariantBroken
from headway.server.access import Policy, policy_of
from headway.server.problems import answer_error
from headway.server.replies import disconnected
from headway.server.service import Service
from headway.server.strict_json import StrictRequest, validated


class Strict(APIRoute):
    """A route whose callers are admitted first, and whose bodies are strict JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, given strict requests of admitted callers."""
        handle = super().get_route_handler()
        policy, lists, adapter = policy_of(self), _lists_asked(self), _body_adapter(self)

        async def strictly(request: Request) -> Response:
            # FastAPI reads the body before its dependencies; an unknown caller must not cause that.
            if policy is not None:
                await policy.admit(request)
            _refuse_repeated(request, lists)
            strict = StrictRequest(request.scope, request.receive, adapter)
            try:
                return await handle(strict)
            finally:
                strict.done()

        return strictly


def _body_adapter(route: APIRoute) -> TypeAdapter[Any] | None:
    if route.body_field is None:
        return None
    return TypeAdapter(get_type_hints(route.endpoint, include_extras=True)[route.body_field.name])


class AnyType(Strict):
    """A strict route whose body is JSON whatever its Content-Type, as `curl -d` sends it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, with the Content-Type set to JSON."""
        handle = super().get_route_handler()

        async def as_json(request: Request) -> Response:
            headers = [one for one in request.scope["headers"] if one[0] != b"content-type"]
            scope = {**request.scope, "headers": [*headers, _JSON]}
            return await handle(Request(scope, request.receive))

        return as_json


_JSON = (b"content-type", b"application/json")


def _lists_asked(route: APIRoute) -> frozenset[str]:
    """Return the names that a query may say more than once: fields of models that are lists."""
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
    """Accept a query without repeated names: of two values, one would be dropped silently.

    Raises:
        InvalidValue: a parameter that is not a list was given twice.
    """
    if not request.url.query:
        return
    seen: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name in seen and name not in lists:
            message = f"the parameter {name[:80]!r} appears twice"
            raise InvalidValue(message, hint="give it once")
        seen.add(name)


PROBLEM: dict[str, Any] = {
    "description": "Error, as RFC 9457 problem details.",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


class AnyText(PathConvertor):
    """The rest of a path, whatever is in it.

    Starlette's own ends before a line break: a lane with one would be out of reach, or be taken
    for the one without.
    """

    regex = "(?s:.*)"


register_url_convertor("path", AnyText())


def router(
    tag: str, *, prefix: str = "", operations: str = "", any_type: bool = False
) -> APIRouter:
    """Return an empty router.

    Args:
        operations: stands before the name of a route's function in the id of its operation.
    """
    return APIRouter(
        prefix=prefix,
        tags=[tag],
        route_class=AnyType if any_type else Strict,
        responses={"4XX": PROBLEM, "5XX": PROBLEM},
        generate_unique_id_function=lambda route: f"{operations}{route.name}",
    )


async def the_service(request: Request) -> Service:
    """Return the service that the routes work with."""
    # Awaited though it waits for nothing: FastAPI calls what is not in another thread.
    return cast("Service", request.app.state.service)


TheService = Annotated[Service, Depends(the_service)]
"""As a parameter: `service: TheService`."""


def system_service(name: str) -> Any:  # noqa: ANN401  (FastAPI's own marker)
    """Return what a system has put into `Service.system_services`, for a parameter's annotation."""

    async def find(service: TheService) -> object:
        return service.system_services[name]

    return Depends(find)


Bind = Callable[[Request], Awaitable[object]]


class FastPath:
    """Answers the routes that are called most; all others go the usual way."""

    def __init__(self, app: ASGIApp, *, routes: Iterable[APIRoute]) -> None:
        """Stand before an app.

        Args:
            routes: with a fixed path, one method, and a body.
        """
        self._app = app
        self._quick = {
            (method, route.path): _FastRoute(route)
            for route in routes
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        quick = (
            self._quick.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        )
        if quick is None or not _is_json(scope):
            await self._app(scope, receive, send)
            return
        scope["route"] = quick.route
        request = StrictRequest(scope, receive)
        try:
            response = await quick.answer(request)
        except ClientDisconnect:
            response = disconnected()
        except Exception as error:
            problem = answer_error(request, error)
            if problem is None:
                raise
            response = problem
        finally:
            request.done()
        await response(scope, receive, send)


class _FastRoute:
    """A route whose parameters are bound."""

    def __init__(self, route: APIRoute) -> None:
        self.route = route
        self._endpoint: Callable[..., Awaitable[Response]] = route.endpoint
        policy = policy_of(route)
        if policy is None:
            message = f"the route {route.path} names no policy"
            raise InvariantBroken(message)
        self._policy = policy
        hints = get_type_hints(route.endpoint, include_extras=True)
        self._binds = [
            (one.name, _bind(hints[one.name], one.default))
            for one in inspect.signature(route.endpoint).parameters.values()
        ]

    async def answer(self, request: Request) -> Response:
        await self._policy.admit(request)
        given = {name: await bind(request) for name, bind in self._binds}
        return await self._endpoint(**given)


def _bind(hint: Any, default: object) -> Bind:  # noqa: ANN401  (an annotation)
    """Return what gives a parameter its value."""
    if hint is Request:
        return _request
    for one in marks(hint):
        if isinstance(one, params.Depends):
            if isinstance(one.dependency, Policy):
                return _caller
            if one.dependency is the_service:
                return the_service
        if isinstance(one, params.Header):
            return _header(one, TypeAdapter(hint), default)
    return _body(TypeAdapter(hint))


def marks(hint: object) -> Sequence[object]:
    """Return what stands in an annotation beside its type."""
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


async def _request(request: Request) -> object:
    return request


async def _caller(request: Request) -> object:
    return request.state.caller


def _header(header: params.Header, adapter: TypeAdapter[Any], default: object) -> Bind:
    name = cast("str", header.alias)

    async def bind(request: Request) -> object:
        said = request.headers.get(name)
        return default if said is None else validated(adapter, said, "header", name)

    return bind


def _body(adapter: TypeAdapter[Any]) -> Bind:
    async def bind(request: Request) -> object:
        if not await request.body():
            missing = {"type": "missing", "loc": ("body",), "msg": "Field required"}
            raise RequestValidationError([missing])
        return await cast("StrictRequest", request).validated(adapter)

    return bind


def _is_json(scope: Scope) -> bool:
    """Return whether the body is said to be plain JSON; what else there is goes the usual way."""
    said = [value for name, value in scope["headers"] if name == b"content-type"]
    return said == [b"application/json"]
