"""The table of keys that make enqueue idempotent."""

from __future__ import annotations

from collections.abc import Iterable

from headway.stores.ledger.rows import KeyRow
from headway.stores.sqlite.database import text_list
from headway.stores.sqlite.session import Session

_LOAD = "SELECT tenant, key, job, body, until_at FROM dedupe WHERE tenant = ? AND key IN carray(?)"
_SAVE = (
    "INSERT INTO dedupe VALUES (?, ?, ?, ?, ?) ON CONFLICT (tenant, key) DO UPDATE"
    " SET job = excluded.job, body = excluded.body, until_at = excluded.until_at"
)


class SqliteKeys:
    """See `KeyTable`."""

    def __init__(self, session: Session) -> None:
        self._db = session.db

    def load(self, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], KeyRow]:
        by_tenant: dict[str, list[str]] = {}
        for tenant, key in keys:
            by_tenant.setdefault(tenant, []).append(key)
        found: dict[tuple[str, str], KeyRow] = {}
        for tenant, wanted in by_tenant.items():
            for row in self._db.execute(_LOAD, (tenant, text_list(wanted))):
                found[tenant, row[1]] = KeyRow._make(row)
        return found

    def save(self, rows: Iterable[KeyRow]) -> None:
        self._db.executemany(_SAVE, rows)
