"""The table of keys that make enqueue idempotent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headway.stores.ledger.rows import KeyRow
from headway.stores.postgres.arrays import Blobs, Ids, MaybeNumbers
from headway.stores.postgres.bookkeeping import HASTE
from headway.stores.postgres.mode import Mode, Repeat
from headway.stores.postgres.registry import digest
from headway.stores.postgres.session import Session
from headway.stores.postgres.statement import Each, Tell, of

KEYS = Each(
    "SELECT hash, job::text, body, until_at FROM @dedupe WHERE hash = ANY ($1)", of("key"), Blobs
)
_NEW = (
    "INSERT INTO @dedupe AS kept"
    " SELECT * FROM unnest($1::bytea[], $2::uuid[], $3::bytea[], $4::bigint[])"
)
_ADD = Tell(_NEW, of("key"))
_TAKE = Tell(
    # A key that stands by now was written by a faster step.
    f"{_NEW} ON CONFLICT (hash) DO UPDATE SET job = excluded.job, body = excluded.body,"
    " until_at = excluded.until_at WHERE kept.until_at <= $5 RETURNING hash",
    of("key"),
)
_SAVE = Tell(
    f"{_NEW} ON CONFLICT (hash) DO UPDATE SET job = excluded.job, body = excluded.body,"
    " until_at = excluded.until_at",
    of("key"),
)


class PostgresKeys:
    """Keys by tenant; each is found by a hash of both."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def load(self, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], KeyRow]:
        if self._session.mode is Mode.BLIND:
            return {}
        places = {hash_of(*place): place for place in keys}
        if not places:
            return {}
        found: dict[tuple[str, str], KeyRow] = {}
        known = self._session.each(KEYS, tuple(places))
        for name, (tenant, key) in places.items():
            for _, job, body, until_at in known[name]:
                found[tenant, key] = KeyRow(tenant, key, job, body, until_at)
        return found

    def save(self, rows: Iterable[KeyRow]) -> None:
        rows = list(rows)
        if not rows:
            return
        session = self._session
        kept = [(hash_of(row.tenant, row.key), row.job, row.body, row.until_at) for row in rows]
        if session.mode is Mode.TURN:
            if not session.hasty:
                session.hasty = True
                session.tell(_HASTE)
            known = session.known_of(KEYS)
            for row in kept:
                session.gather(_SAVE, row[0], row, _columns, patched=(KEYS,))
                known[row[0]] = [row]
            return
        bound = _columns(kept)
        if session.mode is Mode.BLIND:
            session.tell(_ADD, *bound)
        elif len(session.do(_TAKE, *bound, session.now)) < len(rows):
            raise Repeat


_HASTE = Tell(HASTE, of())


def _columns(rows: list[tuple[bytes, str, bytes, int | None]]) -> tuple[Any, ...]:
    hashes, jobs, bodies, moments = zip(*rows, strict=True)
    return Blobs(hashes), Ids(jobs), Blobs(bodies), MaybeNumbers(moments)


def hash_of(tenant: str, key: str) -> bytes:
    """By what a key is found."""
    return digest(tenant.encode(), key.encode())
