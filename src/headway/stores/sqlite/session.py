"""One connection with its caches and its steps."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from headway.contract.store import Clock
from headway.core.errors import SchemaMismatch
from headway.core.job import JobPolicy
from headway.stores.ledger.fingerprint import FingerprintWatch, StoreFingerprint
from headway.stores.ledger.gaterows import GateTemplates
from headway.stores.ledger.packing import (
    decode_flow,
    decode_policy,
    encode,
    encode_flow,
)
from headway.stores.ledger.rows import FlowKey, LaneRow
from headway.stores.sql.statement import (
    EPOCH,
    EPOCH_AT,
    HIGH_WATER,
    IDENTITY,
    SCHEMA,
    Rows,
    Select,
    Write,
)
from headway.stores.sqlite.caches import SUSPECT, Fresh, NumberCache, SqliteInterned
from headway.stores.sqlite.connection import latest
from headway.stores.sqlite.database import Database, number_list, text_list


class Savepoint(NamedTuple):
    """The state at the start of a part of a step."""

    numbers: dict[int, int]
    fresh: int
    wakes: int


@dataclass(slots=True)
class SessionCache:
    """Cached values that are read again after another connection's write."""

    lanes: dict[str, LaneRow | None] = field(default_factory=dict[str, "LaneRow | None"])
    templates: GateTemplates | None = None
    definitions: int = -1


class Session:
    """One connection to the store: one step at a time, and caches that are never stale.

    Numbers of flows, policies, lanes and words never change once committed, so they stay cached.
    Everything else is dropped when another connection has written or a step was rolled back.

    Attributes:
        now: the store's time of the current operation, ms.
        wakes: lanes to wake after the step (None: all), each with the time (None: now).
        memory: cached values that are read again after another connection's write.
        none_parked: gates where the current operation has found no parked jobs.
        watch: detects a replaced or restored store.
    """

    has_tokens = True
    text_list = staticmethod(text_list)
    number_list = staticmethod(number_list)

    def __init__(self, db: Database, clock: Clock) -> None:
        self.db = db
        self.now = 0
        self.wakes: list[tuple[str | None, int | None]] = []
        self.memory = SessionCache()
        self.none_parked: set[str] = set()
        self.numbers = NumberCache(db)
        fresh: Fresh = []
        self._fresh = fresh
        self.flows: SqliteInterned[FlowKey] = SqliteInterned(
            db, "flow", "body", fresh, encode_flow, decode_flow
        )
        self.policies: SqliteInterned[JobPolicy] = SqliteInterned(
            db, "policy", "body", fresh, encode, decode_policy
        )
        self.lanes: SqliteInterned[str] = SqliteInterned(db, "lane", "name", fresh, str, str)
        self.words: SqliteInterned[str] = SqliteInterned(db, "word", "text", fresh, str, str)
        self._clock = clock
        self._version = -1
        self._changes = 0
        self.watch = FingerprintWatch()
        self._epoch = 0

    # Statements that the SQL stores share

    def select(self, select: Select, *bound: Any) -> Rows:  # noqa: ANN401  (depends on the statement)
        """Return the rows of a query."""
        return self.db.execute(resolve(select.text), bound).fetchall()

    def write(self, write: Write, *bound: Any) -> None:  # noqa: ANN401  (depends on the statement)
        """Write a change."""
        self.db.execute(resolve(write.text), bound)

    def number(self, key: int) -> int:
        """Return one of the store's own numbers; 0 if it was never written."""
        return self.numbers[key]

    def put(self, key: int, n: int) -> None:
        """Set one of the store's own numbers."""
        self.numbers.put(key, n)

    # A step

    def begin(self, *, write: bool) -> None:
        """Start a step, which excludes other writers until it ends, or reads one snapshot."""
        self.db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        if not write:
            # The first read takes the snapshot, and only then is its version known.
            self.numbers.load_facts()
        version = self.db.data_version()
        if version != self._version:
            self._forget()
            self._check()
            self._version = version
        self._changes = self.db.total_changes()

    def _check(self) -> None:
        self.numbers.load_facts()
        numbers = self.numbers
        if numbers[SCHEMA] != latest():
            message = (
                f"the store now has schema {numbers[SCHEMA]}, but this program needs {latest()}"
            )
            raise SchemaMismatch(message, hint="restart this process with the current program")
        if numbers[EPOCH] != self._epoch:
            # An operator may have set the store's time back.
            self._epoch, self.now = numbers[EPOCH], 0
        found = self._fingerprint()
        # One connection reads the file's states in order, so the known fingerprint is older.
        if self.watch.may_follow(found, self.watch.known):
            self.watch.accept(found, self.watch.known)
        else:
            self.watch.suspect(found, self.watch.known)

    def _fingerprint(self) -> StoreFingerprint:
        of = self.numbers
        return StoreFingerprint(of[IDENTITY], of[EPOCH], of[EPOCH_AT], of[HIGH_WATER])

    @property
    def changed(self) -> bool:
        """Whether the store was replaced, or restored to an older state."""
        return bool(self.watch.reason) or self.numbers[SUSPECT] > 0

    def take_over(self, before: Session) -> None:
        """Take over the fingerprint of an earlier connection of this process."""
        self.watch, self._epoch = before.watch, before._epoch

    def fix_time(self) -> int:
        """Fix the time of an operation, never before that of an earlier one, and return it."""
        self.now = now = max(self.numbers[HIGH_WATER], self._clock(), self.now)
        self.none_parked.clear()
        return now

    def clock_ahead_ms(self) -> int:
        """Return how far the store's time is ahead of its clock."""
        return max(0, self.now - self._clock())

    def commit(self) -> None:
        """Commit the step."""
        numbers = self.numbers
        wrote = bool(numbers.changed) or self.db.total_changes() != self._changes
        if wrote:
            if self.now > numbers[HIGH_WATER]:
                numbers.put(HIGH_WATER, self.now)
            numbers.write()
        self.db.execute("COMMIT")
        self._version = self.db.data_version()
        self._fresh.clear()
        if wrote:
            self.watch.accept(self._fingerprint(), None)

    def end_reading(self) -> None:
        """End a step that only read, and keep the caches."""
        self.db.execute("COMMIT")
        self._version = self.db.data_version()

    def rollback(self) -> None:
        """Roll the step back."""
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")
        self._remove_fresh(0)
        self.wakes.clear()
        self.numbers.forget()
        self.memory = SessionCache()
        self._version = -1

    def begin_part(self) -> Savepoint:
        """Start a part of the step that can be undone separately."""
        self.db.execute("SAVEPOINT part")
        return Savepoint(dict(self.numbers.changed), len(self._fresh), len(self.wakes))

    def keep_part(self) -> None:
        """Keep the changes of the part."""
        self.db.execute("RELEASE part")

    def undo_part(self, mark: Savepoint) -> None:
        """Undo the changes of the part."""
        self.db.execute("ROLLBACK TO part")
        self.db.execute("RELEASE part")
        self.numbers.back_to(mark.numbers)
        self._remove_fresh(mark.fresh)
        del self.wakes[mark.wakes :]
        self.memory = SessionCache()

    def _remove_fresh(self, after: int) -> None:
        for table, value, number in self._fresh[after:]:
            table.remove(value, number)
        del self._fresh[after:]

    def _forget(self) -> None:
        self.numbers.forget()
        definitions, templates = self.memory.definitions, self.memory.templates
        # Declared gates are many and change rarely; DEFINITIONS shows when they do.
        self.memory = SessionCache(templates=templates, definitions=definitions)


@cache
def resolve(text: str) -> str:
    """Return a shared statement in SQLite's dialect."""
    text = re.sub(r"= ANY \((\$\d+)\)", r"IN carray(\1)", text.replace("@", ""))
    return text.replace("$", "?")
