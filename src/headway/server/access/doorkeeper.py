"""The doorkeeper: says who calls, and lets nobody call too often."""

from __future__ import annotations

from headway.core.errors import Forbidden, Unauthenticated
from headway.server.access.caller import Caller
from headway.server.access.permissions import Permission
from headway.server.access.request_rate import RequestRates
from headway.server.access.token_book import TokenBook


class Doorkeeper:
    """Lets callers in."""

    def __init__(self, tokens: TokenBook, rates: RequestRates) -> None:
        """Puts one at the door.

        Args:
            tokens: who holds which.
            rates: how often each may call.
        """
        self._tokens = tokens
        self._rates = rates

    async def admit(
        self, authorization: str | None, permission: Permission, *, apart: bool = False
    ) -> Caller:
        """Lets a caller in who may do something.

        Args:
            authorization: the header of this name; None if there was none.
            permission: what it wants to do.
            apart: whether calls of this sort are counted apart from its others.

        Returns:
            Who it is.

        Raises:
            Unauthenticated: there is no token, or none that is known and lives.
            Forbidden: it may not do this.
            TooManyRequests: it asks more often than it may.
            StoreError: nobody can tell now.
        """
        caller = await self._known(authorization)
        caller.check(permission)
        self._rates.take(f"{caller.id} apart" if apart else caller.id, caller.name)
        return caller

    async def check_again(self, authorization: str | None, caller: Caller) -> None:
        """Lets a caller stay that was let in a while ago; costs little if asked often.

        Args:
            authorization: the header that it was let in with.
            caller: as whom.

        Raises:
            Unauthenticated: its token is not known any more, or over.
            Forbidden: it may do something else now.
            StoreError: nobody can tell now.
        """
        if await self._known(authorization) != caller:
            message = f"the token {caller.name!r} was changed meanwhile"
            raise Forbidden(message, hint="ask again, to be told what it may do now")

    async def _known(self, authorization: str | None) -> Caller:
        text = _token(authorization)
        caller = await self._tokens.caller(text)
        if caller is None:
            if text is not None:
                message = "the token is not known, or has ended"
            elif authorization:
                message = "the header Authorization holds no Bearer token"
            else:
                message = "no token was given"
            raise Unauthenticated(message, hint="send Authorization: Bearer hw_…")
        return caller


def _token(authorization: str | None) -> str | None:
    scheme, _, text = (authorization or "").partition(" ")
    return text.strip() if scheme.lower() == "bearer" else None
