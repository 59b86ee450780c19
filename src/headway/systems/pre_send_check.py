"""A check right before a request to a provider: the connection is open, but no byte is sent.

Queues, handshakes and logins delay a message after the decision to send it. Conditions that may
change meanwhile, such as a recipient's opt-out, are checked again here. The check is passed in a
context variable, because the providers' official clients in between cannot pass it on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

Check = Callable[[], Awaitable[bool]]
"""Returns whether it took time; raises Withdrawn if the request must not be sent any more."""

_check: ContextVar[Check | None] = ContextVar("pre_send_check", default=None)


class Withdrawn(Exception):
    """The last check withdrew the request; it was not sent.

    Attributes:
        after: delay before the next decision whether to send it.
    """

    def __init__(self, after: str = "0s") -> None:
        super().__init__()
        self.after = after


@contextmanager
def checking(check: Check) -> Generator[None]:
    """Use a check for the requests of this block, and of tasks and threads with its context."""
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


class PreSendTrace:
    """An httpcore trace of one request that calls the check right before the first byte.

    Attributes:
        begun: whether the request, or part of it, may have been sent.
    """

    def __init__(self) -> None:
        self.begun = False

    async def trace(self, event: str, _: object) -> None:
        """Handle a trace event; passed to httpcore as the request's `trace` extension.

        Raises:
            Withdrawn: the request must not be sent.
        """
        if not self.begun and event.endswith("send_request_headers.started"):
            await check_before_send()
            self.begun = True


async def check_before_send() -> bool:
    """Call the context's check, if there is one; await this right before the first byte.

    Returns:
        Whether the check took time, so that a connection that had room may be busy by now.

    Raises:
        Withdrawn: the request must not be sent.
    """
    check = _check.get()
    return check is not None and await check()
