"""Actions: an HTTP route's own function, called with what a form says.

So a form is refused for the same reasons, validated by the same models and told by the same
errors as a request of a program, and the `curl` line beside it is that request.
"""

from __future__ import annotations

import inspect
import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints
from urllib.parse import quote, urlencode

import msgspec
from fastapi import Request, Response, params
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.routing import BaseRoute

from headway.core.errors import AccessError, InvalidValue, InvariantBroken
from headway.server.access.caller import Caller, Permission
from headway.server.access.policy import Policy, policy_of
from headway.server.replies.faults import faults, sentence
from headway.web.page import Action, Values

_PLACEHOLDER = re.compile(r"\{(\w+)(?::\w+)?\}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Doable:
    """An action with the route that it calls.

    Attributes:
        path: of the route, with its placeholders.
        permission: what the route asks of its caller.
        all_tenants: whether it refuses a caller that is scoped to some tenants.
    """

    action: Action
    method: str
    path: str
    permission: Permission
    all_tenants: bool

    def may(self, caller: Caller, values: Values) -> bool:
        """Return whether the route would not refuse this caller."""
        try:
            self.check(caller, values)
        except AccessError:
            return False
        return True

    def check(self, caller: Caller, values: Values) -> None:
        """Refuse whom the route would refuse.

        Raises:
            Forbidden: the caller may not do this.
        """
        caller.check(self.permission)
        if self.all_tenants:
            caller.every_tenant()
        self.action.reach(caller, values)

    async def do(self, request: Request, caller: Caller, values: Values) -> Values:
        """Do it, as the route does.

        Args:
            request: of the form, for what else the route needs.
            caller: who was admitted with the route's permission.

        Returns:
            The words and numbers of the route's reply, by name.

        Raises:
            HeadwayError: as the route raises.
            InvariantBroken: the action does not give what the route needs.
        """
        call = self.action.call(values)
        given: dict[str, object] = {}
        hints = get_type_hints(self.action.endpoint, include_extras=True)
        for name, parameter in inspect.signature(self.action.endpoint).parameters.items():
            hint = hints[name]
            depends = _depends(hint)
            if hint is Request:
                given[name] = request
            elif depends is not None and isinstance(depends.dependency, Policy):
                given[name] = caller
            elif depends is not None and depends.dependency is not None:
                given[name] = await _provide(depends.dependency, request)
            elif name in call.path:
                given[name] = _read(hint, call.path[name])
            elif _is(hint, params.Query):
                given[name] = _read(hint, call.query)
            elif not _is(hint, params.Header) and call.body is not None:
                given[name] = _read(hint, call.body)
            elif parameter.default is parameter.empty:
                message = f"the action {self.action.name} gives no {name}"
                raise InvariantBroken(message)
        return _told(await self.action.endpoint(**given))

    def curl(self, base: str, values: Values, *, token: bool) -> str:
        """The same as a command of a shell.

        Args:
            token: whether the server asks for one.
        """
        call = self.action.call(values)
        path = _PLACEHOLDER.sub(lambda found: quote(call.path[found[1]], safe=""), self.path)
        query = f"?{urlencode(call.query)}" if call.query else ""
        words = ["curl", "-X", self.method]
        if call.body is not None:
            text = json.dumps(call.body, ensure_ascii=False)
            # What cannot be seen would be copied too.
            text = text if text.isprintable() else json.dumps(call.body)
            words += ["--json", shlex.quote(text)]
        if token:
            words += ["-H", '"Authorization: Bearer $HEADWAY_TOKEN"']
        return " ".join([*words, shlex.quote(f"{base}{path}{query}")])


def find_routes(actions: Iterable[Action], routes: Iterable[BaseRoute]) -> Mapping[str, Doable]:
    """Join actions with the routes that they call.

    Returns:
        By name.

    Raises:
        InvariantBroken: two actions have one name, or there is no such route with a permission.
    """
    by_endpoint: dict[object, APIRoute] = {}
    for route in routes:
        if isinstance(route, APIRoute):
            by_endpoint.setdefault(cast("object", route.endpoint), route)
    found: dict[str, Doable] = {}
    for action in actions:
        route = by_endpoint.get(action.endpoint)
        policy = None if route is None else policy_of(route)
        if action.name in found and found[action.name].action is not action:
            message = f"two actions are named {action.name}"
            raise InvariantBroken(message)
        if route is None or policy is None or policy.permission is None:
            message = f"the action {action.name} calls no route that asks for a permission"
            raise InvariantBroken(message)
        (method,) = route.methods or ("",)
        found[action.name] = Doable(
            action=action,
            method=method,
            path=route.path,
            permission=policy.permission,
            all_tenants=policy.all_tenants,
        )
    return found


def _read(hint: Any, value: object) -> object:  # noqa: ANN401  (an annotation)
    """A value as the route takes it, by the same models as from JSON.

    Raises:
        InvalidValue: it is not valid.
    """
    adapter: TypeAdapter[object] = TypeAdapter(hint)
    try:
        if isinstance(value, dict):
            return adapter.validate_json(msgspec.json.encode(cast("object", value)))
        return adapter.validate_python(value)
    except ValidationError as error:
        told = sentence(faults([_of_body(one) for one in error.errors()], cast("object", value)))
        raise InvalidValue(told or "the form is not valid") from None
    except RequestValidationError as error:
        raise InvalidValue(str(error)[:400]) from None


def _told(reply: object) -> Values:
    body = bytes(reply.body) if isinstance(reply, Response) else b""
    told: object = msgspec.json.decode(body) if body else None
    if not isinstance(told, dict):
        return {}
    fields = cast("dict[str, object]", told)
    return {name: str(one) for name, one in fields.items() if isinstance(one, str | int)}


def _of_body(fault: Mapping[str, Any]) -> dict[str, Any]:
    return {**fault, "loc": ("body", *fault["loc"])}


async def _provide(dependency: Callable[..., Any], request: Request) -> object:
    """What a route depends on, made as the route's own request would have it made."""
    hints = get_type_hints(dependency, include_extras=True)
    given: dict[str, object] = {}
    for name in inspect.signature(dependency).parameters:
        inner = _depends(hints[name])
        if inner is None or inner.dependency is None:
            given[name] = request
        else:
            given[name] = await _provide(inner.dependency, request)
    return await dependency(**given)


def _depends(hint: object) -> params.Depends | None:
    return next((one for one in _marks(hint) if isinstance(one, params.Depends)), None)


def _is(hint: object, kind: type[object]) -> bool:
    return any(isinstance(one, kind) for one in _marks(hint))


def _marks(hint: object) -> tuple[object, ...]:
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()
