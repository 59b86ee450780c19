"""A step: how it begins, what it learns of the store then, and how it ends."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

from psycopg.pq import TransactionStatus

from headway.core.errors import InvalidValue, SchemaMismatch
from headway.stores.ledger.fingerprint import StoreFingerprint
from headway.stores.postgres.arrays import Numbers
from headway.stores.postgres.asking import Asking
from headway.stores.postgres.bookkeeping import (
    CLOCK,
    COUNT,
    FACTS,
    FITS,
    FOLD,
    HASTE,
    PUT,
    RAISE_HIGH_WATER,
    SERVER,
)
from headway.stores.postgres.connection import setting
from headway.stores.postgres.done import Done, Speech
from headway.stores.postgres.link import SYNC, Link, Sent
from headway.stores.postgres.mode import Mode, NeedsMore, Repeat
from headway.stores.postgres.numbers import (
    BEHIND,
    DEFINITIONS,
    EPOCH,
    EPOCH_AT,
    HIGH_WATER,
    IDENTITY,
    LANES,
    OLDEST_PROGRAM,
    SCHEMA,
    SUSPECT,
)
from headway.stores.postgres.schema import latest
from headway.stores.postgres.shared import Habit, Shared
from headway.stores.postgres.statement import Asked, Read, Rows

LAG_MS = 1_000
"""By how much the high-water mark may stay behind what an enqueue used."""
FOLD_EVERY = 64
"""Claims and steps with the turn, of one process, after which one with the turn folds counts."""


def lock_key(namespace: str) -> int:
    """The advisory lock that is a namespace's turn."""
    return 0x4864_7779 << 32 | zlib.crc32(namespace.encode())


class Session(Asking):
    """One connection, a step at a time.

    Args:
        shared: with the store's other sessions.
        speech: makes what tells other processes of a commit; None where it is told later.

    Attributes:
        now: the store's time of the step, ms.
        patient: waits for transactions of others that have sent the same keys.
    """

    def __init__(self, shared: Shared, link: Callable[[], Link], speech: Speech) -> None:
        super().__init__(shared, link)
        self.registry = shared.registry
        self.flows, self.policies = self.registry.flows, self.registry.policies
        self.lanes, self.words = self.registry.lanes, self.registry.words
        self.now = 0
        self.patient = False
        self._kind: object = None
        self._speech = speech
        self._lock = lock_key(shared.options.namespace)
        # Behind a pooler each step may have another connection, with the settings of any client.
        pooled = shared.options.pooled
        self._settings = setting(shared.options, local=True) if pooled else ""

    # A step

    def begin(
        self,
        mode: Mode,
        ahead: Sequence[Asked] = (),
        *,
        kind: object = None,
        reads: Callable[[], Sequence[Read]] = list,
    ) -> list[Rows]:
        """Begin a step.

        Args:
            ahead: what the step will ask, answered in the same trip.
            kind: of the step: what it asks besides is asked ahead by the next one.
            reads: makes the questions about many things that go in the same trip.

        Returns:
            The answers to what was asked ahead.

        Raises:
            NeedsMore: a step without a look, of a process that does not know enough.
            psycopg.Error: the connection broke, or the turn did not come in time.
            SchemaMismatch: this program cannot work on the schema any more.
            Repeat: the connection leads to another server than new connections do; it is closed.
        """
        self.forget_step()
        self.mode, self._kind = mode, kind
        self._look_at_link()
        time = self.shared.time
        if mode is Mode.BLIND:
            self._guess()
            return []
        batch: list[Sent] = []
        if mode is not Mode.PEEK:
            batch.append((mode.value, ()))
        if self._settings and mode is not Mode.GUEST:
            batch.append((self._settings, ()))
        if mode is Mode.TURN:
            batch.append(("SELECT pg_advisory_xact_lock($1)", (self._lock,)))
        elif mode is Mode.SHARED:
            batch.append(("SELECT pg_advisory_xact_lock_shared($1)", (self._lock,)))
        elif mode is Mode.INSERT and not self.patient:
            batch.append((HASTE, ()))
        clock = None if time.clock is None else time.clock()
        facts = len(batch)
        # Known before the request is sent, and so older than what the reply says.
        before = self.shared.watch.known
        batch.append((FACTS, (clock, time.epoch, time.floor(time.epoch))))
        batch += [(ask.text, bound) for ask, bound in ahead]
        told_until = len(batch)
        sets = list(reads())
        batch += [(read.text, read.bound) for read in sets]
        answers = self.link.run(batch)
        self._take_facts(answers[facts][0], before)
        for read, rows in zip(sets, answers[told_until:], strict=True):
            read.take(rows)
        told = answers[facts + 1 : told_until]
        for (ask, bound), rows in zip(ahead, told, strict=True):
            if ask.ahead:
                self._answers[ask, bound] = rows
            else:
                self._given[ask] = (bound, rows)
        return told

    def _guess(self) -> None:
        time, templates = self.shared.time, self.shared.templates
        guess, identity = time.guess(), self.shared.identity
        if guess is None or templates is None or not identity:
            raise NeedsMore
        self.now = max(guess, time.floor(time.epoch))
        self._facts = {
            DEFINITIONS: templates.version,
            LANES: self.shared.lanes.version,
            IDENTITY: identity,
            EPOCH: time.epoch,
        }

    def _take_facts(self, row: tuple[Any, ...], before: StoreFingerprint | None) -> None:
        self.now, clock, keys, ns = row
        self._facts = dict(zip(keys, ns, strict=True))
        get = self.number
        if get(SCHEMA) != latest() and get(OLDEST_PROGRAM) > latest():
            message = f"the schema of the store became {get(SCHEMA)}, this program has {latest()}"
            raise SchemaMismatch(message, hint="restart this process with the current program")
        if self.mode is Mode.GUEST:
            self._look_as_guest()
            return
        time = self.shared.time
        time.heard(clock)
        if self.mode in {Mode.TURN, Mode.PEEK, Mode.WHOLE} and self.shared.marks.version != get(
            BEHIND
        ):
            self.shared.marks.clear()
            self.shared.marks.version = get(BEHIND)
        self.shared.high_water = get(HIGH_WATER)
        time.used(self.now, get(EPOCH))
        if self.shared.identity != get(IDENTITY):
            self.shared.forget()
            self.shared.identity = get(IDENTITY)
        if self.mode in {Mode.TURN, Mode.PEEK, Mode.SHARED, Mode.BEAT}:
            self._look(before)

    def _look(self, before: StoreFingerprint | None) -> None:
        watch, sight = self.shared.watch, self._fingerprint()
        if watch.may_follow(sight, before):
            watch.accept(sight, before)
        elif self.mode is not Mode.TURN:
            raise NeedsMore
        elif watch.reason or self._is_server_of_new_connections():
            watch.suspect(sight, before)
        else:
            self.drop()
            self.shared.forget()
            raise Repeat

    def _fingerprint(self) -> StoreFingerprint:
        get = self.number
        return StoreFingerprint(get(IDENTITY), get(EPOCH), get(EPOCH_AT), get(HIGH_WATER))

    def _is_server_of_new_connections(self) -> bool:
        """Return whether this step is on the server to which a fresh connection leads.

        After a failover an old connection may still lead to the server that was replaced. What it
        says proves nothing about the store.
        """
        (here,) = self.link.run([(SERVER, ())])
        fresh = self._connect()
        try:
            (there,) = fresh.run([(SERVER, ())])
        finally:
            fresh.close()
        return here == there

    def _look_as_guest(self) -> None:
        """Keep nothing of it: a transaction of the caller may see an old state, or be undone.

        Raises:
            InvalidValue: it is another database.
        """
        if self.number(IDENTITY) != self.shared.identity:
            message = "the connection is to another database than the store's"
            raise InvalidValue(message, hint="give one to the database of the store's URL")

    def whole(self, batch: Sequence[Sent]) -> list[Rows]:
        """Run statements as one step, beside others that share, in one trip.

        What would end another step after its look must make a statement of this one fail: the
        facts come back when it is committed.

        Returns:
            The rows of each.

        Raises:
            psycopg.Error: nothing was written, or the connection broke.
        """
        self.forget_step()
        self.mode, self._kind = Mode.WHOLE, None
        self._look_at_link()
        time = self.shared.time
        clock = None if time.clock is None else time.clock()
        head: list[Sent] = [(self._settings, ())] if self._settings else []
        head += [
            ("SELECT pg_advisory_xact_lock_shared($1)", (self._lock,)),
            (FACTS, (clock, time.epoch, time.floor(time.epoch))),
        ]
        before = self.shared.watch.known
        answers = self.link.run([*head, *batch])
        self._take_facts(answers[len(head) - 1][0], before)
        found = self._fingerprint()
        if self.shared.watch.may_follow(found, before):
            self.shared.watch.accept(found, before)
        return answers[len(head) :]

    @property
    def learns(self) -> bool:
        """Whether what it reads may be kept: it is committed, and ours."""
        return not self.defined and self.mode is not Mode.GUEST

    @property
    def changed(self) -> bool:
        """The store is not the one that was seen before, or an older state of it."""
        return bool(self.shared.watch.reason) or self.number(SUSPECT) > 0

    def clock_ahead_ms(self) -> int:
        """By how much the store's time is ahead of its clock."""
        clock = self.shared.time.clock
        if clock is not None:
            return max(0, self.now - clock())
        told = self.fetch(f"SELECT {CLOCK}", ())
        return max(0, self.now - told[0][0])

    # Its end

    def commit(self) -> Done:
        """End the step and keep what it wrote.

        Raises:
            psycopg.Error: it could not; what its breaking means, who calls this must say.
        """
        woken = dict.fromkeys(self.wakes)
        batch = self._closing()
        sent = len(batch)
        if self.mode is Mode.GUEST:
            batch.append(("RELEASE SAVEPOINT headway_send", ()))
        elif self.mode is not Mode.BLIND and self.mode is not Mode.PEEK:
            batch.append(("COMMIT", ()))
        speech = self._speech(woken) if woken and self._wrote else None
        if speech is not None:
            # After the commit: who begins to listen later looks once more, and sees it.
            batch += [(SYNC, ()), speech] if self.mode is Mode.BLIND else [speech]
        answers = self.link.run(batch) if batch else []
        if self.mode is Mode.BLIND and sent:
            self.shared.time.heard(answers[0][0][0])
            self.shared.time.used(self.now, self.number(EPOCH))
        elif self.mode is Mode.TURN and self._wrote:
            self.shared.marks.version = self.number(BEHIND)
            for flow, (floors, started) in self.risen.items():
                self.shared.marks.rise(flow, floors, started)
            self.shared.high_water = self.number(HIGH_WATER)
            self.shared.watch.accept(self._fingerprint(), None)
        self._learn()
        return Done(self._wrote, woken, speech is not None)

    def _closing(self) -> list[Sent]:
        self._settle_gathered()
        batch, self._queue = self._queue, []
        adds = self._wrote and self.mode in {Mode.BLIND, Mode.INSERT, Mode.BEAT}
        if adds and self.now > self.shared.high_water + LAG_MS:
            # Seldom, because a step with the turn waits for the step that writes it.
            self.shared.high_water = self.now
            batch.append((RAISE_HIGH_WATER, (self.now,)))
        counts = {key: n for key, n in self._counts.items() if n or key in self._standing}
        if self.mode is Mode.BLIND and batch:
            batch.insert(0, (FITS, (*_pair(counts), *self._granted())))
            return batch
        if counts:
            self._wrote = True
            batch.append((COUNT, _pair(counts)))
        if self.mode is Mode.TURN and self._wrote:
            self.shared.unfolded += 1
            if self.shared.unfolded >= FOLD_EVERY:
                self.shared.unfolded = 0
                batch.append((FOLD, ()))
            if self.behind:
                self.put(BEHIND, self.number(BEHIND) + 1)
            if self.now > self.number(HIGH_WATER):
                self.put(HIGH_WATER, self.now)
            if self._changed:
                batch.append((PUT, _pair(self._changed)))
        return batch

    def _granted(self) -> tuple[int | None, ...]:
        clock = self.shared.time.clock
        facts = (self._facts[key] for key in (DEFINITIONS, LANES, IDENTITY, EPOCH))
        return (*facts, None if clock is None else clock(), self.now)

    def _learn(self) -> None:
        if self._kind is not None:
            habit = Habit(
                tuple(self._used),
                tuple(self.looked_at),
                self.wanted,
                tuple(self.lanes_asked),
                frozenset(one for one in self._used if not self._answers.get(one, True)),
            )
            self.shared.learn(self._kind, habit)

    def rollback(self) -> None:
        """End the step; what it wrote is gone."""
        link, self._link = self._link, None
        if link is None:
            return
        if link.broken:
            link.close()
            self.shared.forget()
            return
        self._link = link
        if self.mode is Mode.GUEST:
            link.run(
                [
                    ("ROLLBACK TO SAVEPOINT headway_send", ()),
                    ("RELEASE SAVEPOINT headway_send", ()),
                ]
            )
        elif link.connection.info.transaction_status is not TransactionStatus.IDLE:
            link.run([("ROLLBACK", ())])


def _pair(numbers: dict[int, int]) -> tuple[Numbers, Numbers]:
    return Numbers(numbers), Numbers(numbers.values())
