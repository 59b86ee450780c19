"""Access: bearer tokens, verified through a cache, and the permission that each route requires.

Every route has a policy, and no body is read before its caller is authenticated.
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
from headway.server.caller import OPEN_CALLER, Caller, Permission, caller_of

MOST_CALLERS = 10_000


class RateLimiter:
    """A token bucket for each caller, with the capacity of one second's requests.

    Unlike gates this is not exact: it prevents one caller from overloading the server.
    """

    def __init__(self, per_second: float | None, timing: Timing) -> None:
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
            message = f"the token {name!r} sends more than {rate:g} requests per second"
            raise TooManyRequests(message, hint="send many jobs in one request, or wait")


FRESH_S = 2.0
"""How long a cached token is used; a revoked token is refused within this time."""
CACHED_WITHOUT_STORE_S = 900.0
"""How long a cached token is used while the store is unavailable.

No token can be revoked in this store then, and requests that need only authentication still work.
"""
STORE_TIMEOUT_S = 1.0
"""Timeout of the store when a cached token is refreshed."""
MOST_CACHED = 10_000
NOTE_EACH_S = 60.0

_log = logging.getLogger("headway.server")


@dataclass(frozen=True, kw_only=True, slots=True)
class _CachedToken:
    """A cached read of one token id.

    Attributes:
        spec: the token; None if there is none with this id.
        read_at: when the store last returned it.
        queried_at: when the store was last queried, even if it was unavailable.
    """

    spec: TokenSpec | None
    caller: Caller
    read_at: float
    queried_at: float


class Authenticator:
    """Authenticates callers by their tokens, which it caches, and limits their request rates.

    Args:
        open_here: whether no token is required until the store has its first.
        per_second: rate limit of a caller; None for no limit.
    """

    def __init__(
        self, store: Store, timing: Timing, *, open_here: bool, per_second: float | None = None
    ) -> None:
        self._store = store
        self._timing = timing
        self._open_here = open_here
        self._rates = RateLimiter(per_second, timing)
        self._read_at = self._queried_at = float("-inf")
        self._cache: OrderedDict[str, _CachedToken] = OrderedDict()
        self._used: dict[str, int] = {}

    async def is_open(self) -> bool:
        """Return whether no token is required: if allowed, and only until the first token."""
        now = self._timing.monotonic()
        if self._open_here and now - self._queried_at > FRESH_S:
            cache, is_cached = self._cache, now - self._read_at < CACHED_WITHOUT_STORE_S
            found = await self._read(TokensQuery(), is_cached=is_cached)
            if cache is not self._cache:
                # The first token may have been created since: the next request reads again.
                return self._open_here
            self._queried_at = self._timing.monotonic()
            if found is not None:
                self._open_here = not found
                self._read_at = self._queried_at
        return self._open_here

    async def caller(self, text: str | None) -> Caller | None:
        """Return the caller with a token; None if it is missing, malformed, unknown or expired."""
        if await self.is_open():
            return OPEN_CALLER
        if text is None:
            return None
        try:
            token, secret = parse(text)
        except Unauthenticated:
            return None
        cached = await self._token(token)
        now = self._timing.wall_at()
        if cached.spec is None or not matches(cached.spec, secret, now):
            return None
        self._used[token] = now
        return cached.caller

    async def admit(
        self, authorization: str | None, permission: Permission, *, own_limit: bool = False
    ) -> Caller:
        """Authenticate a caller and check a permission.

        Args:
            own_limit: whether this request counts against a rate limit of its own.

        Raises:
            Unauthenticated: there is no token, or it is unknown or has expired.
            Forbidden: the caller does not have the permission.
            TooManyRequests: the caller's request rate is above the limit.
        """
        caller = await self._authenticate(authorization)
        caller.check(permission)
        self._rates.take(f"{caller.id} own limit" if own_limit else caller.id, caller.name)
        return caller

    async def check_again(self, authorization: str | None, caller: Caller) -> None:
        """Check that the header of an earlier authentication still yields the same caller.

        Raises:
            Unauthenticated: the token was revoked or has expired.
            Forbidden: the token was changed.
        """
        if await self._authenticate(authorization) != caller:
            message = f"the token {caller.name!r} was changed in the meantime"
            raise Forbidden(message, hint="repeat the request with its current permissions")

    async def may_stay(self, authorization: str | None, caller: Caller) -> bool:
        """Return whether a stream may continue; while the store is unavailable, it may."""
        try:
            await self.check_again(authorization, caller)
        except AccessError:
            return False
        except StoreError:
            return True
        return True

    def forget(self, token: str) -> None:
        """Invalidate the cache of a changed token, and of whether there are any tokens.

        A read that began before is not cached, either.
        """
        self._cache = OrderedDict(self._cache)
        self._cache.pop(token, None)
        self._read_at = self._queried_at = float("-inf")

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
            self._used = used | self._used
            _log.warning("token uses not stored error=%r", str(error))

    async def _authenticate(self, authorization: str | None) -> Caller:
        text = _bearer(authorization)
        caller = await self.caller(text)
        if caller is None:
            if text is not None:
                message = "the token is unknown or has expired"
            elif authorization:
                message = "the Authorization header does not begin with Bearer"
            else:
                message = "no token was given"
            raise Unauthenticated(
                message,
                hint="send Authorization: Bearer hw_…; Headway's own programs read HEADWAY_TOKEN",
            )
        return caller

    async def _token(self, token: str) -> _CachedToken:
        cache = self._cache
        cached = cache.get(token)
        now = self._timing.monotonic()
        if cached is not None and now - cached.queried_at < FRESH_S:
            return cached
        is_cached = cached is not None and now - cached.read_at < CACHED_WITHOUT_STORE_S
        found = await self._read(TokensQuery(ids=(token,)), is_cached=is_cached)
        now = self._timing.monotonic()
        if found is None and cached is not None:
            cached = replace(cached, queried_at=now)
        else:
            spec = found[0].spec if found else None
            caller = OPEN_CALLER if spec is None else caller_of(spec)
            cached = _CachedToken(spec=spec, caller=caller, read_at=now, queried_at=now)
        cache[token] = cached
        cache.move_to_end(token)
        if len(cache) > MOST_CACHED:
            cache.popitem(last=False)
        return cached

    async def _read(self, query: TokensQuery, *, is_cached: bool) -> Sequence[TokenView] | None:
        """Query the store; return None if it is unavailable and there is a cached result."""
        if not is_cached:
            return await self._store.read(query)
        try:
            async with self._timing.limit(STORE_TIMEOUT_S):
                return await self._store.read(query)
        except (StoreError, TimeoutError) as error:
            _log.warning("using cached tokens: %s", str(error) or "the store did not respond")
            return None


def _bearer(authorization: str | None) -> str | None:
    scheme, _, text = (authorization or "").partition(" ")
    return text.strip() if scheme.lower() == "bearer" else None


@dataclass(frozen=True, eq=False)
class Policy:
    """The permission that a route requires of its caller.

    Attributes:
        permission: None for a public route.
        own_limit: whether the route has its own rate limit, so that the caller's other requests
            cannot use it up.
        reach: raises Forbidden if the route is outside the caller's scope; None if the route
            checks the scope itself.
    """

    permission: Permission | None
    own_limit: bool = False
    reach: Callable[[Caller], None] | None = None

    async def __call__(self, request: Request) -> Caller:
        """Return the caller that `admit` authenticated."""
        return cast("Caller", request.state.caller)

    async def admit(self, request: Request) -> None:
        """Authenticate a request before its body is read, as `Authenticator.admit` does."""
        if self.permission is None:
            request.state.caller = OPEN_CALLER
            return
        authorization = request.headers.get("authorization")
        authenticator: Authenticator = request.app.state.service.tokens
        caller = await authenticator.admit(authorization, self.permission, own_limit=self.own_limit)
        if self.reach is not None:
            self.reach(caller)
        request.state.caller = caller


class TokenPolicy(Policy, SecurityBase):
    """A policy that requires a token, and declares it in the OpenAPI document."""

    scheme_name = "HTTPBearer"
    model = HTTPBearer(description="A token created with `headway token create`.")


def needs(
    permission: Permission,
    *,
    own_limit: bool = False,
    reach: Callable[[Caller], None] | None = None,
) -> Any:  # noqa: ANN401  (FastAPI's own marker)
    """Return the annotation of a route's `caller` parameter that requires a permission."""
    return Depends(TokenPolicy(permission, own_limit=own_limit, reach=reach))


def public() -> Any:  # noqa: ANN401  (FastAPI's own marker)
    """Return the annotation for a route that is public, or authenticates its caller itself."""
    return Depends(Policy(None))


Observer = Annotated[Caller, needs(Permission.OBSERVE)]
"""Annotation of a route's parameter, as are those below: `caller: Observer`."""
TenantsObserver = Annotated[Caller, needs(Permission.OBSERVE, reach=Caller.every_tenant)]
"""For data of all tenants, within the caller's lanes."""
WholeObserver = Annotated[Caller, needs(Permission.OBSERVE, reach=Caller.whole)]
"""For data of the whole store."""
Reader = Annotated[Caller, needs(Permission.READ)]
Sender = Annotated[Caller, needs(Permission.SEND)]
Definer = Annotated[Caller, needs(Permission.DEFINE)]
Public = Annotated[Caller, public()]
"""For a route that anyone may call, or that verifies a signature instead of a token."""


def policy_of(route: APIRoute) -> Policy | None:
    """Return the policy of a route; None if it declares none."""
    found = [one.call for one in route.dependant.dependencies if isinstance(one.call, Policy)]
    return found[0] if found else None
