"""Declarations of dashboard pages: what a page reads and shows, and its actions.

An action calls an HTTP route's own function with the values of a form. A form is therefore
authorized and validated like an API request, fails with the same errors, and the `curl` line beside
it is that request.
"""

from __future__ import annotations

import inspect
import json
import re
import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeVar, cast, get_type_hints, runtime_checkable
from urllib.parse import quote, urlencode

import msgspec
from fastapi import Request, Response, params
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.routing import BaseRoute

from headway.core.errors import AccessError, InvalidValue, InvariantBroken
from headway.core.naming import whole_number
from headway.runtime.faults import faults, sentence
from headway.server.access import Policy, policy_of
from headway.server.caller import Caller, Permission
from headway.server.paging import RepeatKey
from headway.server.routing import marks
from headway.server.service import Service
from headway.web.shared_reads import SharedReads

Row = TypeVar("Row")
FormValues = Mapping[str, str]
"""The values of a query string or a form, by name."""
TemplateContext = Mapping[str, object]
"""A template's context.

`now` is the store's time, ms UTC. If there is a `version`, the live fragments are rendered only
when it has changed, so it must cover all that they show except the passing of time.
"""


ENGINE = "headway.web"
"""The package of the engine's own pages."""
ROWS = 50
"""Rows per page of a listing that is read as a whole."""
ONCE = "once"
"""Name of a form's hidden field with the Idempotency-Key of its call."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PageView:
    """One view of a page: the caller and the values of the URL.

    Attributes:
        caller: `DashboardPage.read` must show no more than the HTTP API shows to this caller.
        values: The page's `params` from the URL; "" for those that are missing.
    """

    service: Service
    reads: SharedReads
    caller: Caller
    values: FormValues


def everyone(_: Caller) -> None:
    """Refuse no caller: the page itself shows only what the caller may see."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """One input of an action's form.

    Attributes:
        choices: Options of a select, as pairs of value and label.
    """

    name: str
    label: str
    kind: Literal["text", "number", "area", "select"] = "text"
    hint: str = ""
    required: bool = False
    choices: Sequence[tuple[str, str]] = ()


REASON = Field(name="reason", label="Reason", hint="Recorded in the trail next to your name.")
UNTIL = Field(
    name="until",
    label="Until",
    hint="20m, 2h, or 2026-12-01T10:00Z; if empty, until an operator ends it.",
)


def int_of(values: FormValues, name: str) -> object:
    """Return a form's number as an int; other text unchanged, for the route to refuse."""
    text = values.get(name, "").strip()
    return int(text) if re.fullmatch("-?[0-9]{1,18}", text) else text


def rows_of(values: FormValues, found: Sequence[Row]) -> tuple[Sequence[Row], TemplateContext]:
    """Return the rows of a page that starts at the parameter `from`, and the facts for `ui.pages`.

    Without a valid start they are the first rows, and beyond the end the last ones.
    """
    first = whole_number(values["from"], digits=6) or 0
    if first >= len(found):
        first = max(0, len(found) - 1) // ROWS * ROWS
    rows = found[first : first + ROWS]
    return rows, {"first": first, "many": len(found), "size": ROWS}


@dataclass(frozen=True, kw_only=True, slots=True)
class RouteCall:
    """A call of an HTTP route.

    Attributes:
        path: Values of the path's placeholders.
    """

    path: FormValues = field(default_factory=dict[str, str])
    query: Mapping[str, object] = field(default_factory=dict[str, object])
    body: Mapping[str, object] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    """An operator's action: a form that calls a route.

    Attributes:
        name: Unique among all actions; part of the form's URL.
        label: Text of the button that opens the form.
        title: Title of the form; placeholders such as `{gate}` are filled in from `of` and
            `prefill`.
        explains: What the action does, in a sentence or two.
        endpoint: The HTTP route's function, which checks and performs the action.
        call: Builds the route's call from the form's values. The values of the fields `reason` and
            `until` are added to its body.
        of: Names of the values that the button must give, such as ("gate",).
        reach: Raises Forbidden if the route would refuse the caller for the button's values.
        done: Message of success; placeholders are filled in from the form and the reply.
        danger: Whether its buttons are styled as a warning.
        prefill: Reads the current values of fields and of the title's placeholders.
    """

    name: str
    label: str
    title: str
    explains: str
    endpoint: Callable[..., Awaitable[object]]
    call: Callable[[FormValues], RouteCall]
    done: str
    of: Sequence[str] = ()
    fields: Sequence[Field] = ()
    reach: Callable[[Caller, FormValues], None] = lambda _caller, _values: None
    danger: bool = False
    prefill: Callable[[PageView], Awaitable[FormValues]] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DashboardPage:
    """A page of the dashboard.

    Attributes:
        path: Path below `/ui`; "" for the first page. The values of its placeholders, as in
            `jobs/{id}`, are among those of a view.
        title: Text in the menu and heading of the page.
        fragments: Blocks of the template that are kept live, each within an element with the
            block's name as id.
        reach: Raises Forbidden if the caller's scope does not cover the page.
        package: Package that contains the `templates` folder.
    """

    path: str
    title: str
    template: str
    fragments: Sequence[str]
    read: Callable[[PageView], Awaitable[TemplateContext]]
    permission: Permission
    reach: Callable[[Caller], None]
    params: Sequence[str] = ()
    actions: Sequence[Action] = ()
    menu: bool = True
    package: str = ENGINE

    @property
    def group(self) -> str:
        """Its heading in the menu; "" for the engine's pages, which come before all headings."""
        if self.package == ENGINE:
            return ""
        return "Bridges" if self.package.startswith("headway.bridges.") else "Systems"


@runtime_checkable
class HasPages(Protocol):
    """A system that contributes pages."""

    @property
    def pages(self) -> Sequence[DashboardPage]:
        """Its pages, in the order of the menu."""
        ...


_PLACEHOLDER = re.compile(r"\{(\w+)(?::\w+)?\}")


@dataclass(frozen=True, kw_only=True, slots=True)
class BoundAction:
    """An action with the route that it calls.

    Attributes:
        path: The route's path, with placeholders.
        reach: Raises Forbidden if the caller's scope does not cover the route's resource.
    """

    action: Action
    method: str
    path: str
    permission: Permission
    reach: Callable[[Caller], None] | None

    def may(self, caller: Caller, values: FormValues) -> bool:
        """Return whether the route would accept this caller."""
        try:
            self.check(caller, values)
        except AccessError:
            return False
        return True

    def check(self, caller: Caller, values: FormValues) -> None:
        """Authorize a caller as the route would.

        Raises:
            Forbidden: the caller may not perform this action.
        """
        caller.check(self.permission)
        if self.reach is not None:
            self.reach(caller)
        self.action.reach(caller, values)

    async def do(self, request: Request, caller: Caller, values: FormValues) -> FormValues:
        """Call the route's function, with its parameters resolved from the form.

        Args:
            request: The form's request, for the route's other dependencies.

        Returns:
            The strings and integers of the route's reply, by name.

        Raises:
            HeadwayError: any error of the route.
            InvariantBroken: the action's call lacks one of the route's parameters.
        """
        call = self._call(values)
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
            elif (key := _path_key(hint, name)) in call.path:
                given[name] = _read(hint, call.path[key])
            elif _is(hint, params.Query):
                given[name] = _read(hint, call.query)
            elif hint == RepeatKey:
                given[name] = values.get(ONCE) or None
            elif not _is(hint, params.Header) and call.body is not None:
                given[name] = _read(hint, call.body)
            elif parameter.default is parameter.empty:
                message = f"the action {self.action.name} gives no {name}"
                raise InvariantBroken(message)
        return _reply_values(await self.action.endpoint(**given))

    def curl(self, base: str, values: FormValues, *, token: bool) -> str:
        """Return the same call as a shell command.

        Args:
            token: Whether the server requires a token.
        """
        call = self._call(values)
        path = _PLACEHOLDER.sub(lambda found: quote(call.path[found[1]], safe=""), self.path)
        query = f"?{urlencode(call.query)}" if call.query else ""
        words = ["curl", "-X", self.method]
        if call.body is not None:
            text = json.dumps(call.body, ensure_ascii=False)
            # Invisible characters would be copied unnoticed: write them as escapes.
            text = text if text.isprintable() else json.dumps(call.body)
            words += ["--json", shlex.quote(text)]
        if token:
            words += ["-H", '"Authorization: Bearer $HEADWAY_TOKEN"']
        return " ".join([*words, shlex.quote(f"{base}{path}{query}")])

    def _call(self, values: FormValues) -> RouteCall:
        call = self.action.call(values)
        names = {field.name for field in self.action.fields}
        more: dict[str, object] = {}
        if "until" in names and (until := values.get("until", "").strip()):
            more["until"] = until
        if "reason" in names:
            more["reason"] = values.get("reason", "")
        return replace(call, body={**(call.body or {}), **more}) if more else call


def find_routes(
    actions: Iterable[Action], routes: Iterable[BaseRoute]
) -> Mapping[str, BoundAction]:
    """Return actions with the routes that they call, by name.

    Raises:
        InvariantBroken: two actions have the same name, or an action's endpoint has no route that
            requires a permission.
    """
    by_endpoint: dict[object, APIRoute] = {}
    for route in routes:
        if isinstance(route, APIRoute):
            by_endpoint.setdefault(cast("object", route.endpoint), route)
    found: dict[str, BoundAction] = {}
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
        found[action.name] = BoundAction(
            action=action,
            method=method,
            path=route.path,
            permission=policy.permission,
            reach=policy.reach,
        )
    return found


def _read(hint: Any, value: object) -> object:  # noqa: ANN401  (an annotation)
    # By the route's annotation, as FastAPI validates JSON.
    adapter: TypeAdapter[object] = TypeAdapter(hint)
    try:
        if isinstance(value, dict):
            return adapter.validate_json(msgspec.json.encode(cast("object", value)))
        return adapter.validate_python(value)
    except ValidationError as error:
        found = [{**one, "loc": ("body", *one["loc"])} for one in error.errors()]
        message = sentence(faults(found, cast("object", value)))
        raise InvalidValue(message or "the form is not valid") from None
    except RequestValidationError as error:
        raise InvalidValue(str(error)[:400]) from None


def _reply_values(reply: object) -> FormValues:
    body = bytes(reply.body) if isinstance(reply, Response) else b""
    decoded: object = msgspec.json.decode(body) if body else None
    if not isinstance(decoded, dict):
        return {}
    fields = cast("dict[str, object]", decoded)
    return {name: str(one) for name, one in fields.items() if isinstance(one, str | int)}


async def _provide(dependency: Callable[..., Any], request: Request) -> object:
    """Resolve a route's dependency as FastAPI does for a request."""
    hints = get_type_hints(dependency, include_extras=True)
    given: dict[str, object] = {}
    for name in inspect.signature(dependency).parameters:
        inner = _depends(hints[name])
        if inner is None or inner.dependency is None:
            given[name] = request
        else:
            given[name] = await _provide(inner.dependency, request)
    return await dependency(**given)


def _path_key(hint: object, name: str) -> str:
    """Return the placeholder of a parameter in the route's path."""
    return next((one.alias or name for one in marks(hint) if isinstance(one, params.Path)), name)


def _depends(hint: object) -> params.Depends | None:
    return next((one for one in marks(hint) if isinstance(one, params.Depends)), None)


def _is(hint: object, kind: type[object]) -> bool:
    return any(isinstance(one, kind) for one in marks(hint))
