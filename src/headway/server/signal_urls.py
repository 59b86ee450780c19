"""Signal URLs of this server: made for workers over HTTP, and let in without a token."""

from __future__ import annotations

from typing import Any, cast

from fastapi import Depends, Request

from headway.core.errors import Unauthenticated
from headway.runtime.signal_urls import SignalUrls, find_fault
from headway.server.access.caller import Caller
from headway.server.access.permissions import Permission
from headway.server.access.policy import Policy
from headway.server.service import Service

SIGNED = Caller(id="signal-url", name="signal URL", may=frozenset({Permission.SIGNAL}))
"""Whoever has a signed URL: it says what may be signalled, and by its signature that we made it."""


class TokenOrSignature(Policy):
    """Lets a request pass whose URL we have signed; any other as `Policy` does."""

    async def admit(self, request: Request) -> None:
        """Lets a request pass, before anything of its body is read.

        Raises:
            Unauthenticated: the URL's signature is not ours, or over; or there is neither a
                signature nor a token.
            Forbidden: the token is not for this.
        """
        asked = request.query_params
        expires, signature = asked.getlist("expires"), asked.getlist("signature")
        if not expires and not signature:
            await super().admit(request)
            return
        service = cast("Service", request.app.state.service)
        fault: str | None = "it is not signed once"
        if len(expires) == len(signature) == 1:
            fault = find_fault(
                service.options.signing_keys,
                request.path_params["key"],
                expires=expires[0],
                signature=signature[0],
                now=service.timing.wall_at(),
            )
        if fault is not None:
            message = f"the signal URL is not good: {fault}"
            raise Unauthenticated(message, hint="use the URL whole, as job.signal_url gave it")
        request.state.caller = SIGNED


def by_token_or_signature() -> Any:  # noqa: ANN401  (FastAPI's own marker)
    """What a route of signals asks of its caller."""
    return Depends(TokenOrSignature(Permission.SIGNAL))


def signal_urls(service: Service, base: str) -> SignalUrls:
    """Makes the URLs under which the outside world signals runs.

    Args:
        service: whose keys sign them.
        base: the server's own address, used while the public one is not known.
    """
    options = service.options
    return SignalUrls(base=options.public_url or base, keys=options.signing_keys)
