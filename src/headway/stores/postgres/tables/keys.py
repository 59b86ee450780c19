"""The table of keys that make enqueue idempotent."""

from __future__ import annotations

from collections.abc import Iterable

from headway.stores.ledger.rows import KeyRow
from headway.stores.postgres.arrays import Blobs, Ids, MaybeNumbers
from headway.stores.postgres.bookkeeping import HASTE
from headway.stores.postgres.mode import Mode, Repeat
from headway.stores.postgres.registry import digest
from headway.stores.postgres.session import Session
from headway.stores.postgres.statement import Ask, Tell, of

_LOAD = Ask("SELECT hash, job::text, body, until_at FROM @dedupe WHERE hash = ANY ($1)", of("key"))
_NEW = (
    "INSERT INTO @dedupe AS kept"
    " SELECT * FROM unnest($1::bytea[], $2::uuid[], $3::bytea[], $4::bigint[])"
)
_ADD = Tell(_NEW, of("key"))
_TAKE = Tell(
    # A key that stands by now was written by somebody faster.
    f"{_NEW} ON CONFLICT (hash) DO UPDATE SET job = excluded.job, body = excluded.body,"
    " until_at = excluded.until_at WHERE kept.until_at <= $5 RETURNING hash",
    of("key"),
)
_SAVE = Tell(
    f"{_NEW} ON CONFLICT (hash) DO UPDATE SET job = excluded.job, body = excluded.body,"
    " until_at = excluded.until_at",
    of("key"),
)


_HASTE = Tell(HASTE, of())


class PostgresKeys:
    """Keys by tenant; each is found by a hash of both."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def load(self, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], KeyRow]:
        if self._session.mode is Mode.BLIND:
            return {}
        places = {_hash(*place): place for place in keys}
        if not places:
            return {}
        found: dict[tuple[str, str], KeyRow] = {}
        for name, job, body, until_at in self._session.ask(_LOAD, Blobs(places)):
            tenant, key = places[name]
            found[tenant, key] = KeyRow(tenant, key, job, body, until_at)
        return found

    def save(self, rows: Iterable[KeyRow]) -> None:
        rows = list(rows)
        if not rows:
            return
        session = self._session
        if session.mode is Mode.TURN:
            session.tell(_HASTE)
        bound = (
            Blobs(_hash(row.tenant, row.key) for row in rows),
            Ids(row.job for row in rows),
            Blobs(row.body for row in rows),
            MaybeNumbers(row.until_at for row in rows),
        )
        if session.mode is Mode.TURN:
            session.tell(_SAVE, *bound)
        elif session.mode is Mode.BLIND:
            session.tell(_ADD, *bound)
        elif len(session.do(_TAKE, *bound, session.now)) < len(rows):
            raise Repeat


def _hash(tenant: str, key: str) -> bytes:
    return digest(tenant.encode(), key.encode())
