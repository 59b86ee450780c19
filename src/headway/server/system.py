"""A system: one of the ready-made programs on the engine, with routes of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fastapi import APIRouter

from headway.runtime.app import App
from headway.server.service import Service


class System(Protocol):
    """A ready-made program on the engine.

    Attributes:
        name: as `--system` names it.
    """

    @property
    def name(self) -> str:
        """As `--system` names it."""
        ...

    @property
    def routers(self) -> Sequence[APIRouter]:
        """Its routes, made by `headway.server.routes.router`; each names its policy."""
        ...

    def declare(self, app: App) -> None:
        """Adds its kinds to the app whose worker runs them; nothing if it has none."""
        ...

    async def start(self, service: Service) -> None:
        """Declares what it needs, and spawns what must run beside the server.

        Called before the first request is answered.
        """
        ...
