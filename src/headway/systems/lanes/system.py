"""The system as the server sees it: its routes, and the lanes that it declares."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter

from headway.contract.definitions import DeclareLane, DefineRequest, LaneSpec
from headway.runtime.app import App
from headway.server.service import Service
from headway.systems.lanes.pages import PAGES
from headway.systems.lanes.routes import dead, enqueue, pull, settle, status
from headway.web.page import Page

NAME = "lanes"


class LanesSystem:
    """The system `lanes`.

    Attributes:
        lanes: what is declared when the server starts; an operator's values win over it.
    """

    name: str = NAME
    routers: Sequence[APIRouter] = (
        enqueue.ROUTES,
        pull.ROUTES,
        settle.ROUTES,
        status.ROUTES,
        dead.ROUTES,
    )
    pages: Sequence[Page] = PAGES

    def __init__(self, lanes: tuple[LaneSpec, ...]) -> None:
        self.lanes = lanes

    def declare(self, app: App) -> None:
        """Nothing: its jobs are pulled by workers of any language."""

    async def start(self, service: Service) -> None:
        """Declare the lanes of the settings; the store keeps them, and workers obey them."""
        if self.lanes:
            items = tuple(DeclareLane(spec=spec) for spec in self.lanes)
            await service.store.define(DefineRequest(items=items, author="[lanes]"))
