"""The policy of a route: what a caller must be able to do; no route is without one."""

from __future__ import annotations

from typing import Any, cast

from fastapi import Depends, Request
from fastapi.openapi.models import HTTPBearer
from fastapi.routing import APIRoute
from fastapi.security.base import SecurityBase

from headway.server.access.caller import ANYBODY, Caller
from headway.server.access.doorkeeper import Doorkeeper
from headway.server.access.permissions import Permission


class Policy:
    """Lets callers pass that may do what a route does.

    Attributes:
        permission: what; None for a route that anybody may call.
        apart: whether the calls of a token to this route are counted apart from its others, so
            that those cannot use up what it may ask.
        all_tenants: whether a caller that is scoped to some tenants is refused.
    """

    def __init__(
        self, permission: Permission | None, *, apart: bool = False, all_tenants: bool = False
    ) -> None:
        self.permission = permission
        self.apart = apart
        self.all_tenants = all_tenants

    async def __call__(self, request: Request) -> Caller:
        """The caller that was admitted."""
        return cast("Caller", request.state.caller)

    async def admit(self, request: Request) -> None:
        """Lets a request pass, before anything of its body is read.

        Raises:
            Unauthenticated: there is no token, or none that is known and lives.
            Forbidden: it may not do this, or only for some tenants.
            TooManyRequests: it asks more often than it may.
        """
        if self.permission is None:
            request.state.caller = ANYBODY
            return
        door = cast("Doorkeeper", request.app.state.door)
        authorization = request.headers.get("authorization")
        caller = await door.admit(authorization, self.permission, apart=self.apart)
        if self.all_tenants:
            caller.every_tenant()
        request.state.caller = caller


class Guarded(Policy, SecurityBase):
    """A policy that asks for a token; the description of the API says so."""

    scheme_name = "HTTPBearer"
    model = HTTPBearer(description="A token made by `headway token create`.")


def needs(permission: Permission, *, apart: bool = False, all_tenants: bool = False) -> Any:  # noqa: ANN401  (FastAPI's own marker)
    """What a route asks of its caller.

    Args:
        permission: what the caller must be able to do.
        apart: whether these calls are counted apart from the caller's others.
        all_tenants: whether a caller that is scoped to some tenants is refused.

    Returns:
        For the annotation of a parameter that is the `Caller`.
    """
    return Depends(Guarded(permission, apart=apart, all_tenants=all_tenants))


def public() -> Any:  # noqa: ANN401  (FastAPI's own marker)
    """Says of a route that anybody may call it, or that it looks at its caller by itself."""
    return Depends(Policy(None))


async def check_again(request: Request, caller: Caller) -> None:
    """Lets the caller of a request stay that takes long: its token may be over meanwhile.

    Raises:
        Unauthenticated: it is.
        Forbidden: the token is for something else now.
        StoreError: nobody can tell now.
    """
    door = cast("Doorkeeper", request.app.state.door)
    await door.check_again(request.headers.get("authorization"), caller)


def policy_of(route: APIRoute) -> Policy | None:
    """The policy that a route names; None if it names none."""
    found = [one.call for one in route.dependant.dependencies if isinstance(one.call, Policy)]
    return found[0] if found else None
