"""What a page of the dashboard declares: what it reads and shows, and what can be done on it.

An action is an HTTP route's own function, called with what a form says. So a form is refused for
the same reasons, validated by the same models and answered by the same errors as a request of a
program, and the `curl` line beside it is that request.
"""

from __future__ import annotations

import inspect
import json
import re
import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import (
    Any,
    Literal,
    Protocol,
    cast,
    get_type_hints,
    runtime_checkable,
)
from urllib.parse import quote, urlencode

import msgspec
from fastapi import Request, Response, params
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.routing import BaseRoute

from headway.core.errors import AccessError, InvalidValue, InvariantBroken
from headway.runtime.faults import faults, sentence
from headway.server.access import Policy, policy_of
from headway.server.caller import Caller, Permission
from headway.server.routing import marks
from headway.server.service import Service
from headway.web.sight import Sight

Values = Mapping[str, str]
"""What a query string or a form says, by name."""
Facts = Mapping[str, object]
"""What a template shows, by name.

`now` is the store's time, ms UTC. With a `version`, the live fragments are rendered only when it is
another than at the last look: it must tell all that they show but how time passes.
"""


ENGINE = "headway.web"
"""The package of the pages that are no system's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """One look at a page.

    Attributes:
        sight: what several pages need, read once for all.
        caller: who looks; `read` shows no more than the same caller is told over HTTP.
        values: the page's `params` as the URL gives them; one that is not given is "".
    """

    service: Service
    sight: Sight
    caller: Caller
    values: Values


def everyone(_: Caller) -> None:
    """Refuse no caller: the page shows each what it may see."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """One input of an action's form.

    Attributes:
        required: whether it must be filled in.
        choices: of a select: each value with its label.
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
    hint="20m, 2h, or 2026-12-01T10:00Z; leave empty until it is ended by hand.",
)


def int_of(values: Values, name: str) -> object:
    """Return a number of a form as routes take it; the route refuses any other text."""
    text = values.get(name, "").strip()
    return int(text) if re.fullmatch("-?[0-9]{1,18}", text) else text


def first_row(values: Values) -> int:
    """Return the row with which a page of a list begins, from `from`; 0 for any other text."""
    text = values["from"]
    return int(text) if re.fullmatch("[0-9]{1,6}", text) else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A call of an HTTP route.

    Attributes:
        path: the placeholders of its path.
        body: its JSON body; None for none.
    """

    path: Values = field(default_factory=dict[str, str])
    query: Mapping[str, object] = field(default_factory=dict[str, object])
    body: Mapping[str, object] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    """Something that can be done: a form that calls a route.

    Attributes:
        name: unique among all actions; stands in the form's URL.
        label: of the button that opens the form.
        title: of the form; `{gate}` and the like are filled in from `of` and `prefill`.
        explains: what it does, in a sentence or two.
        endpoint: the function of an HTTP route, that checks and does it.
        call: makes the route's call of what the form says; what it says in the fields `reason` and
            `until` is added to the call's body.
        of: what the button must name, such as ("gate",).
        reach: refuses whom the route would refuse, by what the button names.
        done: what is told when it is done; filled in from what the form and the reply say.
        danger: whether its buttons warn.
        prefill: values of fields, and of the title, as things stand now.
    """

    name: str
    label: str
    title: str
    explains: str
    endpoint: Callable[..., Awaitable[object]]
    call: Callable[[Values], Call]
    done: str
    of: Sequence[str] = ()
    fields: Sequence[Field] = (REASON,)
    reach: Callable[[Caller, Values], None] = lambda _caller, _values: None
    danger: bool = False
    prefill: Callable[[Look], Awaitable[Values]] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """A page of the dashboard.

    Attributes:
        path: below `/ui`, "" for the first page; may hold placeholders such as `jobs/{id}`, that
            are among the values of a look.
        title: in the menu and as the heading.
        fragments: the blocks of the template that are kept live; each is within an element that
            has its name as its id.
        read: what the template shows, of one look.
        permission: what a caller must be able to do.
        reach: raises Forbidden for a caller whose scope does not reach it.
        menu: whether it stands in the menu.
        package: whose folder `templates` holds the template.
    """

    path: str
    title: str
    template: str
    fragments: Sequence[str]
    read: Callable[[Look], Awaitable[Facts]]
    permission: Permission
    reach: Callable[[Caller], None]
    params: Sequence[str] = ()
    actions: Sequence[Action] = ()
    menu: bool = True
    package: str = ENGINE

    @property
    def group(self) -> str:
        """Its heading in the menu; the engine's own pages stand above all headings."""
        if self.package == ENGINE:
            return ""
        return "Bridges" if self.package.startswith("headway.bridges.") else "Systems"


@runtime_checkable
class HasPages(Protocol):
    """A system that contributes pages."""

    @property
    def pages(self) -> Sequence[Page]:
        """Its pages, in the order of the menu."""
        ...


_PLACEHOLDER = re.compile(r"\{(\w+)(?::\w+)?\}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Doable:
    """An action with the route that it calls.

    Attributes:
        path: of the route, with its placeholders.
        permission: what the route asks of its caller.
        reach: refuses a caller whose scope does not reach what the route is about.
    """

    action: Action
    method: str
    path: str
    permission: Permission
    reach: Callable[[Caller], None] | None

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
        if self.reach is not None:
            self.reach(caller)
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
        """Return the same call as a shell command.

        Args:
            token: whether the server asks for one.
        """
        call = self._call(values)
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

    def _call(self, values: Values) -> Call:
        call = self.action.call(values)
        names = {field.name for field in self.action.fields}
        more: dict[str, object] = {}
        if "until" in names and (until := values.get("until", "").strip()):
            more["until"] = until
        if "reason" in names:
            more["reason"] = values.get("reason", "")
        return replace(call, body={**(call.body or {}), **more}) if more else call


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
            reach=policy.reach,
        )
    return found


def _read(hint: Any, value: object) -> object:  # noqa: ANN401  (an annotation)
    """Return a value as the route takes it, by the same models as from JSON.

    Raises:
        InvalidValue: it is not valid.
    """
    adapter: TypeAdapter[object] = TypeAdapter(hint)
    try:
        if isinstance(value, dict):
            return adapter.validate_json(msgspec.json.encode(cast("object", value)))
        return adapter.validate_python(value)
    except ValidationError as error:
        found = [{**one, "loc": ("body", *one["loc"])} for one in error.errors()]
        told = sentence(faults(found, cast("object", value)))
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


async def _provide(dependency: Callable[..., Any], request: Request) -> object:
    """Return what a route depends on, made as the route's own request would have it made."""
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
    return next((one for one in marks(hint) if isinstance(one, params.Depends)), None)


def _is(hint: object, kind: type[object]) -> bool:
    return any(isinstance(one, kind) for one in marks(hint))
