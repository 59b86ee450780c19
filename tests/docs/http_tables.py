"""The tables of the HTTP reference, generated from the server's own routes, errors and roles."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from fastapi import APIRouter
from fastapi.routing import APIRoute

from headway.contract.definitions import Role
from headway.core.errors import HeadwayError
from headway.server.access import policy_of
from headway.server.bodies.work import AnyOutcome, OutcomeBody
from headway.server.build import ROUTERS
from headway.server.caller import ROLES, Permission
from headway.server.problems import STATUSES, status_of
from tests.docs.docstrings import summary

OTHERS = (
    ("unknown_path", 404, "There is nothing at this path."),
    ("unknown_method", 405, "The method does not apply to the path."),
    ("request_timeout", 408, "The body did not arrive in time; nothing was written."),
    ("unsupported_media_type", 415, "The body is compressed; send it as it is."),
    ("head_too_large", 431, "The head has more than 64 KiB; the connection is closed."),
    ("bug", 500, "The server had an unexpected error; its log has the details."),
)
"""Problems without an error class."""


def routes(routers: Iterable[APIRouter] = ROUTERS) -> list[tuple[str, ...]]:
    """Return each route with the permission that its caller needs."""
    return [
        (
            f"`{method}`",
            f"`{route.path.replace(':path', '')}`",
            _permission(route),
            f"{route.summary}.",
        )
        for router in routers
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in sorted(route.methods)
    ]


def _permission(route: APIRoute) -> str:
    policy = policy_of(route)
    return f"`{policy.permission}`" if policy and policy.permission else "none"


def problems() -> list[tuple[str, ...]]:
    """Return each code with its status and meaning, starting with those of the error classes."""
    told = [(f"`{one.code}`", str(status_of(one(""))), summary(one)) for one in _leaves()]
    return told + [(f"`{code}`", str(status), text) for code, status, text in OTHERS]


def _leaves(kind: type[HeadwayError] = HeadwayError) -> Iterable[type[HeadwayError]]:
    children = [one for one in kind.__subclasses__() if one.__module__ == HeadwayError.__module__]
    # All faults of the server itself are reported under a single code.
    if not children and status_of(kind("")) != STATUSES[HeadwayError]:
        yield kind
    for child in children:
        yield from _leaves(child)


def permissions() -> list[tuple[str, ...]]:
    """Return each permission with the roles that have it."""
    return [
        (f"`{one}`", *("yes" if one in ROLES[role] else "" for role in Role)) for one in Permission
    ]


def outcomes() -> list[tuple[str, ...]]:
    """Return each outcome of a run with the fields that only it has."""
    bodies: tuple[type[OutcomeBody], ...] = get_args(AnyOutcome)
    return [(f"`{_word(one)}`", ", ".join(_own_fields(one)), summary(one)) for one in bodies]


def _word(of: type[OutcomeBody]) -> str:
    return str(get_args(of.model_fields["outcome"].annotation)[0])


def _own_fields(of: type[OutcomeBody]) -> Iterable[str]:
    shared = {"outcome", *OutcomeBody.model_fields}
    return (f"`{name}`" for name in of.model_fields if name not in shared)
