"""A database with someone else's table of leads, and the layer that works on it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import text
from sqlalchemy.engine import make_url

from headway.systems.calls.migrations import SCHEMAS
from headway.systems.calls.source_table.lead_table import LeadTable
from headway.systems.calls.source_table.settings import read_lead_table
from headway.systems.directory.database import Directory
from tests.servers.postgres import fresh_database

COLUMNS = {
    "id": "lead_no",
    "phone": "msisdn",
    "tz": "zone",
    "reseller": "partner",
    "due_at": "call_after",
    "status": "state",
    "owner": "handled_by",
    "key": "their_key",
    "payload": "fields",
    "ref": "headway_ref",
    "number": "called_from",
    "since": "called_at",
    "outcome": "result",
    "finished_at": "ended_at",
}
"""The imaginary table's names of the columns that Headway uses."""
STATUSES = {"pending": "new", "running": "calling", "done": "closed"}
_MAKE = {
    "postgresql": """
        CREATE TABLE their_leads (
            lead_no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, msisdn text NOT NULL,
            zone text, partner text, call_after timestamptz NOT NULL, state text NOT NULL,
            handled_by text, their_key text, fields jsonb, headway_ref text, called_from text,
            called_at timestamptz, result text, ended_at timestamptz, UNIQUE (partner, their_key))
        """,
    "sqlite": """
        CREATE TABLE their_leads (
            lead_no integer PRIMARY KEY, msisdn text NOT NULL,
            zone text, partner text, call_after timestamp NOT NULL, state text NOT NULL,
            handled_by text, their_key text, fields text, headway_ref text, called_from text,
            called_at timestamp, result text, ended_at timestamp, UNIQUE (partner, their_key))
        """,
}


def settings_of(url: str | None, **more: Any) -> dict[str, Any]:
    """Return [calls.table] for the imaginary table."""
    return {
        **({} if url is None else {"url": url}),
        "table": "their_leads",
        "columns": COLUMNS,
        "statuses": STATUSES,
        "owners": {"theirs": "legacy"},
        **more,
    }


@contextmanager
def database(kind: str, server_url: str, folder: Path) -> Iterator[str]:
    """Create an empty database of a kind; yield its URL."""
    if kind == "sqlite":
        folder.mkdir(exist_ok=True)
        yield f"sqlite:///{folder}/theirs.db"
        shutil.rmtree(folder)
        return
    with fresh_database(server_url) as url:
        yield url


async def make_theirs(url: str) -> None:
    """Create the imaginary table."""
    kind = url.partition(":")[0]
    await run(url, _MAKE[kind])


async def run(url: str, statement: str, **values: object) -> list[Any]:
    """Run one statement; return its rows."""
    door = Directory(url)
    await door.open()
    try:
        async with door.change() as session:
            found = await session.execute(text(statement), values)
            return list(found.mappings()) if found.returns_rows else []  # type: ignore[attr-defined]
    finally:
        await door.close()


async def only_readable(url: str) -> str:
    """Return the URL of a user who may read the imaginary table, but not change it."""
    if url.startswith("sqlite"):
        return f"sqlite:///file:{make_url(url).database}?mode=ro&uri=true"
    await run(
        url,
        "DO $$ BEGIN CREATE ROLE leads_reader LOGIN; EXCEPTION WHEN duplicate_object THEN END $$",
    )
    await run(url, "GRANT SELECT ON their_leads TO leads_reader")
    reader = make_url(url).set(username="leads_reader", password=None)
    return reader.render_as_string(hide_password=False)


@asynccontextmanager
async def opened(
    written: Mapping[str, object], directory_url: str = "sqlite:///:memory:"
) -> AsyncIterator[LeadTable]:
    """Open the layer on a table until the block exits."""
    settings = read_lead_table(written)
    directory = Directory(directory_url)
    directory.needs(SCHEMAS[0])
    await directory.open()
    table = LeadTable(settings, directory)
    try:
        await table.open()
        yield table
    finally:
        await table.close()
        await directory.close()
