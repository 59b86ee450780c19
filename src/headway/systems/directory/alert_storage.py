"""The state of sent alerts, stored in the directory so that it survives a server."""

from __future__ import annotations

from sqlalchemy import Column, Integer, String, Table, Text, text

from headway.systems.directory.database import Directory
from headway.systems.directory.schemas import Schema, naming

_METADATA = naming()
Table(
    "alerts_told",
    _METADATA,
    Column("id", Integer, primary_key=True),
    Column("holder", String(64), nullable=False),
    Column("value", Text),
)
SCHEMA = Schema(name="alerts", metadata=_METADATA)

_READ = text("SELECT value FROM alerts_told WHERE id = 1")
_TAKE = text(
    "INSERT INTO alerts_told (id, holder, value) VALUES (1, :holder, NULL) "
    "ON CONFLICT (id) DO UPDATE SET holder = excluded.holder"
)
_WRITE = text("UPDATE alerts_told SET value = :value WHERE id = 1 AND holder = :holder")


class AlertTable:
    """Implements `headway.server.alerts.rules.AlertStorage` in a table that all servers share."""

    def __init__(self, directory: Directory) -> None:
        """Use a directory that has the table of `SCHEMA`."""
        self._directory = directory

    async def read(self) -> bytes | None:
        async with self._directory.read() as session:
            value = (await session.execute(_READ)).scalar()
        return None if value is None else value.encode()

    async def take_over(self, holder: str) -> bytes | None:
        async with self._directory.change() as session:
            await session.execute(_TAKE, {"holder": holder})
            value = (await session.execute(_READ)).scalar()
        return None if value is None else value.encode()

    async def write(self, holder: str, value: bytes) -> None:
        async with self._directory.change() as session:
            await session.execute(_WRITE, {"holder": holder, "value": value.decode()})
