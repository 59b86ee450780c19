"""The context of the routes and handlers: settings, senders and directory of this system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

from headway.bridges.cassandra.calendar import Calendar
from headway.bridges.cassandra.history import History
from headway.contract.store import Sent
from headway.core.gates.spec import GateUse
from headway.core.job import NewJob
from headway.server.caller import whole_lanes
from headway.server.routing import system_service
from headway.server.sending import send_jobs
from headway.server.service import Service
from headway.systems.notifications.metrics import Thresholds
from headway.systems.notifications.notification import LANES, NAME, NOTIFICATION, Channel, Tallied
from headway.systems.notifications.records import RecordReader
from headway.systems.notifications.sender import MessageSender
from headway.systems.notifications.settings import NotificationSettings
from headway.systems.parts import SystemContext


@dataclass(kw_only=True, slots=True)
class NotifyContext(SystemContext):
    """The settings, senders and directory that routes and handlers use.

    Attributes:
        senders: by channel; a channel without a sender is not used.
    """

    settings: NotificationSettings
    senders: Mapping[Channel, MessageSender]
    reader: RecordReader
    thresholds: Thresholds
    _calendar: Calendar | None = None
    _uses: dict[Channel, tuple[GateUse, ...]] = field(
        default_factory=dict[Channel, tuple[GateUse, ...]]
    )

    async def close(self) -> None:
        """Close the connections of the senders."""
        for sender in self.senders.values():
            await sender.close()

    def count(self, channel: str, outcome: str) -> None:
        """Count a send by a channel: its status, or `LOST`, `LIMITED` or `UNAVAILABLE`."""
        self.tally.happened(Tallied.OUTCOME, f"{channel}:{outcome}")

    @property
    def calendar(self) -> Calendar | None:
        """Calendar of notifications due far ahead; None if the store keeps them."""
        link = self.parts.cassandra
        if self._calendar is None and link is not None:
            self._calendar = Calendar(link, self.store)
        return self._calendar

    @property
    def history(self) -> History | None:
        """History of ended notifications, beyond the store's own; None if it is switched off."""
        link = self.parts.cassandra
        return History(link) if link is not None and link.settings.history else None

    async def send(self, service: Service, jobs: Sequence[NewJob]) -> Sequence[Sent]:
        """Store jobs in the calendar if there is one, or in the store; see `send_jobs`."""
        send = partial(send_jobs, service)
        if self.calendar is None:
            return await send(jobs)
        return await self.calendar.enqueue(jobs, send=send)

    def uses(self, channel: Channel) -> tuple[GateUse, ...]:
        """Return the gates of a channel."""
        if channel not in self._uses:
            kind = self.app.kind(NOTIFICATION)
            self._uses[channel] = kind.uses(channel, channel.lane, "", b"{}", None)
        return self._uses[channel]


TheContext = Annotated[NotifyContext, system_service(NAME)]
"""A route's parameter: `context: TheContext`."""


check_caller = whole_lanes(*LANES)
"""Refuse a caller whose token is limited to some tenants or to other lanes."""
