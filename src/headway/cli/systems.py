"""The ready-made systems, by the names that `--system` takes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from types import MappingProxyType
from typing import Annotated, Any, Protocol, cast

import typer

from headway.cli.extras import needs_extra
from headway.cli.postgres import is_postgres, plain_url
from headway.cli.settings import Settings
from headway.core.errors import InvalidValue
from headway.runtime.app import App
from headway.server.system import System

SYSTEMS: Mapping[str, str] = MappingProxyType(
    {
        "lanes": "headway.systems.lanes",
        "calls": "headway.systems.calls",
        "field_service": "headway.systems.field_service",
    }
)
"""Each system and its package, which has `make`."""

PLAIN = frozenset({"lanes"})
"""Those that keep nothing besides jobs and ask no provider: `make(settings)`; the others share
parts: `make(settings, parts)`."""

SystemNames = Annotated[
    list[str] | None,
    typer.Option(
        "--system", metavar="NAME", help=f"A ready-made system: {', '.join(SYSTEMS)}; repeatable."
    ),
]


class Parts(Protocol):
    """What systems share, as far as it is opened and closed here."""

    async def open(self, base_url: str) -> None:
        """Opens it."""
        ...

    async def close(self) -> None:
        """Closes it."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Systems:
    """The systems of one server or worker.

    Attributes:
        each: in the order in which they were named.
        parts: what they share; None where they share nothing.
    """

    each: tuple[System, ...] = ()
    parts: Parts | None = None

    def declare(self, app: App) -> list[str]:
        """Adds their kinds to an app.

        Returns:
            The lanes of these kinds; empty if they have none.
        """
        before = set(app.kinds)
        for one in self.each:
            one.declare(app)
        lanes = (kind.lane for name, kind in app.kinds.items() if name not in before)
        return list(dict.fromkeys(lanes))

    @asynccontextmanager
    async def opened(self, base_url: str | None) -> AsyncGenerator[None]:
        """Keeps open what they share, for as long as the block lasts.

        Args:
            base_url: how the outside world reaches the server; None while nobody knows.

        Raises:
            StoreUnavailable: their directory cannot be reached.
            SchemaMismatch: its tables are newer than this program, or it may not change them.
        """
        if self.parts is None:
            yield
            return
        await self.parts.open(base_url or "")
        try:
            yield
        finally:
            await self.parts.close()


class Migrated(Protocol):
    """What became of the tables of one system, or of a part of it."""

    @property
    def system(self) -> str:
        """Whose."""
        ...

    @property
    def before(self) -> str | None:
        """Their revision before; None if there were none."""
        ...

    @property
    def now(self) -> str | None:
        """Their revision now."""
        ...


NONE = Systems()
"""No systems."""


def make_systems(names: Sequence[str], settings: Settings, store_url: str) -> Systems:
    """Makes systems; each is given its own table of the settings.

    Args:
        names: as `--system` was given them.
        settings: of the session.
        store_url: where the jobs are; the directory is beside it unless the settings say where.

    Returns:
        The systems in this order, each once; nothing is opened.

    Raises:
        InvalidValue: there is no such system, a package is missing, or settings are unusable.
    """
    wanted = {name: _package(name) for name in dict.fromkeys(names)}
    parts = None if PLAIN.issuperset(wanted) else _parts(settings, store_url)
    made: list[System] = []
    for name, package in wanted.items():
        written = cast("Mapping[str, object]", getattr(settings, name))
        given: tuple[Any, ...] = (written,) if name in PLAIN else (written, parts)
        made.append(import_module(package).make(*given))
    return Systems(each=tuple(made), parts=parts)


def directory_url(settings: Settings, store_url: str) -> str:
    """Where systems keep what is no job: as the settings say, else beside the store."""
    if settings.directory is not None:
        return settings.directory
    if is_postgres(store_url):
        return plain_url(store_url)
    scheme, _, place = store_url.partition(":///")
    if scheme != "sqlite" or not place:
        return "sqlite:///headway-directory.db"
    stem, dot, ending = place.partition("?")[0].rpartition(".")
    return f"sqlite:///{stem}-directory.{ending}" if dot else f"sqlite:///{ending}-directory"


class Tables(Protocol):
    """What systems keep in the directory."""

    async def migrate(self) -> Sequence[Migrated]:
        """Brings it to this program's schema."""
        ...


def tables_of(names: Sequence[str], directory: str) -> Tables:
    """The tables of systems.

    Their settings are not read: who migrates need not know a provider's secrets.

    Args:
        names: as `--system` was given them.
        directory: its URL, as a role that may change tables.

    Returns:
        The tables in the directory, which is not opened yet; of a system that keeps nothing, none.

    Raises:
        InvalidValue: there is no such system, a package is missing, or it is no such URL.
    """
    packages = [_package(name) for name in dict.fromkeys(names)]
    with needs_extra("systems"):
        from headway.systems.directory.database import Directory  # noqa: PLC0415

        needed = [one for name in packages for one in getattr(import_module(name), "SCHEMAS", ())]
    made = Directory(directory)
    for schema in needed:
        made.needs(schema)
    return made


def _package(name: str) -> str:
    package = SYSTEMS.get(name)
    if package is None:
        near = get_close_matches(name, SYSTEMS, n=1)
        message = f"there is no system {name!r}"
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(SYSTEMS)}"
        raise InvalidValue(message, hint=hint)
    return package


def _parts(settings: Settings, store_url: str) -> Parts:
    with needs_extra("systems"):
        from headway.systems.directory.database import Directory  # noqa: PLC0415
        from headway.systems.parts import Parts as Shared  # noqa: PLC0415
        from headway.systems.telephony.settings import read_exchange  # noqa: PLC0415

        exchange = read_exchange(settings.telephony)
    directory = Directory(directory_url(settings, store_url))
    return Shared(directory=directory, exchange=exchange)
