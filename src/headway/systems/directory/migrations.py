"""Migrations of the directory: each system's own, by Alembic, one process at a time."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from alembic import op
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from alembic.script.revision import RevisionError
from alembic.util import CommandError
from sqlalchemy import BigInteger, Column, Connection, Integer, PrimaryKeyConstraint, String, text
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.schema import SchemaItem

from headway.core.errors import SchemaMismatch

_LOCK = 0x6865_6164_7761_79
"""Of PostgreSQL: those who migrate wait for each other."""


async def migrate(engine: AsyncEngine, name: str, package: str) -> tuple[str | None, str | None]:
    """Bring the tables of a system to this program's schema.

    Returns:
        The revision before and now; None for none.

    Raises:
        SchemaMismatch: the tables are newer than this program, or it may not change them; nothing
            was written.
    """
    try:
        async with engine.execution_options(headway_writes=True).begin() as connection:
            return await connection.run_sync(_upgrade, name, package)
    except ProgrammingError as error:
        message = f"the tables of {name} in the directory are missing, older or out of bounds"
        hint = "run `headway migrate --system …` for each system served, as a role that may"
        raise SchemaMismatch(message, hint=f"{hint}: {error.orig}") from error


def collated(length: int) -> String:
    """Text that is compared by code point, as Python compares."""
    return String(length).with_variant(String(length, collation="C"), "postgresql")


def create_records(table: str, *items: SchemaItem) -> None:
    """Create a table of records as their first version has it, with further columns."""
    op.create_table(
        table,
        Column("id", collated(64), nullable=False),
        Column("name", String(200), nullable=False),
        *items,
        Column("version", Integer, nullable=False),
        PrimaryKeyConstraint("id", name=f"pk_{table}"),
    )


def create_tally(table: str) -> None:
    """Create a table of counted events as its first version has it; see `tally.Tally`."""
    op.create_table(
        table,
        Column("event", String(40), nullable=False),
        Column("label", String(64), nullable=False),
        Column("times", BigInteger, nullable=False),
        PrimaryKeyConstraint("event", "label", name=f"pk_{table}"),
    )


def _upgrade(connection: Connection, name: str, package: str) -> tuple[str | None, str | None]:
    scripts = _scripts(package)
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    context = MigrationContext.configure(connection, opts=_options(name))
    before, head = context.get_current_revision(), scripts.get_current_head()
    if before == head:
        return before, head
    try:
        list(scripts.iterate_revisions(head, before))
    except (CommandError, RevisionError):
        message = f"the tables of {name} in the directory are at {before!r}, which is unknown here"
        raise SchemaMismatch(message, hint="they are newer: upgrade Headway") from None

    def forward(_: object, __: object) -> Any:  # noqa: ANN401  (Alembic's own steps)
        # What Alembic's own commands call; they would ask for files of settings.
        return scripts._upgrade_revs(head or "", before or "base")  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    running = MigrationContext.configure(connection, opts={**_options(name), "fn": forward})
    with Operations.context(running):
        running.run_migrations()
    return before, head


def _options(name: str) -> dict[str, Any]:
    return {"version_table": f"{name}_schema", "transaction_per_migration": False}


def _scripts(package: str) -> ScriptDirectory:
    folder = str(files(package))
    return ScriptDirectory(folder, version_locations=[folder])
