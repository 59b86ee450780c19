"""Routes that look at the caller first, and then read a body that is strict JSON."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from json import JSONDecodeError
from typing import Any

import msgspec
from fastapi import Request, Response
from fastapi.routing import APIRoute

from headway.server.access.policy import policy_of

_decode = msgspec.json.Decoder().decode


class StrictRequest(Request):
    """A request whose JSON is decoded strictly."""

    async def json(self) -> Any:  # noqa: ANN401  (whatever the body says)
        """The body as JSON.

        Raises:
            JSONDecodeError: it is none, or nested too deeply.
        """
        body = await self.body()
        try:
            return _decode(body)
        except RecursionError:
            message = "it is nested too deeply"
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            message = str(error)
        # The body itself stays out of the error: it may hold a secret.
        raise JSONDecodeError(message, "", 0)


class Strict(APIRoute):
    """A route whose callers are admitted first, and whose bodies are strict JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, given strict requests of admitted callers."""
        handle = super().get_route_handler()
        policy = policy_of(self)

        async def strictly(request: Request) -> Response:
            # FastAPI reads the body before its dependencies: nobody unknown may make it do so.
            if policy is not None:
                await policy.admit(request)
            return await handle(StrictRequest(request.scope, request.receive))

        return strictly
