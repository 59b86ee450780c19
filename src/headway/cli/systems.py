"""The built-in systems of a server or a worker, created from the settings."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, cast

from headway.cli.directory import directory_url, make_link, system_package
from headway.cli.extras import needs_extra
from headway.cli.settings import Settings
from headway.runtime.app import App
from headway.server.alerts.rules import AlertStorage
from headway.server.service import System

PLAIN = frozenset({"automations", "lanes"})
"""Systems that store nothing but jobs and use no provider: they have `make(settings)`; the others
share parts and have `make(settings, parts)`."""


class _Parts(Protocol):
    """Resources that systems share, to be opened and closed here."""

    @property
    def alert_storage(self) -> AlertStorage:
        """Where sent alerts are stored, to survive a server's restart."""
        ...

    async def open(self, base_url: str) -> None:
        """Open the resources."""
        ...

    async def close(self) -> None:
        """Close the resources."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Systems:
    """The systems of one server or worker.

    Attributes:
        parts: The resources that they share, if any.
    """

    each: tuple[System, ...] = ()
    parts: _Parts | None = None

    def declare(self, app: App) -> list[str]:
        """Add their kinds to an app.

        Returns:
            The lanes of these kinds, followed by other lanes that the systems declare.
        """
        kinds, lanes = set(app.kinds), set(app.lanes)
        for one in self.each:
            one.declare(app)
        of_kinds = (kind.lane for name, kind in app.kinds.items() if name not in kinds)
        declared = (lane for lane in app.lanes if lane not in lanes)
        return list(dict.fromkeys((*of_kinds, *declared)))

    @asynccontextmanager
    async def opened(self, base_url: str | None) -> AsyncGenerator[None]:
        """Keep the shared resources open while the block runs.

        Args:
            base_url: The public URL of the server; None if unknown.

        Raises:
            StoreUnavailable: the directory is unreachable.
            SchemaMismatch: the directory's tables are newer than this program, or must be migrated
                without the permission to do so.
        """
        if self.parts is None:
            yield
            return
        await self.parts.open(base_url or "")
        try:
            yield
        finally:
            await self.parts.close()


NONE = Systems()


def make_systems(names: Sequence[str], settings: Settings, store_url: str) -> Systems:
    """Create systems, each with its own table of the settings, without opening anything.

    Args:
        store_url: URL of the store; by default the directory is next to it.
    """
    wanted = {name: system_package(name) for name in dict.fromkeys(names)}
    parts = None if PLAIN.issuperset(wanted) else _parts(settings, store_url)
    made: list[System] = []
    for name, package in wanted.items():
        written = cast("Mapping[str, object]", getattr(settings, name))
        given: tuple[Any, ...] = (written,) if name in PLAIN else (written, parts)
        made.append(import_module(package).make(*given))
    return Systems(each=tuple(made), parts=parts)


def _parts(settings: Settings, store_url: str) -> _Parts:
    with needs_extra("systems"):
        from headway.systems.directory.database import Directory  # noqa: PLC0415
        from headway.systems.parts import Parts as Shared  # noqa: PLC0415
        from headway.systems.telephony.providers import read_telephony  # noqa: PLC0415

        telephony = read_telephony(settings.telephony)
    directory = Directory(directory_url(settings, store_url))
    shared = Shared(directory=directory, telephony=telephony, signing_keys=settings.signing_keys)
    if settings.cassandra:
        link = make_link(settings)
        shared.cassandra = link
        shared.add_resource(link)
    return shared
