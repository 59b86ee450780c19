"""`headway migrate`: brings a store to this program's schema."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from headway.cli.command import command, new_command
from headway.cli.directory import Migrated, SystemNames, directory_url, tables_of
from headway.cli.extras import is_postgres, migrate_postgres
from headway.cli.session import Session
from headway.contract.views import StatsQuery
from headway.core.errors import InvalidValue
from headway.stores.redis.options import SCHEMES as REDIS_SCHEMES
from headway.stores.sqlite import parse_url
from headway.stores.sqlite.connection import migrate as migrate_file

app = new_command()


DirectoryUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="The systems' directory, as a role that may change its tables."
    ),
]


@command(app)
def migrate(session: Session, system: SystemNames = None, directory: DirectoryUrl = None) -> None:
    """Create the store if it does not exist, and bring an older one to this program's schema.

    Stop the workers of a SQLite store first; those of a PostgreSQL store go on. A Redis store has
    no schema: its server and its format are looked at. A store that is newer than this program is
    refused, and nothing is written.

    With --system, also makes what that system keeps in the directory, or brings it forward. Then
    its servers and workers need no right to make tables.

    With --json: {"before", "now", "systems": [{"system", "before", "now"}]}: versions of the
    schema, 0 for none; revisions of a system's tables, null for none.

    Raises:
        InvalidValue: this kind of store keeps nothing, there is no such system, or a directory
            is named without a system.
    """
    if directory is not None and not system:
        message = "--directory names the tables of systems, and there is no --system"
        raise InvalidValue(message, hint="say which: --system calls")
    url = session.store_url
    # First of all: a wrong name makes nothing.
    tables = None
    if system:
        tables = tables_of(system, directory or directory_url(session.settings, url))
    before, now = _migrate_store(url)
    # Opening it sets what the schema does not hold, such as the journal's mode.
    session.ask(StatsQuery())
    done = asyncio.run(tables.migrate()) if tables is not None else ()
    if session.json:
        session.terminal.document({"before": before, "now": now, "systems": done})
        return
    session.terminal.line(_store_line(before, now))
    for one in done:
        session.terminal.line(_migrated_line(one))


def _migrate_store(url: str) -> tuple[int, int]:
    if is_postgres(url):
        return migrate_postgres(url)
    if url.startswith("sqlite:"):
        return migrate_file(parse_url(url))
    if url.partition("://")[0] in REDIS_SCHEMES:
        return 0, 0
    message = f"a store of {url.partition(':')[0]}:// keeps nothing"
    raise InvalidValue(message, hint="give sqlite:///headway.db, postgresql://… or redis://…")


def _store_line(before: int, now: int) -> str:
    if not now:
        return "the store is ready: it needs no schema"
    if before == now:
        return f"the store is current: schema {now}"
    return f"the store is ready: schema {before} became {now}"


def _migrated_line(one: Migrated) -> str:
    if one.before == one.now:
        return f"the tables of {one.system} are current: {one.now}"
    return f"the tables of {one.system} are ready: {one.before or 'none'} became {one.now}"
