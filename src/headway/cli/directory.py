"""The built-in systems' names, and the directory: the database for their records.

Imports no server and no system, so that commands that only read or migrate work without the extras.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Protocol

import typer

from headway.bridges.cassandra.link import OpenLink, read_cassandra
from headway.cli.extras import is_postgres, needs_extra, plain_url
from headway.cli.settings import Settings
from headway.core.errors import InvalidValue
from headway.core.naming import did_you_mean

SYSTEMS = ("lanes", "automations", "calls", "field_service", "notifications")
"""The systems, each a package of this name in `headway.systems` with a function `make`."""


def complete_system(incomplete: str) -> list[str]:
    """Complete the name of a built-in system."""
    return [name for name in SYSTEMS if name.startswith(incomplete)]


SystemNames = Annotated[
    list[str] | None,
    typer.Option(
        "--system",
        metavar="NAME",
        help=f"Built-in system: {', '.join(SYSTEMS)}; repeatable.",
        autocompletion=complete_system,
    ),
]


class Migrated(Protocol):
    """The result of migrating the tables of a system, or of a part of it."""

    @property
    def system(self) -> str:
        """Name of the system or the part."""
        ...

    @property
    def before(self) -> str | None:
        """Their revision before; None if there were no tables."""
        ...

    @property
    def now(self) -> str | None:
        """Their revision now."""
        ...


def directory_url(settings: Settings, store_url: str) -> str:
    """Return the directory's URL: the setting, or by default a database next to the store."""
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
    """The systems' tables in the directory."""

    async def migrate(self) -> Sequence[Migrated]:
        """Upgrade them to this program's schema."""
        ...


def tables_of(names: Sequence[str], directory: str) -> Tables:
    """Return the tables of systems in the directory, without opening it.

    The systems' settings are not read, so that migrating requires no provider's secrets.

    Args:
        directory: URL of the directory, for a role that may change tables.
    """
    packages = [system_package(name) for name in dict.fromkeys(names)]
    with needs_extra("systems"):
        from headway.systems.directory.database import Directory  # noqa: PLC0415

        needed = [one for name in packages for one in getattr(import_module(name), "SCHEMAS", ())]
    made = Directory(directory)
    made.needs(*needed)
    return made


def system_package(name: str) -> str:
    """Return the package of a system.

    Raises:
        InvalidValue: there is no such system; the hint has similar names.
    """
    if name not in SYSTEMS:
        message = f"there is no system {name!r}"
        hint = did_you_mean(name, SYSTEMS, f"there are {', '.join(SYSTEMS)}")
        raise InvalidValue(message, hint=hint)
    return f"headway.systems.{name}"


def make_link(settings: Settings) -> OpenLink:
    """Return the link to the calendar configured in [cassandra], without opening it."""
    read = read_cassandra(settings.cassandra)
    with needs_extra("cassandra"):
        from headway.bridges.cassandra.driver import CassandraLink  # noqa: PLC0415
    return CassandraLink(read)
