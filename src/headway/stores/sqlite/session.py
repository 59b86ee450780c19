"""One connection, and what it remembers from one step to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headway.contract.clock import Clock
from headway.core.errors import SchemaMismatch
from headway.core.job import JobPolicy
from headway.stores.ledger.gaterows import TemplateRow
from headway.stores.ledger.packing import (
    decode_flow,
    decode_policy,
    encode_flow,
    encode_policy,
)
from headway.stores.ledger.rows import FlowKey, LaneRow
from headway.stores.ledger.sights import Sight, Watch
from headway.stores.sqlite.database import Database
from headway.stores.sqlite.interned import Interned
from headway.stores.sqlite.numbers import (
    EPOCH,
    EPOCH_AT,
    HIGH_WATER,
    IDENTITY,
    SCHEMA,
    SUSPECT,
    Mark,
    Numbers,
)
from headway.stores.sqlite.schema import latest

_FLOWS = (
    "SELECT no FROM flow WHERE body = ?",
    "SELECT body FROM flow WHERE no = ?",
    "INSERT INTO flow (body) VALUES (?) RETURNING no",
)
_POLICIES = (
    "SELECT no FROM policy WHERE body = ?",
    "SELECT body FROM policy WHERE no = ?",
    "INSERT INTO policy (body) VALUES (?) RETURNING no",
)
_LANES = (
    "SELECT no FROM lane WHERE name = ?",
    "SELECT name FROM lane WHERE no = ?",
    "INSERT INTO lane (name) VALUES (?) RETURNING no",
)
_WORDS = (
    "SELECT no FROM word WHERE text = ?",
    "SELECT text FROM word WHERE no = ?",
    "INSERT INTO word (text) VALUES (?) RETURNING no",
)


class Bookmark(NamedTuple):
    """Where a part of a step begins."""

    numbers: Mark
    interned: tuple[int, ...]
    wakes: int


@dataclass(slots=True)
class Remembered:
    """What is read again after somebody else wrote."""

    lanes: dict[str, LaneRow | None] = field(default_factory=dict[str, "LaneRow | None"])
    templates: Mapping[str, TemplateRow] | None = None
    definitions: int = -1


class Session:
    """One connection to the store: a step at a time, and caches that are never wrong.

    Numbers of flows, policies, lanes and words never change once committed, so they are kept for
    ever; the rest is forgotten when another connection has written or a step was rolled back.

    Attributes:
        db: the connection.
        now: the store's time of the present operation, ms.
        wakes: lanes to be woken after the step (None: any), with from when (None: now).
        memory: what is read again after somebody else wrote.
        watch: over the store's identity.
    """

    def __init__(self, db: Database, clock: Clock) -> None:
        self.db = db
        self.now = 0
        self.wakes: list[tuple[str | None, int | None]] = []
        self.memory = Remembered()
        self.numbers = Numbers(db)
        self.flows: Interned[FlowKey] = Interned(db, _FLOWS, encode_flow, decode_flow)
        self.policies: Interned[JobPolicy] = Interned(db, _POLICIES, encode_policy, decode_policy)
        self.lanes: Interned[str] = Interned(db, _LANES, _text, _text)
        self.words: Interned[str] = Interned(db, _WORDS, _text, _text)
        self._interned = (self.flows, self.policies, self.lanes, self.words)
        self._clock = clock
        self._version = -1
        self._changes = 0
        self.watch = Watch()
        self._epoch = 0
        self._looking = False

    # A step

    def begin(self, *, write: bool) -> None:
        """Begins a step: nobody else writes until it ends, or it reads one snapshot.

        Args:
            write: whether anything may be written.
        """
        self.db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        if not write:
            # The snapshot is taken by the first read, and the version is known only then.
            self.numbers.load_facts()
        version = self.db.data_version()
        if version != self._version or self._looking:
            self._looking = False
            self._forget()
            self._look()
            self._version = version
        self._changes = self.db.total_changes()

    def _look(self) -> None:
        self.numbers.load_facts()
        get = self.numbers.get
        if get(SCHEMA) != latest():
            message = (
                f"the schema of the store became {get(SCHEMA)}, and this program has {latest()}"
            )
            raise SchemaMismatch(message, hint="restart this process with the current program")
        if get(EPOCH) != self._epoch:
            # An operator may have set the store's time back.
            self._epoch, self.now = get(EPOCH), 0
        sight = self._sight()
        # One connection sees the file in order, so that all that is known is older than this.
        if self.watch.may_follow(sight, self.watch.known):
            self.watch.accept(sight, self.watch.known)
        else:
            self.watch.suspect(sight, self.watch.known)

    def _sight(self) -> Sight:
        get = self.numbers.get
        return Sight(get(IDENTITY), get(EPOCH), get(EPOCH_AT), get(HIGH_WATER))

    @property
    def changed(self) -> bool:
        """The store is not the one that was seen before, or an older state of it."""
        return bool(self.watch.reason) or self.numbers.get(SUSPECT) > 0

    def look_again(self) -> None:
        """The next step looks at the store's facts anew, whoever wrote last."""
        self._looking = True

    def follow(self, before: Session) -> None:
        """Takes over what an earlier connection of this process saw of the store."""
        self.watch, self._epoch = before.watch, before._epoch

    def tell_time(self) -> int:
        """Fixes the time of an operation: never before that of any earlier one."""
        self.now = now = max(self.numbers.get(HIGH_WATER), self._clock(), self.now)
        return now

    def clock_ahead_ms(self) -> int:
        """By how much the store's time is ahead of its clock."""
        return max(0, self.now - self._clock())

    def commit(self) -> bool:
        """Ends the step and keeps what it wrote.

        Returns:
            Whether it wrote anything.
        """
        wrote = self.numbers.changed or self.db.total_changes() != self._changes
        if wrote:
            if self.now > self.numbers.get(HIGH_WATER):
                self.numbers.put(HIGH_WATER, self.now)
            self.numbers.write()
        self.db.execute("COMMIT")
        self._version = self.db.data_version()
        self.numbers.keep()
        if wrote:
            self.watch.accept(self._sight(), None)
        for one in self._interned:
            one.keep()
        return wrote

    def end_reading(self) -> None:
        """Ends a step that only read; what it found is remembered."""
        self.db.execute("COMMIT")
        self._version = self.db.data_version()

    def rollback(self) -> None:
        """Ends the step; what it wrote is gone."""
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")
        for one in self._interned:
            one.back_to(0)
        self.wakes.clear()
        self.numbers.forget()
        self.memory = Remembered()
        self._version = -1

    def mark(self) -> Bookmark:
        """Begins a part of the step that may be undone by itself."""
        self.db.execute("SAVEPOINT part")
        interned = tuple(one.mark() for one in self._interned)
        return Bookmark(self.numbers.mark(), interned, len(self.wakes))

    def keep_part(self) -> None:
        """The part stays."""
        self.db.execute("RELEASE part")

    def undo_part(self, mark: Bookmark) -> None:
        """The part is gone."""
        self.db.execute("ROLLBACK TO part")
        self.db.execute("RELEASE part")
        self.numbers.back_to(mark.numbers)
        for one, place in zip(self._interned, mark.interned, strict=True):
            one.back_to(place)
        del self.wakes[mark.wakes :]
        self.memory = Remembered()

    def _forget(self) -> None:
        self.numbers.forget()
        definitions, templates = self.memory.definitions, self.memory.templates
        # Declared gates are many and change seldom: their own number says when.
        self.memory = Remembered(templates=templates, definitions=definitions)


def _text(value: str) -> str:
    return value
