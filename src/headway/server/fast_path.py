"""The fast path: the most called routes, without the steps of FastAPI that they do not need.

FastAPI solves dependencies and keeps exit stacks for each request, which costs more than an
enqueue. A few routes need neither: their parameters are bound once, at the start. Replies are the
same on both paths, and tests hold them to it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints

from fastapi import Request, Response, params
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from headway.core.errors import InvariantBroken
from headway.server.access.policy import Policy, policy_of
from headway.server.replies.problem import answer_error
from headway.server.replies.reply import disconnected
from headway.server.routes.router import the_service
from headway.server.strict_json import StrictRequest, validated

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
        quick = self._quick.get((scope["method"], scope["path"])) if _is_http(scope) else None
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
    for one in _marks(hint):
        if isinstance(one, params.Depends):
            if isinstance(one.dependency, Policy):
                return _caller
            if one.dependency is the_service:
                return the_service
        if isinstance(one, params.Header):
            return _header(one, TypeAdapter(hint), default)
    return _body(TypeAdapter(hint))


def _marks(hint: Any) -> Sequence[object]:  # noqa: ANN401  (an annotation)
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


def _is_http(scope: Scope) -> bool:
    return scope["type"] == "http"


def _is_json(scope: Scope) -> bool:
    """Return whether the body is said to be plain JSON; what else there is goes the usual way."""
    said = [value for name, value in scope["headers"] if name == b"content-type"]
    return said == [b"application/json"]
