"""The desk: what the routes and handlers of this system work with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, cast

from fastapi import Depends, Path

from headway.contract.store import Store
from headway.core.gates.spec import GateUse
from headway.runtime.app import App
from headway.runtime.kind import Kind
from headway.server.access.caller import Caller
from headway.server.access.policy import public
from headway.server.routes.router import TheService
from headway.server.service import Service
from headway.systems.directory.database import Directory
from headway.systems.directory.tally import Tally
from headway.systems.notifications.metrics import Thresholds
from headway.systems.notifications.names import NAME, NOTIFICATION, Channel, lane_of
from headway.systems.notifications.reading import Reader
from headway.systems.notifications.senders.sender import Sender
from headway.systems.notifications.settings import NotificationSettings
from headway.systems.parts import Parts


@dataclass(kw_only=True, slots=True)
class Desk:
    """What the routes and handlers of this system work with.

    Attributes:
        settings: of the file.
        parts: shared with other systems.
        senders: by channel; a channel without one is not sent by.
        tally: counts outcomes and lateness.
        reader: of recipients and templates, as they are at the moment of a send.
        thresholds: from which values on servers alert.
        app: has the kind of this system; set when that is declared.
    """

    settings: NotificationSettings
    parts: Parts
    senders: Mapping[Channel, Sender]
    tally: Tally
    reader: Reader
    thresholds: Thresholds
    app: App = field(init=False)
    _uses: dict[Channel, tuple[GateUse, ...]] = field(
        default_factory=dict[Channel, tuple[GateUse, ...]]
    )

    @property
    def directory(self) -> Directory:
        """Recipients, templates and dedupe keys."""
        return self.parts.directory

    @property
    def store(self) -> Store:
        """Where the notifications are."""
        return self.app.store

    async def open(self) -> None:
        """Nothing: each sender connects when it first sends."""

    async def close(self) -> None:
        """Close the connections of the senders."""
        for sender in self.senders.values():
            await sender.close()

    @property
    def kind(self) -> Kind:
        """The kind of notifications."""
        return self.app.kind(NOTIFICATION)

    def uses(self, channel: Channel) -> tuple[GateUse, ...]:
        """The gates of a channel, as a job asks for them."""
        if channel not in self._uses:
            self._uses[channel] = self.kind.uses(channel, lane_of(channel), "", b"{}", None)
        return self._uses[channel]


async def the_desk(service: TheService) -> Desk:
    """The desk that the system laid out when it was started."""
    return cast("Desk", service.desks[NAME])


TheDesk = Annotated[Desk, Depends(the_desk)]
"""As a parameter: `desk: TheDesk`."""
Provider = Annotated[str, Path(description="As [telephony] names it.", examples=["twilio"])]
Anybody = Annotated[Caller, public()]
"""The caller of a webhook or a link that is verified by its signature."""


def directory_of(service: Service) -> Directory:
    """Where recipients and templates are."""
    return cast("Desk", service.desks[NAME]).directory


def check_caller(caller: Caller) -> None:
    """Allow a caller whose token is for this system: not for some tenants, or other lanes.

    Raises:
        Forbidden: it is not.
    """
    caller.every_tenant()
    for channel in Channel:
        caller.check_lane(lane_of(channel))
