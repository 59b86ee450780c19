"""The doorkeeper: says who calls, and lets nobody call too often."""

from __future__ import annotations

from headway.core.errors import Unauthenticated
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

    async def admit(self, authorization: str | None, permission: Permission) -> Caller:
        """Lets a caller in who may do something.

        Args:
            authorization: the header of this name; None if there was none.
            permission: what it wants to do.

        Returns:
            Who it is.

        Raises:
            Unauthenticated: there is no token, or none that is known and lives.
            Forbidden: it may not do this.
            TooManyRequests: it asks more often than it may.
            StoreError: nobody can tell now.
        """
        text = _token(authorization)
        caller = await self._tokens.caller(text)
        if caller is None:
            message = "no token was given" if text is None else "the token is not known, or over"
            raise Unauthenticated(message, hint="send Authorization: Bearer hw_…")
        caller.check(permission)
        self._rates.take(caller.id, caller.name)
        return caller


def _token(authorization: str | None) -> str | None:
    scheme, _, text = (authorization or "").partition(" ")
    return text.strip() if scheme.lower() == "bearer" else None
