"""The context of the routes and handlers: settings, directory and providers of this system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from headway.core.errors import InvariantBroken
from headway.runtime.app import App
from headway.runtime.kind import Kind
from headway.runtime.timing import Timing
from headway.server.access.caller import Caller
from headway.server.routes.router import system_service
from headway.systems.directory.database import Directory
from headway.systems.directory.tally import Tally
from headway.systems.field_service.names import NAME, OFFERS
from headway.systems.field_service.settings import FieldSettings
from headway.systems.parts import Parts
from headway.systems.telephony.exchange import Exchange
from headway.systems.telephony.voice import Voice


@dataclass(kw_only=True, slots=True)
class FieldContext:
    """The settings, directory and providers that routes and handlers use.

    Attributes:
        parts: shared with other systems.
        declared: the app that has this system's kinds; None before they are declared.
    """

    settings: FieldSettings
    parts: Parts
    tally: Tally
    declared: App | None = None

    @property
    def directory(self) -> Directory:
        """The directory of technicians and users."""
        return self.parts.directory

    @property
    def exchange(self) -> Exchange:
        """The providers of calls and messages."""
        return self.parts.exchange

    @property
    def voice(self) -> Voice:
        """The provider of calls to technicians and dispatchers.

        Raises:
            InvalidValue: none is configured.
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
            InvariantBroken: they are not declared.
        """
        if self.declared is None:
            message = "the kinds of field_service were declared to no app"
            raise InvariantBroken(message)
        return self.declared

    def kind(self, name: str) -> Kind:
        """One of this system's kinds."""
        return self.app.kind(name)

    def url(self, path: str) -> str:
        """Return the public URL of a path of this system."""
        return f"{self.parts.base_url}/field-service{path}"


TheContext = Annotated[FieldContext, system_service(NAME)]
"""A route's parameter: `context: TheContext`."""


def check_caller(caller: Caller) -> None:
    """Check that a caller's token is not limited to some tenants or to other lanes.

    Raises:
        Forbidden: it is not.
    """
    caller.every_tenant()
    caller.check_lane(OFFERS)
