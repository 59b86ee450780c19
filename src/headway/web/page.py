"""What a page of the dashboard declares: what it reads, what it shows, what can be done on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from headway.server.access.caller import Caller, Permission
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


REASON = Field(name="reason", label="Reason", hint="Stands on the trail beside your name.")
UNTIL = Field(
    name="until",
    label="Until",
    hint="20m, 2h, or 2026-12-01T10:00Z; empty: until it is ended by hand.",
)


def reason_of(values: Values) -> dict[str, object]:
    """What a form says in `REASON`, as routes take it."""
    return {"reason": values.get("reason", "")}


def until_of(values: Values) -> dict[str, object]:
    """What a form says in `UNTIL`, as routes take it; nothing if it says nothing."""
    until = values.get("until", "").strip()
    return {"until": until} if until else {}


def int_of(values: Values, name: str) -> object:
    """A number of a form as routes take it; any other text is left to the route to refuse."""
    text = values.get(name, "").strip()
    return int(text) if text.isascii() and text.lstrip("-").isdigit() and len(text) < 19 else text


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
        call: makes the route's call of what the form says.
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
