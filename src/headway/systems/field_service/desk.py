"""The desk: what the routes and handlers of this system work with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends

from headway.core.errors import InvariantBroken
from headway.runtime.app import App
from headway.runtime.kind import Kind
from headway.runtime.timing import Timing
from headway.server.access.caller import Caller
from headway.server.routes.router import TheService
from headway.server.service import Service
from headway.systems.directory.database import Directory
from headway.systems.field_service.names import NAME, OFFERS
from headway.systems.field_service.seen.metrics import Tally
from headway.systems.field_service.settings import FieldSettings
from headway.systems.parts import Parts
from headway.systems.telephony.exchange import Exchange
from headway.systems.telephony.voice import Voice


@dataclass(kw_only=True, slots=True)
class Desk:
    """What the routes and handlers of this system work with.

    Attributes:
        settings: of the file.
        parts: shared with other systems.
        tally: counts how offers end.
        declared: the app that has this system's kinds; None before it was told of them.
    """

    settings: FieldSettings
    parts: Parts
    tally: Tally
    declared: App | None = None

    @property
    def directory(self) -> Directory:
        """Technicians, users, and what dispatchers set."""
        return self.parts.directory

    @property
    def exchange(self) -> Exchange:
        """Who places calls and sends messages."""
        return self.parts.exchange

    @property
    def voice(self) -> Voice:
        """Who places calls to technicians and dispatchers.

        Raises:
            InvalidValue: nobody does.
        """
        return self.exchange.voice(self.settings.provider or "")

    @property
    def timing(self) -> Timing:
        """Clocks and pauses."""
        return self.parts.timing

    @property
    def app(self) -> App:
        """The app that has this system's kinds.

        Raises:
            InvariantBroken: nobody declared them to one.
        """
        if self.declared is None:
            message = "the kinds of field_service were declared to no app"
            raise InvariantBroken(message)
        return self.declared

    def kind(self, name: str) -> Kind:
        """One of this system's kinds."""
        return self.app.kind(name)

    def url(self, path: str) -> str:
        """The URL of a path of this system, as the outside world reaches it."""
        return f"{self.parts.base_url}/field-service{path}"


async def the_desk(service: TheService) -> Desk:
    """The desk that the system laid out when it was started."""
    return cast("Desk", service.desks[NAME])


TheDesk = Annotated[Desk, Depends(the_desk)]
"""As a parameter: `desk: TheDesk`."""


def directory_of(service: Service) -> Directory:
    """Where technicians and users are."""
    return cast("Desk", service.desks[NAME]).directory


def check_caller(caller: Caller) -> None:
    """Lets a caller pass whose token is for this system: not for some tenants, or other lanes.

    Raises:
        Forbidden: it is not.
    """
    caller.every_tenant()
    caller.check_lane(OFFERS)
