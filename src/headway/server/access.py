"""Access: bearer tokens, verified through a cache, and the permission that each route requires.

No route is without a policy, and no body is read before its caller is known.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, cast

from fastapi import Depends, Request
from fastapi.openapi.models import HTTPBearer
from fastapi.routing import APIRoute
from fastapi.security.base import SecurityBase

from headway.contract.definitions import DefineRequest, NoteUse, TokenSpec
from headway.contract.store import Store
from headway.contract.views import TokensQuery, TokenView
from headway.core.errors import AccessError, Forbidden, StoreError, TooManyRequests, Unauthenticated
from headway.runtime.timing import Timing
from headway.runtime.tokens import matches, parse
from headway.server.caller import (
    OPEN_CALLER,
    Caller,
    Permission,
    caller_of,
)

MOST_CALLERS = 10_000


class RateLimiter:
    """A bucket for each caller: it holds one second's requests, and fills evenly.

    Unlike gates this is not exact: it keeps one caller from using up the server.
    """

    def __init__(self, per_second: float | None, timing: Timing) -> None:
        """Make it.

        Args:
            per_second: requests of one caller; None for any number.
        """
        self._per_second = per_second
        self._timing = timing
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str, name: str) -> None:
        """Count one request.

        Raises:
            TooManyRequests: the bucket is empty.
        """
        rate = self._per_second
        if rate is None:
            return
        now = self._timing.monotonic()
        full = max(rate, 1.0)
        left, since = self._buckets.pop(caller, (full, now))
        left = min(full, left + (now - since) * rate)
        self._buckets[caller] = (max(left - 1, 0.0) if left >= 1 else left, now)
        if len(self._buckets) > MOST_CALLERS:
            self._buckets.popitem(last=False)
        if left < 1:
            message = f"the token {name!r} asks more than {rate:g} times a second"
            raise TooManyRequests(message, hint="send many jobs in one request, or wait")


FRESH_S = 2.0
"""Seconds for which a cached token is valid; a revoked one is refused within these."""
AWAY_S = 900.0
"""Seconds for which it is cached while the store is away: no token can be revoked there then, and
requests that need only authentication are still served."""
PATIENCE_S = 1.0
"""Seconds for which the store is asked again about what is known already."""
MOST = 10_000
NOTE_EACH_S = 60.0

_log = logging.getLogger("headway.server")


@dataclass(frozen=True, kw_only=True, slots=True)
class _CachedToken:
    """What was read of one id.

    Attributes:
        spec: the token; None if there is none.
        read_at: when the store said so.
        asked_at: when it was asked last, though it may have been away.
    """

    spec: TokenSpec | None
    caller: Caller
    read_at: float
    asked_at: float


class Authenticator:
    """Authenticates callers by their tokens, which it caches, and limits their request rates.

    Args:
        per_second: requests of one caller; None for any number.
    """

    def __init__(
        self, store: Store, timing: Timing, *, open_here: bool, per_second: float | None = None
    ) -> None:
        self._store = store
        self._timing = timing
        self._open_here = open_here
        self._rates = RateLimiter(per_second, timing)
        self._looked_at = self._asked_at = float("-inf")
        self._pages: OrderedDict[str, _CachedToken] = OrderedDict()
        self._used: dict[str, int] = {}

    async def is_open(self) -> bool:
        """Return whether no token is needed: if that was allowed, and until the first token."""
        now = self._timing.monotonic()
        if self._open_here and now - self._asked_at > FRESH_S:
            known = now - self._looked_at < AWAY_S
            found = await self._read(TokensQuery(), known=known)
            self._asked_at = self._timing.monotonic()
            if found is not None:
                self._open_here = not found
                self._looked_at = self._asked_at
        return self._open_here

    async def caller(self, text: str | None) -> Caller | None:
        """Return who calls.

        Args:
            text: of the token; None if none was sent.

        Returns:
            The caller; None if it is not known.
        """
        if await self.is_open():
            return OPEN_CALLER
        if text is None:
            return None
        try:
            token, secret = parse(text)
        except Unauthenticated:
            return None
        page = await self._page(token)
        now = self._timing.wall_at()
        if page.spec is None or not matches(page.spec, secret, now):
            return None
        self._used[token] = now
        return page.caller

    async def admit(
        self, authorization: str | None, permission: Permission, *, apart: bool = False
    ) -> Caller:
        """Authenticate a caller and check a permission.

        Args:
            authorization: the header of this name; None if there was none.
            apart: whether calls of this sort are counted apart from its others.

        Raises:
            Unauthenticated: there is no token, or it is unknown or has expired.
            Forbidden: it may not do this.
            TooManyRequests: its request rate is above the limit.
        """
        caller = await self._known(authorization)
        caller.check(permission)
        self._rates.take(f"{caller.id} apart" if apart else caller.id, caller.name)
        return caller

    async def check_again(self, authorization: str | None, caller: Caller) -> None:
        """Check again a caller that was authenticated a while ago, by the same header.

        Raises:
            Unauthenticated: its token is not known any more, or over.
            Forbidden: it may do something else now.
        """
        if await self._known(authorization) != caller:
            message = f"the token {caller.name!r} was changed in the meantime"
            raise Forbidden(message, hint="repeat the request with its current permissions")

    async def may_stay(self, authorization: str | None, caller: Caller) -> bool:
        """Return whether a stream may go on; it may while the store is away, to report that."""
        try:
            await self.check_again(authorization, caller)
        except AccessError:
            return False
        except StoreError:
            return True
        return True

    def forget(self, token: str) -> None:
        """Forget what was read of a token that was changed, and whether there are any."""
        self._pages.pop(token, None)
        self._looked_at = self._asked_at = float("-inf")

    async def note_uses(self) -> None:
        """Write the uses of tokens to the store periodically, until cancelled."""
        while True:
            await self._timing.pause(NOTE_EACH_S)
            await self.note()

    async def note(self) -> None:
        """Write the uses of tokens since the last write to the store."""
        used, self._used = self._used, {}
        if not used:
            return
        try:
            items = (NoteUse(used=tuple(used.items())),)
            await self._store.define(DefineRequest(items=items, author="server"))
        except StoreError as error:
            _log.warning("the use of tokens is not noted: %s", error)

    async def _known(self, authorization: str | None) -> Caller:
        text = _bearer(authorization)
        caller = await self.caller(text)
        if caller is None:
            if text is not None:
                message = "the token is unknown or has expired"
            elif authorization:
                message = "the Authorization header has no Bearer token"
            else:
                message = "no token was given"
            raise Unauthenticated(
                message,
                hint="send Authorization: Bearer hw_…; Headway's own programs read HEADWAY_TOKEN",
            )
        return caller

    async def _page(self, token: str) -> _CachedToken:
        page = self._pages.get(token)
        now = self._timing.monotonic()
        if page is not None and now - page.asked_at < FRESH_S:
            return page
        known = page is not None and now - page.read_at < AWAY_S
        found = await self._read(TokensQuery(ids=(token,)), known=known)
        now = self._timing.monotonic()
        if found is None and page is not None:
            page = replace(page, asked_at=now)
        else:
            spec = found[0].spec if found else None
            caller = OPEN_CALLER if spec is None else caller_of(spec)
            page = _CachedToken(spec=spec, caller=caller, read_at=now, asked_at=now)
        self._pages[token] = page
        self._pages.move_to_end(token)
        if len(self._pages) > MOST:
            self._pages.popitem(last=False)
        return page

    async def _read(self, query: TokensQuery, *, known: bool) -> Sequence[TokenView] | None:
        """Ask the store; None if it is away, and what was read before may be believed.

        Raises:
            StoreError: it is away, and nothing is known.
        """
        if not known:
            return await self._store.read(query)
        try:
            async with self._timing.limit(PATIENCE_S):
                return await self._store.read(query)
        except (StoreError, TimeoutError) as error:
            _log.warning("tokens are believed as they were read before: %s", error)
            return None


def _bearer(authorization: str | None) -> str | None:
    scheme, _, text = (authorization or "").partition(" ")
    return text.strip() if scheme.lower() == "bearer" else None


class Policy:
    """The permission that a route requires of its caller.

    Attributes:
        permission: what the route needs; None for a public route.
        apart: whether the calls of a token to this route are counted apart from its others, so
            that those cannot use up what it may ask.
        reach: raises Forbidden for a caller whose scope does not reach what the route is about;
            None for a route that looks at the scope itself.
    """

    def __init__(
        self,
        permission: Permission | None,
        *,
        apart: bool = False,
        reach: Callable[[Caller], None] | None = None,
    ) -> None:
        self.permission = permission
        self.apart = apart
        self.reach = reach

    async def __call__(self, request: Request) -> Caller:
        """Return the caller that was admitted."""
        return cast("Caller", request.state.caller)

    async def admit(self, request: Request) -> None:
        """Authenticate a request before its body is read.

        Raises:
            Unauthenticated: there is no token, or it is unknown or has expired.
            Forbidden: it may not do this, or its scope does not reach it.
            TooManyRequests: its request rate is above the limit.
        """
        if self.permission is None:
            request.state.caller = OPEN_CALLER
            return
        authorization = request.headers.get("authorization")
        authenticator: Authenticator = request.app.state.service.tokens
        caller = await authenticator.admit(authorization, self.permission, apart=self.apart)
        if self.reach is not None:
            self.reach(caller)
        request.state.caller = caller


class TokenPolicy(Policy, SecurityBase):
    """A policy that requires a token, and declares it in the OpenAPI document."""

    scheme_name = "HTTPBearer"
    model = HTTPBearer(description="A token created with `headway token create`.")


def needs(
    permission: Permission, *, apart: bool = False, reach: Callable[[Caller], None] | None = None
) -> Any:  # noqa: ANN401  (FastAPI's own marker)
    """Return what a route asks of its caller, to annotate that parameter; see `Policy`."""
    return Depends(TokenPolicy(permission, apart=apart, reach=reach))


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


def policy_of(route: APIRoute) -> Policy | None:
    """Return the policy that a route names; None if it names none."""
    found = [one.call for one in route.dependant.dependencies if isinstance(one.call, Policy)]
    return found[0] if found else None
