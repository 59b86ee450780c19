"""The failure of a handler in another process, whose exception cannot be had here."""

from __future__ import annotations

from headway.core.errors import HandlerError


class HandlerCrashed(HandlerError):
    """A handler failed in its own process, or took the process with it.

    Attributes:
        text: the error for the record.
        died: whether the process ended.
    """

    code = "handler_crashed"

    def __init__(self, text: str, *, died: bool = False) -> None:
        super().__init__(text.partition("\n")[0])
        self.text = text
        self.died = died
