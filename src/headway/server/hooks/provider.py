"""A provider: whose signature proves a webhook, and what the webhook says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from headway.contract.signals import Signal
from headway.server.hooks.request import HookRequest

Reading = Callable[[HookRequest], Sequence[Signal]]
"""What a webhook says, as signals; none if it says nothing to a job. It is asked only about
webhooks that were proved, and must answer the same for the same webhook: its event ids are what
keeps a repeated one from having its effect again."""


class Provider(Protocol):
    """Whose signature proves a webhook, and what the webhook says."""

    def verify(self, request: HookRequest, now: int) -> None:
        """Lets a webhook pass that its provider has signed.

        Args:
            request: as it came.
            now: the moment, ms UTC.

        Raises:
            Unauthenticated: it is not signed, or not by the provider, or too long ago.
        """
        ...

    def signals(self, request: HookRequest) -> Sequence[Signal]:
        """What a proved webhook says.

        Raises:
            InvalidValue: it is not understood.
        """
        ...
