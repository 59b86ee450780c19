"""The directory: where the ready-made systems keep what is not a job, and their names.

Loads no server and no system: commands that only look or migrate work without these extras.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Annotated, Protocol

import typer

from headway.bridges.cassandra.link import OpenLink, read_cassandra
from headway.cli.extras import is_postgres, needs_extra, plain_url
from headway.cli.settings import Settings
from headway.core.errors import InvalidValue
from headway.core.naming import did_you_mean

SYSTEMS: Mapping[str, str] = MappingProxyType(
    {
        "lanes": "headway.systems.lanes",
        "automations": "headway.systems.automations",
        "calls": "headway.systems.calls",
        "field_service": "headway.systems.field_service",
        "notifications": "headway.systems.notifications",
    }
)
"""Each system and its package, which has `make`."""


def complete_system(incomplete: str) -> list[str]:
    """Complete the name of a ready-made system."""
    return [name for name in SYSTEMS if name.startswith(incomplete)]


SystemNames = Annotated[
    list[str] | None,
    typer.Option(
        "--system",
        metavar="NAME",
        help=f"Built-in system to serve: {', '.join(SYSTEMS)}; repeatable.",
        autocompletion=complete_system,
    ),
]


class Migrated(Protocol):
    """The result of migrating the tables of one system, or of a part of it."""

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


def directory_url(settings: Settings, store_url: str) -> str:
    """Return where systems keep what is not a job: as the settings say, else beside the store."""
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
        """Bring it to this program's schema."""
        ...


def tables_of(names: Sequence[str], directory: str) -> Tables:
    """Return the tables of systems.

    Their settings are not read: who migrates need not know a provider's secrets.

    Args:
        names: as `--system` was given them.
        directory: its URL, as a role that may change tables.

    Returns:
        The tables in the directory, which is not opened yet; of a system that keeps nothing, none.

    Raises:
        InvalidValue: there is no such system, a package is missing, or it is no such URL.
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
        InvalidValue: there is no such system; the hint has near names.
    """
    package = SYSTEMS.get(name)
    if package is None:
        message = f"there is no system {name!r}"
        hint = did_you_mean(name, SYSTEMS, f"there are {', '.join(SYSTEMS)}")
        raise InvalidValue(message, hint=hint)
    return package


def make_link(settings: Settings) -> OpenLink:
    """Return the link to the calendar of the table [cassandra]; it is not opened yet."""
    read = read_cassandra(settings.cassandra)
    with needs_extra("cassandra"):
        from headway.bridges.cassandra.driver import CassandraLink  # noqa: PLC0415
    return CassandraLink(read)
