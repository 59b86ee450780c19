"""Replies that come, come late, are cut, or never come."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from headway.carrier.script import Fate, Taking
from headway.carrier.twilio_server.problems import Refused
from headway.carrier.twilio_server.shapes import Shape
from headway.carrier.world import World


class Silence(Response):
    """A reply that never comes: the connection stands until the caller gives up."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Waits until the caller has gone, and then says nothing."""
        del scope
        while (await receive())["type"] != "http.disconnect":
            pass
        await send({"type": "http.response.start", "status": 500, "headers": []})
        await send({"type": "http.response.body"})


class Cut(JSONResponse):
    """A reply that is cut in the middle."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Says half of it; the server then closes the connection."""

        async def half(message: Message) -> None:
            if message["type"] == "http.response.body":
                body: bytes = message["body"]
                message = {**message, "body": body[: len(body) // 2], "more_body": True}
            await send(message)

        await super().__call__(scope, receive, half)


def must_do(fate: Fate, code: int) -> None:
    """Lets a request pass that is to be done, whatever is replied.

    Args:
        fate: of what is to be done.
        code: of a refusal for the number's sake.

    Raises:
        Refused: it is not.
    """
    match fate.taking:
        case Taking.REFUSED:
            raise Refused(code, "Phone number does not appear to be valid")
        case Taking.TOO_MANY:
            raise Refused(20429, "Too Many Requests")
        case Taking.BROKEN:
            raise Refused(20500, "Internal Server Error")
        case Taking.TAKEN | Taking.UNSURE | Taking.CUT:
            pass


async def reply_of(world: World, fate: Fate, shape: Callable[[], Shape]) -> Response:
    """The reply to a request that was done.

    Args:
        world: in which it was done.
        fate: of what was done.
        shape: of what was done.
    """
    if world.rates.reply:
        await world.pace.pause(world.rates.reply)
    match fate.taking:
        case Taking.UNSURE:
            return Silence()
        case Taking.CUT:
            return Cut(shape(), 201)
        case _:
            return JSONResponse(shape(), 201)


def must_be_there(world: World, request: Request) -> None:
    """Lets a request pass unless the provider is away.

    Raises:
        Refused: it is.
    """
    if world.rates.away:
        raise Refused(20503, f"{request.url.path} is not available")
