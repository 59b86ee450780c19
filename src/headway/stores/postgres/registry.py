"""Interned values on PostgreSQL, read on their own connection, with one cache for all sessions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from threading import RLock
from typing import Any

import psycopg

from headway.core.job import JobPolicy
from headway.stores.ledger.packing import decode_flow, decode_policy, encode, encode_flow
from headway.stores.ledger.rows import FlowKey
from headway.stores.postgres.arrays import Blobs, Numbers, Texts
from headway.stores.postgres.failures import is_broken
from headway.stores.postgres.link import Link
from headway.stores.sql.interned import Interned, Value
from headway.stores.sql.statement import Rows

AHEAD = 256
"""Number of values read at once, starting with the requested one."""


def digest(*parts: bytes) -> bytes:
    """Return a hash of values that may be too long for an index."""
    sizes = b"".join(len(part).to_bytes(4, "big") for part in parts)
    return hashlib.blake2b(sizes + b"".join(parts), digest_size=16).digest()


class PostgresInterned(Interned[Value]):
    """The values of one table and their numbers.

    Each value is written in its own step and stays even if the step that needed it is rolled back,
    so that steps do not wait for each other because of it.

    Args:
        send: sends one statement, on a connection without a step.
        lock: held during a lookup.
        encode: returns the code of a value; equal values have equal codes.
        hashed: whether a value is looked up by the hash of its code.
    """

    def __init__(
        self,
        send: Callable[[str, tuple[Any, ...]], Rows],
        lock: RLock,
        table: str,
        encode: Callable[[Value], bytes | str],
        decode: Callable[[Any], Value],
        *,
        hashed: bool,
    ) -> None:
        super().__init__()
        self._send = send
        self._lock = lock
        self._encode, self._decode = encode, decode
        self._hashed = hashed
        body = "name" if table == "lane" else "body"
        name, columns = ("hash", "hash, body") if hashed else (body, body)
        values = "$1, $2" if hashed else "$1"
        kinds = "$1::text[]" if table == "lane" else values.replace(",", "::bytea[],") + "::bytea[]"
        self._find = f"SELECT no FROM @{table} WHERE {name} = $1"  # noqa: S608  (names only)
        self._add = (
            f"INSERT INTO @{table} ({columns}) VALUES ({values})"  # noqa: S608  (names only)
            " ON CONFLICT DO NOTHING RETURNING no"
        )
        self._read = (
            f"SELECT no, {body} FROM @{table} WHERE no >= $1"  # noqa: S608  (names only)
            f" ORDER BY no LIMIT {AHEAD}"
        )
        self._add_all = (
            f"INSERT INTO @{table} ({columns}) SELECT * FROM unnest({kinds})"  # noqa: S608  (names only)
            " ON CONFLICT DO NOTHING"
        )
        self._find_all = f"SELECT no, {body} FROM @{table} WHERE {name} = ANY ($1)"  # noqa: S608  (names only)
        self._read_all = f"SELECT no, {body} FROM @{table} WHERE no = ANY ($1)"  # noqa: S608  (names only)
        self._pack: Callable[[Iterable[Any]], Any] = Texts if table == "lane" else Blobs

    def known(self, value: Value) -> int | None:
        """Return the number of a value if it is cached."""
        return self._numbers.get(value)

    def find(self, value: Value) -> int | None:
        """Return the number of a value; None if it has none."""
        found = self._numbers.get(value)
        if found is not None:
            return found
        code = self._encode(value)
        with self._lock:
            rows = self._send(self._find, (self._name(code),))
            if not rows:
                return None
            self._remember(value, rows[0][0])
        return rows[0][0]

    def _name(self, code: bytes | str) -> bytes | str:
        return digest(code) if self._hashed and isinstance(code, bytes) else code

    def _make(self, value: Value) -> int:
        code = self._encode(value)
        bound = (self._name(code), code) if self._hashed else (code,)
        with self._lock:
            while True:
                found = self.find(value)
                if found is not None:
                    return found
                # Another process may insert it first; then `find` finds it.
                rows = self._send(self._add, bound)
                if rows:
                    self._remember(value, rows[0][0])
                    return rows[0][0]

    def know(self, things: Iterable[Value]) -> None:
        """Read the numbers of values; new values get one. At most three trips."""
        missing = [one for one in dict.fromkeys(things) if one not in self._numbers]
        if len(missing) < 2:
            # A single value is looked up just as fast later.
            return
        codes = {one: self._encode(one) for one in missing}
        with self._lock:
            self._keep(self._send(self._find_all, (self._names(codes.values()),)))
            # Insert only new values, because an insert that conflicts uses up a number, too.
            new = [code for one, code in codes.items() if one not in self._numbers]
            if new:
                names = self._names(new)
                self._send(self._add_all, (names, self._pack(new)) if self._hashed else (names,))
                self._keep(self._send(self._find_all, (names,)))

    def _names(self, codes: Iterable[bytes | str]) -> Any:  # noqa: ANN401  (depends on the table)
        return self._pack(map(self._name, codes))

    def numbers(self, things: Iterable[Value]) -> dict[Value, int]:
        """Return the numbers of values that have one, in one trip."""
        wanted = list(dict.fromkeys(things))
        with self._lock:
            found = {one: self._numbers[one] for one in wanted if one in self._numbers}
            missing = [one for one in wanted if one not in found]
            if missing:
                names = self._names(map(self._encode, missing))
                rows = self._send(self._find_all, (names,))
                self._keep(rows)
                # These rows may evict other values from the cache.
                found |= {self._decode(code): no for no, code in rows}
        return {one: found[one] for one in wanted if one in found}

    def read(self, numbers: Iterable[int]) -> None:
        """Read the values of these numbers in one trip."""
        missing = {one for one in numbers if one not in self._values}
        if len(missing) > 1:
            with self._lock:
                self._keep(self._send(self._read_all, (Numbers(missing),)))

    def _keep(self, rows: Rows) -> None:
        for no, code in rows:
            self._remember(self._decode(code), no)

    def value(self, number: int) -> Value:
        """Return the value of a number.

        Raises:
            KeyError: the number is unknown.
        """
        known = self._values.get(number)
        if known is None:
            with self._lock:
                rows = self._send(self._read, (number,))
                self._keep(rows)
            if not rows or rows[0][0] != number:
                raise KeyError(number)
            known = self._decode(rows[0][1])
        return known


class Registry:
    """Numbers of a store's flows, policies, lanes and words, shared by all its sessions.

    Args:
        connect: opens the connection when it is first needed.
        explain: converts an error of the server to one of Headway's.
    """

    def __init__(
        self, connect: Callable[[], Link], explain: Callable[[psycopg.Error], Exception]
    ) -> None:
        self._connect = connect
        self._explain = explain
        self._link: Link | None = None
        self._lock = lock = RLock()
        self.flows: PostgresInterned[FlowKey] = PostgresInterned(
            self._send, lock, "flow", encode_flow, decode_flow, hashed=True
        )
        self.policies: PostgresInterned[JobPolicy] = PostgresInterned(
            self._send, lock, "policy", encode, decode_policy, hashed=True
        )
        self.lanes: PostgresInterned[str] = PostgresInterned(
            self._send, lock, "lane", str, str, hashed=False
        )
        self.words: PostgresInterned[str] = PostgresInterned(
            self._send, lock, "word", str.encode, bytes.decode, hashed=False
        )

    def _send(self, text: str, bound: tuple[Any, ...]) -> Rows:
        """Return the rows of a statement; retry it once if the connection breaks.

        Raises:
            StoreError: the server failed.
        """
        try:
            return self._ask_once(text, bound)
        except psycopg.Error as error:
            if not is_broken(error):
                meaning = self._explain(error)
                raise meaning from error
        try:
            return self._ask_once(text, bound)
        except psycopg.Error as error:
            meaning = self._explain(error)
            raise meaning from error

    def _ask_once(self, text: str, bound: tuple[Any, ...]) -> Rows:
        link = self._link
        if link is not None and not link.alive():
            link.close()
            link = None
        if link is None:
            link = self._link = self._connect()
        return link.run([(text, bound)])[0]

    def forget(self) -> None:
        """Forget everything, and hang up: a new connection may lead to another store."""
        with self._lock:
            for one in (self.flows, self.policies, self.lanes, self.words):
                one.forget()
            self._drop()

    def close(self, limit: float) -> None:
        """Close its connection, unless a read on it lasts longer than this many seconds."""
        if self._lock.acquire(timeout=limit):
            try:
                self._drop()
            finally:
                self._lock.release()

    def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()
