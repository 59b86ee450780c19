"""Tables of the directory: the schema of each system, and their migrations.

A new directory gets the current tables of each system. An older one is upgraded by the revisions of
each system, which are written with Alembic's operations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    delete,
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.ext.asyncio import AsyncEngine

from headway.core.errors import SchemaMismatch

FIRST = "0001"
"""The first revision of every system."""
_LOCK = 0x6865_6164_7761_79
"""Key of the PostgreSQL advisory lock that makes processes migrate one at a time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Schema:
    """The tables of one system.

    Attributes:
        name: name of the system; the table `<name>_schema` contains the current revision.
        metadata: tables of a new directory.
        upgrades: upgrades of an older directory, by the revision they lead to, oldest first. One
            that creates a table from its definition must be written out when the definition
            changes.
    """

    name: str
    metadata: MetaData
    upgrades: Mapping[str, Callable[[], None]] = field(default_factory=dict[str, Any])

    @property
    def revisions(self) -> tuple[str, ...]:
        """All revisions, oldest first."""
        return (FIRST, *self.upgrades)


@dataclass(frozen=True, kw_only=True, slots=True)
class Migrated:
    """The result of migrating the tables of one system.

    Attributes:
        before: previous revision; None if there were no tables.
    """

    system: str
    before: str | None
    now: str | None


async def migrate(engine: AsyncEngine, schema: Schema) -> Migrated:
    """Migrate the tables of a system to the newest revision.

    Raises:
        SchemaMismatch: the tables are newer than this program, or it may not change them; nothing
            was written.
    """
    try:
        async with engine.execution_options(headway_writes=True).begin() as connection:
            return await connection.run_sync(_upgrade, schema)
    except ProgrammingError as error:
        message = (
            f"the tables of {schema.name} in the directory are missing, outdated or not accessible"
        )
        hint = "run `headway migrate --system …` for each system, as a role that may alter tables"
        raise SchemaMismatch(message, hint=f"{hint}: {error.orig}") from error


def _upgrade(connection: Connection, schema: Schema) -> Migrated:
    if connection.dialect.name == "postgresql":
        # A migration may take longer than other changes, and one that was stopped is ended.
        connection.execute(text("SET LOCAL lock_timeout = 0"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    # The layout of Alembic's own version table.
    versions = Table(
        f"{schema.name}_schema",
        MetaData(),
        Column("version_num", String(32), nullable=False),
        PrimaryKeyConstraint("version_num", name=f"{schema.name}_schema_pkc"),
    )
    there = inspect(connection).has_table(versions.name)
    before = connection.execute(select(versions.c.version_num)).scalar() if there else None
    if before is not None and before not in schema.revisions:
        message = (
            f"the tables of {schema.name} in the directory are at {before!r}, which is unknown here"
        )
        raise SchemaMismatch(message, hint="they are newer: upgrade Headway")
    now = schema.revisions[-1]
    if before is None:
        schema.metadata.create_all(connection, checkfirst=False)
    else:
        pending = schema.revisions[schema.revisions.index(before) + 1 :]
        with Operations.context(MigrationContext.configure(connection)):
            for revision in pending:
                schema.upgrades[revision]()
    if before != now:
        versions.create(connection, checkfirst=True)
        connection.execute(delete(versions))
        connection.execute(insert(versions).values(version_num=now))
    return Migrated(system=schema.name, before=before, now=now)


def collated(length: int) -> String:
    """Return a text type that is compared by code point, as in Python."""
    return String(length).with_variant(String(length, collation="C"), "postgresql")


def naming() -> MetaData:
    """Return metadata whose constraints have names, so that migrations can name them too."""
    return MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


def tally_table(name: str, metadata: MetaData) -> None:
    """Add the table of a `tally.Tally`."""
    Table(
        name,
        metadata,
        Column("event", String(40), primary_key=True),
        Column("label", String(64), primary_key=True),
        Column("times", BigInteger, nullable=False),
    )


def tally_schema(name: str, table: str) -> Schema:
    """Return the schema of a tally whose table has its own revisions."""
    metadata = naming()
    tally_table(table, metadata)
    return Schema(name=name, metadata=metadata)
