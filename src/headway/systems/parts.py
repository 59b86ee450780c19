"""Parts: what the ready-made systems of one server or worker share, and the context of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from headway.bridges.cassandra.link import Link
from headway.contract.store import Store
from headway.core.errors import InvariantBroken
from headway.runtime.app import App
from headway.runtime.timing import REAL, Timing
from headway.systems.directory.alert_place import AlertPlace
from headway.systems.directory.database import Directory
from headway.systems.directory.tally import Tally
from headway.systems.telephony.exchange import Exchange


class Closable(Protocol):
    """Something of one system that is closed with the parts."""

    async def close(self) -> None:
        """Close it; without effect if it is not open."""
        ...


@runtime_checkable
class Openable(Closable, Protocol):
    """Something of one system that must be open before the first job or request."""

    async def open(self) -> None:
        """Open it; the directory is open by then."""
        ...


@dataclass(kw_only=True, slots=True)
class Parts:
    """What the ready-made systems of one server or worker share.

    Attributes:
        directory: what they keep besides jobs.
        exchange: who places calls and sends messages.
        base_url: how the outside world reaches the server; empty until that is known.
        signing_keys: of links in messages; the first signs, all are accepted.
        cassandra: where what is due far ahead lies; None where all of it is in the store.
        alert_place: in the directory, where the state of sent alerts outlives a server.
    """

    directory: Directory
    exchange: Exchange
    base_url: str = ""
    signing_keys: tuple[str, ...] = field(default=(), repr=False)
    timing: Timing = REAL
    cassandra: Link | None = None
    alert_place: AlertPlace = field(init=False)
    _others: list[Closable] = field(default_factory=list[Closable], init=False)

    def __post_init__(self) -> None:
        self.alert_place = AlertPlace(self.directory)

    def also(self, other: Closable) -> None:
        """Close something else with the parts; open it with them if it is `Openable`."""
        self._others.append(other)

    async def open(self, base_url: str) -> None:
        """Open what must be open before the first job or request.

        Raises:
            SchemaMismatch: its tables are newer than this program, or it may not change them.
            InvalidValue: a table that the settings name is not as they say.
        """
        self.base_url = base_url.rstrip("/")
        try:
            await self.directory.open()
            for other in self._others:
                if isinstance(other, Openable):
                    await other.open()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the connections of all."""
        for other in self._others:
            await other.close()
        await self.exchange.close()
        await self.directory.close()


@dataclass(kw_only=True, slots=True)
class SystemContext:
    """What the routes and handlers of one system work with.

    Attributes:
        parts: shared with other systems.
        tally: counts what cannot be derived from jobs.
        declared: the app that has the system's kinds; None before they are declared.
    """

    parts: Parts
    tally: Tally
    declared: App | None = None

    @property
    def app(self) -> App:
        """The app that has the system's kinds.

        Raises:
            InvariantBroken: they were declared to none.
        """
        if self.declared is None:
            message = "the kinds of this system were declared to no app"
            raise InvariantBroken(message, hint="call its declare(app) first")
        return self.declared

    @property
    def store(self) -> Store:
        """The store of the system's jobs."""
        return self.app.store

    @property
    def directory(self) -> Directory:
        """What the system keeps besides jobs."""
        return self.parts.directory

    @property
    def exchange(self) -> Exchange:
        """The providers of calls and messages."""
        return self.parts.exchange

    @property
    def timing(self) -> Timing:
        """Clocks and pauses."""
        return self.parts.timing
