"""Routes: authentication before strict bodies, and a fast path for the most frequent requests.

FastAPI resolves dependencies and keeps exit stacks for each request, which costs more than an
enqueue. A few routes need neither: their parameters are bound once, at startup. Replies are the
same on both paths; tests compare them.
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

from headway.core.errors import InvalidValue
from headway.server.access import Policy, policy_of
from headway.server.problems import answer_error
from headway.server.replies import disconnected
from headway.server.service import Service
from headway.server.strict_json import StrictRequest, validated


class Strict(APIRoute):
    """A route that authenticates its caller first, and whose body is strict JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, called with a `StrictRequest` of an authenticated caller."""
        handle = super().get_route_handler()
        policy, lists, adapter = policy_of(self), _lists_asked(self), _body_adapter(self)

        async def strictly(request: Request) -> Response:
            # FastAPI reads the body before it resolves dependencies; authenticate before that.
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
    """A strict route that ignores the Content-Type of its JSON body, for `curl -d`."""

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
    """Return the query parameters that may be repeated: the list fields of models."""
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
    """Check that only lists are repeated; otherwise one of two values would be silently dropped.

    Raises:
        InvalidValue: a parameter that is not a list was sent twice.
    """
    if not request.url.query:
        return
    seen: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name in seen and name not in lists:
            message = f"the parameter {name[:80]!r} appears twice"
            raise InvalidValue(message, hint="send it once")
        seen.add(name)


PROBLEM: dict[str, Any] = {
    "description": "Error, as RFC 9457 problem details.",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


class AnyText(PathConvertor):
    """The rest of a path, including line breaks.

    Starlette's own converter stops at a line break, so that the name of another lane would match.
    """

    regex = "(?s:.*)"


register_url_convertor("path", AnyText())


def router(
    tag: str, *, prefix: str = "", operations: str = "", any_type: bool = False
) -> APIRouter:
    """Return an empty router.

    Args:
        operations: prefix of the operation ids, before the name of the route's function.
        any_type: whether to ignore the Content-Type of bodies.
    """
    return APIRouter(
        prefix=prefix,
        tags=[tag],
        route_class=AnyType if any_type else Strict,
        responses={"4XX": PROBLEM, "5XX": PROBLEM},
        generate_unique_id_function=lambda route: f"{operations}{route.name}",
    )


async def the_service(request: Request) -> Service:
    """Return the service of the app, as a dependency."""
    # Async although it awaits nothing: FastAPI runs plain functions in a thread.
    return cast("Service", request.app.state.service)


TheService = Annotated[Service, Depends(the_service)]
"""Annotation of a route's parameter: `service: TheService`."""


def system_service(name: str) -> Any:  # noqa: ANN401  (FastAPI's own marker)
    """Return the annotation of a parameter for a system's entry in `Service.system_services`."""

    async def find(service: TheService) -> object:
        return service.system_services[name]

    return Depends(find)


Bind = Callable[[Request], Awaitable[object]]


class FastPath:
    """Middleware that serves some routes directly, without FastAPI; others pass through."""

    def __init__(self, app: ASGIApp, *, routes: Iterable[APIRoute]) -> None:
        """Wrap an app.

        Args:
            routes: routes with a fixed path, one method, and a body.
        """
        self._app = app
        self._routes = {
            (method, route.path): _FastRoute(route)
            for route in routes
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        fast = (
            self._routes.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        )
        if fast is None or not _is_json(scope):
            await self._app(scope, receive, send)
            return
        scope["route"] = fast.route
        request = StrictRequest(scope, receive)
        try:
            response = await fast.answer(request)
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
    """A route whose parameters are bound to the request in advance."""

    def __init__(self, route: APIRoute) -> None:
        self.route = route
        self._endpoint: Callable[..., Awaitable[Response]] = route.endpoint
        # `build` refuses routes without one.
        self._policy = cast("Policy", policy_of(route))
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
    """Return the function that reads a parameter from a request."""
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
    """Return the metadata of an `Annotated` type."""
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


async def _request(request: Request) -> object:
    return request


async def _caller(request: Request) -> object:
    return request.state.caller


def _header(header: params.Header, adapter: TypeAdapter[Any], default: object) -> Bind:
    name = cast("str", header.alias)

    async def bind(request: Request) -> object:
        value = request.headers.get(name)
        return default if value is None else validated(adapter, value, "header", name)

    return bind


def _body(adapter: TypeAdapter[Any]) -> Bind:
    async def bind(request: Request) -> object:
        if not await request.body():
            missing = {"type": "missing", "loc": ("body",), "msg": "Field required"}
            raise RequestValidationError([missing])
        return await cast("StrictRequest", request).validated(adapter)

    return bind


def _is_json(scope: Scope) -> bool:
    """Return whether the only Content-Type is JSON; FastAPI handles all others."""
    types = [value for name, value in scope["headers"] if name == b"content-type"]
    return types == [b"application/json"]
