"""The last moment before a request to a provider: the connection is there, not a byte is written.

Between the decision to send a message and its first byte lie queues, handshakes and logins. What
may change meanwhile, such as a recipient's opt-out, is checked here once more. The check is found
by the context, as the official clients of providers stand in between and pass nothing on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

Check = Callable[[], Awaitable[bool]]
"""Returns whether it took time; raises Withdrawn if the request is not to be sent any more."""

_check: ContextVar[Check | None] = ContextVar("last_moment", default=None)


class Withdrawn(Exception):
    """A request was not sent, because of what had changed by its last moment."""


@contextmanager
def checking(check: Check) -> Generator[None]:
    """Have requests of this block, and of the tasks and threads it starts, call a check."""
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


class FirstByte:
    """The trace of one request by httpcore: it calls the check right before the first byte.

    Attributes:
        begun: whether the request may have been sent, or a part of it.
    """

    def __init__(self) -> None:
        self.begun = False

    async def trace(self, event: str, _: object) -> None:
        """Take an event of the request, as its extension `trace` does.

        Raises:
            Withdrawn: the request is not to be sent.
        """
        if not self.begun and event.endswith("send_request_headers.started"):
            await last_moment()
            self.begun = True


async def last_moment() -> bool:
    """Call the check of this context, if there is one; to be awaited right before the first byte.

    Returns:
        Whether it took time: what was free for the request may be taken by now.

    Raises:
        Withdrawn: the request is not to be sent.
    """
    check = _check.get()
    return check is not None and await check()
