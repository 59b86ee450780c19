"""One request and its answer, whatever carries them."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Unreachable(Exception):
    """No connection; nothing was sent."""


class AnswerLost(Exception):
    """It was sent, perhaps in part, and no whole answer came."""


class Request(NamedTuple):
    """What is sent: to a path below the server's address, with JSON or without."""

    method: str
    path: str
    content: bytes | None
    params: tuple[tuple[str, str], ...]
    headers: tuple[tuple[str, str], ...]


class Answer(NamedTuple):
    """What came back."""

    status: int
    body: bytes
    retry_after: str


class Carrier(Protocol):
    """Carries requests to one server."""

    async def send(self, request: Request, limit_s: float) -> Answer:
        """Sends a request, and reads the answer.

        Raises:
            Unreachable: it was not sent.
            AnswerLost: it was sent, perhaps in part.
        """
        ...

    async def close(self) -> None:
        """Lets go of all connections."""
        ...
