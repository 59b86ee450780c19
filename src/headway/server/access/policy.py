"""The policy of a route: what a caller must be able to do; no route is without one."""

from __future__ import annotations

from typing import Annotated, Any, cast

from fastapi import Depends, Request
from fastapi.openapi.models import HTTPBearer
from fastapi.routing import APIRoute
from fastapi.security.base import SecurityBase

from headway.server.access.authenticator import Authenticator
from headway.server.access.caller import OPEN_CALLER, Caller, Permission


class Policy:
    """The permission that a route requires of its caller.

    Attributes:
        permission: what the route needs; None for a public route.
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
        """Return the caller that was admitted."""
        return cast("Caller", request.state.caller)

    async def admit(self, request: Request) -> None:
        """Authenticate a request before its body is read.

        Raises:
            Unauthenticated: there is no token, or it is unknown or has expired.
            Forbidden: it may not do this, or only for some tenants.
            TooManyRequests: its request rate is above the limit.
        """
        if self.permission is None:
            request.state.caller = OPEN_CALLER
            return
        authenticator = cast("Authenticator", request.app.state.authenticator)
        authorization = request.headers.get("authorization")
        caller = await authenticator.admit(authorization, self.permission, apart=self.apart)
        if self.all_tenants:
            caller.every_tenant()
        request.state.caller = caller


class TokenPolicy(Policy, SecurityBase):
    """A policy that requires a token, and declares it in the OpenAPI document."""

    scheme_name = "HTTPBearer"
    model = HTTPBearer(description="A token made by `headway token create`.")


def needs(permission: Permission, *, apart: bool = False, all_tenants: bool = False) -> Any:  # noqa: ANN401  (FastAPI's own marker)
    """Return what a route asks of its caller.

    Args:
        permission: what the caller must be able to do.
        apart: whether these calls are counted apart from the caller's others.
        all_tenants: whether a caller that is scoped to some tenants is refused.

    Returns:
        For the annotation of a parameter that is the `Caller`.
    """
    return Depends(TokenPolicy(permission, apart=apart, all_tenants=all_tenants))


def public() -> Any:  # noqa: ANN401  (FastAPI's own marker)
    """Mark a route as public, or as checking its caller by itself."""
    return Depends(Policy(None))


Observer = Annotated[Caller, needs(Permission.OBSERVE)]
"""A route's parameter, as those below: `caller: Observer`."""
Reader = Annotated[Caller, needs(Permission.READ)]
Sender = Annotated[Caller, needs(Permission.SEND)]
Definer = Annotated[Caller, needs(Permission.DEFINE)]
Public = Annotated[Caller, public()]
"""Of a route that anyone may call, or that verifies a signature instead of a token."""


async def check_again(request: Request, caller: Caller) -> None:
    """Check the caller of a long request again: its token may have expired meanwhile.

    Raises:
        Unauthenticated: it is.
        Forbidden: the token is for something else now.
        StoreError: the store cannot be read.
    """
    authenticator = cast("Authenticator", request.app.state.authenticator)
    await authenticator.check_again(request.headers.get("authorization"), caller)


def policy_of(route: APIRoute) -> Policy | None:
    """Return the policy that a route names; None if it names none."""
    found = [one.call for one in route.dependant.dependencies if isinstance(one.call, Policy)]
    return found[0] if found else None
