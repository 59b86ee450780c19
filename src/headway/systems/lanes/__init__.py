"""The system `lanes`: a job queue that programs in any language poll over HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from fastapi import APIRouter

from headway.contract.definitions import DeclareLane, DefineRequest, LaneSpec
from headway.core.errors import InvalidValue, located
from headway.runtime.app import App
from headway.runtime.declaration import LaneOptions, read_lane
from headway.server.service import Service
from headway.systems.lanes.pages import PAGES
from headway.systems.lanes.routes import ROUTES, VIEWS
from headway.web.page import DashboardPage


def _lane(name: str, options: object) -> LaneSpec:
    if not isinstance(options, Mapping):
        message = f"[lanes]: {name} is not a table"
        raise InvalidValue(message, hint=f'write a table: [lanes.{name}] with target = "5s"')
    with located(f"[lanes.{name}]: "):
        return read_lane(name, cast("LaneOptions", options))


NAME = "lanes"


class LanesSystem:
    """The system `lanes`.

    Attributes:
        lanes: lanes to declare when the server starts; an operator's values take precedence.
    """

    name: str = NAME
    routers: Sequence[APIRouter] = (ROUTES, VIEWS)
    pages: Sequence[DashboardPage] = PAGES

    def __init__(self, lanes: tuple[LaneSpec, ...]) -> None:
        self.lanes = lanes

    def declare(self, app: App) -> None:
        """Do nothing: workers in any language pull the jobs."""

    async def start(self, service: Service) -> None:
        """Declare the configured lanes to the store."""
        if self.lanes:
            items = tuple(DeclareLane(spec=spec) for spec in self.lanes)
            await service.store.define(DefineRequest(items=items, author="[lanes]"))


def make(settings: Mapping[str, object]) -> LanesSystem:
    """Build the system from the settings [lanes], without declaring anything.

    Raises:
        InvalidValue: a lane's settings are not valid.
    """
    return LanesSystem(tuple(_lane(name, options) for name, options in settings.items()))
