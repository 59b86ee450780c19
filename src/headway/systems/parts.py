"""What the built-in systems of one server or worker share, and the context of each system."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from headway.bridges.cassandra.link import Link
from headway.contract.store import Store
from headway.core.errors import InvariantBroken
from headway.runtime.app import App
from headway.runtime.timing import REAL, Timing
from headway.systems.directory.alert_storage import AlertTable
from headway.systems.directory.database import Directory
from headway.systems.directory.tally import Tally
from headway.systems.telephony.providers import Telephony


class Closable(Protocol):
    """A resource of one system that is closed with the parts."""

    async def close(self) -> None:
        """Close the resource; without effect if it is not open."""
        ...


@runtime_checkable
class Openable(Closable, Protocol):
    """A resource of one system that must be open before the first job or request."""

    async def open(self) -> None:
        """Open the resource; the directory is already open."""
        ...


@dataclass(kw_only=True, slots=True)
class Parts:
    """What the built-in systems of one server or worker share.

    Attributes:
        directory: database of what the systems keep besides jobs.
        telephony: providers that place calls and send messages.
        base_url: public URL of the server; empty until it is known.
        signing_keys: keys for links in messages; the first signs, all are accepted.
        cassandra: connection for the calendar and history; None if Cassandra is not used.
        alert_storage: the stored state of sent alerts.
    """

    directory: Directory
    telephony: Telephony
    base_url: str = ""
    signing_keys: tuple[str, ...] = field(default=(), repr=False)
    timing: Timing = REAL
    cassandra: Link | None = None
    alert_storage: AlertTable = field(init=False)
    _resources: list[Closable] = field(default_factory=list[Closable], init=False)

    def __post_init__(self) -> None:
        self.alert_storage = AlertTable(self.directory)

    def add_resource(self, resource: Closable) -> None:
        """Close a resource together with the parts, and open it with them if it is `Openable`."""
        self._resources.append(resource)

    async def open(self, base_url: str) -> None:
        """Open all resources that must be open before the first job or request.

        Raises:
            SchemaMismatch: tables are newer than this program, or it may not change them.
            InvalidValue: a table named in the settings does not match them.
        """
        self.base_url = base_url.rstrip("/")
        try:
            await self.directory.open()
            for resource in self._resources:
                if isinstance(resource, Openable):
                    await resource.open()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close all resources."""
        for resource in self._resources:
            await resource.close()
        await self.telephony.close()
        await self.directory.close()


@dataclass(kw_only=True, slots=True)
class SystemContext:
    """What the routes and handlers of one system work with.

    Attributes:
        parts: resources shared with other systems.
        tally: counters of events that cannot be derived from jobs.
        declared: app in which the system's kinds are declared; None before that.
    """

    parts: Parts
    tally: Tally
    declared: App | None = None

    @property
    def app(self) -> App:
        """The app in which the system's kinds are declared.

        Raises:
            InvariantBroken: they are not declared yet.
        """
        if self.declared is None:
            message = "the kinds of this system are not declared in an app"
            raise InvariantBroken(message, hint="call its declare(app) first")
        return self.declared

    @property
    def store(self) -> Store:
        """The store of the system's jobs."""
        return self.app.store

    @property
    def directory(self) -> Directory:
        """The database of what the system keeps besides jobs."""
        return self.parts.directory

    @property
    def telephony(self) -> Telephony:
        """The providers of calls and messages."""
        return self.parts.telephony

    @property
    def timing(self) -> Timing:
        """Clocks and pauses."""
        return self.parts.timing
