"""A session: one connection, the step on it, and what that step reads and writes."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

from psycopg.pq import TransactionStatus

from headway.core.errors import InvalidValue, SchemaMismatch
from headway.stores.ledger.fingerprint import FingerprintWatch, StoreFingerprint
from headway.stores.postgres.arrays import Numbers, Texts
from headway.stores.postgres.connection import setting
from headway.stores.postgres.link import SYNC, BoundStatement, Link, leads_where_new_ones_lead
from headway.stores.postgres.numbers import (
    BEHIND,
    CLOCK,
    COUNT,
    FACTS,
    FITS,
    FOLD,
    FOLD_EVERY,
    HASTE,
    LAG_MS,
    LANES,
    OLDEST_PROGRAM,
    PUT,
    RAISE_HIGH_WATER,
    SUSPECT,
    TOKENS_SINCE,
)
from headway.stores.postgres.schema import latest
from headway.stores.postgres.shared import Done, MakeNotice, Shared
from headway.stores.postgres.statement import (
    TERMS,
    UNDO_GUEST,
    BoundSelect,
    Each,
    Mode,
    NeedsMore,
    Read,
    Repeat,
    StepKind,
    Thing,
)
from headway.stores.postgres.step_cache import StepCache
from headway.stores.sql.statement import (
    DEFINITIONS,
    EPOCH,
    EPOCH_AT,
    HIGH_WATER,
    IDENTITY,
    SCHEMA,
    Rows,
    Select,
    Write,
)

_FINGERPRINT = (IDENTITY, EPOCH, EPOCH_AT, HIGH_WATER)

Columns = Callable[[list[Any]], tuple[Any, ...]]
"""Makes the parameters of a statement from gathered rows."""


def lock_key(namespace: str) -> int:
    """Return the key of the advisory lock that exclusive steps of a namespace hold."""
    return 0x4864_7779 << 32 | zlib.crc32(namespace.encode())


class Session:
    """One connection, a step at a time.

    Args:
        shared: with the store's other sessions.
        connect: opens the connection.
        make_notice: makes what notifies other processes with a commit.

    Attributes:
        now: the store's time of the step, ms.
        cache: what the step has read.
        wakes: lanes to wake after the step (None: any), each with the moment (None: now).
        patient: whether it waits for transactions of others that have sent the same keys.
        hasty: whether it waits only briefly for such a transaction.
        behind: whether the step lets jobs wait that may stand before others.
        defined: whether it has written definitions, so that nothing of them may be kept.
        alone: whether it has written what only an exclusive step may.
    """

    text_list = Texts
    number_list = Numbers

    def __init__(
        self, shared: Shared, connect: Callable[[], Link], make_notice: MakeNotice
    ) -> None:
        self.shared = shared
        self.registry = shared.registry
        self.flows, self.policies = self.registry.flows, self.registry.policies
        self.lanes, self.words = self.registry.lanes, self.registry.words
        self.now = 0
        self.patient = False
        self._forgotten = -1
        self._connect = connect
        self._link: Link | None = None
        self._make_notice = make_notice
        self._lock = lock_key(shared.options.namespace)
        # Behind a pooler each step may have another connection, with the settings of any client.
        pooled = shared.options.pooled
        self._settings = setting(shared.options, local=True) if pooled else ""
        self._reset(Mode.READ)

    def _reset(self, mode: Mode, kind: StepKind | None = None) -> None:
        self.mode, self._kind = mode, kind
        self._terms = TERMS[mode]
        self.cache = StepCache()
        self.wakes: list[tuple[str | None, int | None]] = []
        self.hasty = self.behind = self.defined = self.alone = False
        self._wrote = self._guards = False
        self._facts: dict[int, int] = {}
        self._changed: dict[int, int] = {}
        self._counts: dict[int, int] = {}
        self._standing: set[int] = set()
        self._queue: list[BoundStatement] = []
        self._gathered: dict[Write, tuple[Columns, dict[Thing, Any]]] = {}

    # The connection

    @property
    def link(self) -> Link:
        """The connection, opened if need be."""
        link = self._link
        if link is None:
            link = self._link = self._connect()
        return link

    def drop(self) -> None:
        """Release the connection; the next step opens another."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    # The store's numbers

    def number(self, key: int) -> int:
        """Return one of the store's own numbers; 0 if it was never written."""
        found = self._changed.get(key)
        return self._facts.get(key, 0) if found is None else found

    def put(self, key: int, n: int) -> None:
        """Set one of the store's own numbers, in an exclusive step."""
        self.need_exclusive()
        self._changed[key] = n
        self._wrote = True

    def count(self, key: int, n: int) -> None:
        """Add to a number that many steps add to."""
        self._counts[key] = self._counts.get(key, 0) + n

    def stand(self, key: int) -> None:
        """Write a number that many steps add to even if it stays 0."""
        self._counts.setdefault(key, 0)
        self._standing.add(key)

    # Reading

    def select(self, select: Select, *bound: Any) -> Rows:  # noqa: ANN401  (depends on the statement)
        """Return the rows of a query, as of now and of what this step wrote."""
        if not select.ahead:
            return self.fetch(select.text, bound)
        key, cache = (select, bound), self.cache
        cache.used[key] = None
        found = cache.answers.get(key)
        if found is None:
            found = cache.answers[key] = self.fetch(select.text, bound)
        return found

    def fetch(self, text: str, bound: tuple[Any, ...]) -> Rows:
        """Send a query, with what was written so far; see `fetch_all`."""
        return self.fetch_all([(text, bound)])[0]

    def fetch_all(self, batch: Sequence[BoundStatement]) -> list[Rows]:
        """Send several queries in one trip, with what was written so far.

        Raises:
            NeedsMore: the step may not read, or not read more.
        """
        if self.mode is Mode.BLIND or self.mode is Mode.PEEK:
            raise NeedsMore
        self._queue_gathered()
        queued, self._queue = self._queue, []
        answers = self.link.run([*queued, *batch])
        return answers[len(answers) - len(batch) :]

    def each(self, each: Each, things: Sequence[Thing]) -> dict[Any, Rows]:
        """Return the rows about each thing, and maybe about others; not to be changed."""
        read = self.cache.read_of(each, things)
        if read is not None:
            read.take(self.fetch(read.text, read.bound))
        return self.cache.each(each)

    def read_all(self, reads: Sequence[Read]) -> None:
        """Read all of it in one trip."""
        if reads:
            answers = self.fetch_all([(read.text, read.bound) for read in reads])
            for read, rows in zip(reads, answers, strict=True):
                read.take(rows)

    # Writing

    def write(
        self,
        write: Write,
        *bound: Any,  # noqa: ANN401  (depends on the statement)
        patched: Sequence[Each] = (),
    ) -> None:
        """Write something; it is sent with the next query, or with the commit.

        The caller itself updates the cached rows of the queries in `patched`.
        """
        self._writes(write, patched)
        self._queue.append((write.text, bound))

    def gather(
        self,
        write: Write,
        name: Thing,
        row: Any,  # noqa: ANN401  (depends on the statement)
        columns: Columns,
        patched: Sequence[Each] = (),
    ) -> None:
        """Write a row together with others of the same statement; see `write`.

        Args:
            name: of the row; it replaces one that was gathered under the same name.
            columns: makes the parameters from all rows.
        """
        known = self._gathered.get(write)
        self._writes(write, patched, gathering=known is not None)
        if known is None:
            known = self._gathered[write] = (columns, {})
        known[1].pop(name, None)
        known[1][name] = row

    def _queue_gathered(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for write, (columns, rows) in gathered.items():
            self._queue.append((write.text, columns(list(rows.values()))))

    def send_ahead(self) -> None:
        """Let the server begin with what was written so far, if the step only adds."""
        if self.mode is Mode.INSERT or self.mode is Mode.BLIND:
            self._queue_gathered()
            queued, self._queue = self._queue, []
            if queued:
                self.link.send_ahead(self._guarded(queued))

    def do(self, write: Write, *bound: Any) -> Rows:  # noqa: ANN401  (depends on the statement)
        """Write something now, for the rows that it returns."""
        self._writes(write)
        return self.fetch(write.text, bound)

    def _writes(
        self, write: Write, patched: Sequence[Each] = (), *, gathering: bool = False
    ) -> None:
        limited = self.mode in {Mode.SHARED, Mode.BEAT} and write.beside is not self.mode
        if limited or self.mode in {Mode.PEEK, Mode.LOOK, Mode.READ}:
            raise NeedsMore
        self._wrote = True
        self.alone = self.alone or write.beside is not Mode.SHARED
        if not gathering and any(one.changes & write.changes for one in self._gathered):
            self._queue_gathered()
        self.cache.invalidate(write.changes, patched)

    def need_exclusive(self) -> None:
        """Continue only in an exclusive step.

        Raises:
            NeedsMore: other steps may decide meanwhile.
        """
        if self.mode is not Mode.EXCLUSIVE:
            raise NeedsMore

    # The begin of a step

    def begin(
        self,
        mode: Mode,
        ahead: Sequence[BoundSelect] = (),
        *,
        kind: StepKind | None = None,
        reads: Callable[[], Sequence[Read]] = list,
    ) -> list[Rows]:
        """Begin a step.

        Args:
            mode: how much of the store it has for itself.
            ahead: queries that are sent in the same trip.
            kind: of the step: what it asks besides is prefetched by the next one of its kind.
            reads: makes further queries for the same trip.

        Returns:
            The rows of each query of `ahead`.

        Raises:
            NeedsMore: the step may not read, and the process does not know enough.
            psycopg.Error: the connection broke, or the lock was not free in time.
            SchemaMismatch: this program cannot work on the schema any more.
            Repeat: the connection leads to another server than new connections do; it is closed.
        """
        self._reset(mode, kind)
        self._drop_if_hung_up()
        if mode is Mode.BLIND:
            self._guess()
            return []
        sets = list(reads())
        batch = [(select.text, bound) for select, bound in ahead]
        answers = self._send(batch + [(read.text, read.bound) for read in sets])
        found, others = answers[: len(batch)], answers[len(batch) :]
        for read, rows in zip(sets, others, strict=True):
            read.take(rows)
        for asked, rows in zip(ahead, found, strict=True):
            if asked[0].ahead:
                self.cache.answers[asked] = rows
        return found

    def whole(self, batch: Sequence[BoundStatement]) -> list[Rows]:
        """Run statements as one shared step, in one trip, and return the rows of each.

        What would end another step after its facts are read must make a statement of this one
        fail, because the facts arrive when it is committed.

        Raises:
            psycopg.Error: nothing was written, or the connection broke.
        """
        self._reset(Mode.WHOLE)
        self._drop_if_hung_up()
        return self._send(batch)

    def _drop_if_hung_up(self) -> None:
        """Drop a connection that the server has closed between two steps."""
        if self._link is not None and not self._link.alive():
            self.drop()
            self.shared.forget()

    def _send(self, batch: Sequence[BoundStatement]) -> list[Rows]:
        """Send the head of the step with `batch`, and apply the store's facts."""
        terms, time = self._terms, self.shared.time
        head: list[BoundStatement] = [(terms.begin, ())] if terms.begin else []
        if self._settings and self.mode is not Mode.GUEST:
            head.append((self._settings, ()))
        if terms.lock:
            head.append((terms.lock, (self._lock,)))
        elif self.mode is Mode.INSERT and not self.patient:
            head.append((HASTE, ()))
        clock = None if time.clock is None else time.clock()
        head.append((FACTS, (clock, time.epoch, time.floor(time.epoch))))
        # Known before the request is sent, and so older than what the reply says.
        before = self.shared.watch.known
        answers = self.link.run([*head, *batch])
        self._take_facts(answers[len(head) - 1][0], before)
        return answers[len(head) :]

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
        facts = self._facts = dict(zip(keys, ns, strict=True))
        shared = self.shared
        if facts.get(SCHEMA) != latest() and facts.get(OLDEST_PROGRAM, 0) > latest():
            found = facts.get(SCHEMA, 0)
            message = f"the schema of the store became {found}, this program has {latest()}"
            raise SchemaMismatch(message, hint="restart this process with the current program")
        if self.mode is Mode.GUEST:
            # Nothing of it is kept: the caller's transaction may see an old state, or be undone.
            if facts.get(IDENTITY, 0) != shared.identity:
                message = "the connection is to a different database from the store's"
                raise InvalidValue(
                    message, hint="pass a connection to the database in the store's URL"
                )
            return
        shared.time.heard(clock)
        shared.time.used(self.now, facts.get(EPOCH, 0))
        if self._terms.marked:
            shared.marks.follow(facts.get(BEHIND, 0))
        shared.high_water = facts.get(HIGH_WATER, 0)
        shared.follow(facts.get(IDENTITY, 0))
        self._forgotten = shared.forgotten
        if self._terms.checked:
            self._check_fingerprint(before)

    def _check_fingerprint(self, before: StoreFingerprint | None) -> None:
        watch, found = self.shared.watch, self._fingerprint()
        if watch.may_follow(found, before):
            watch.accept(found, before)
        elif self.mode is Mode.WHOLE:
            # It is committed already, after its own check.
            return
        elif self.mode is not Mode.EXCLUSIVE:
            raise NeedsMore
        elif watch.reason or leads_where_new_ones_lead(self.link, self._connect):
            watch.suspect(found, before)
        else:
            self.drop()
            self.shared.forget()
            raise Repeat

    def _fingerprint(self) -> StoreFingerprint:
        known = {**self._facts, **self._changed}
        return StoreFingerprint(*[known.get(key, 0) for key in _FINGERPRINT])

    @property
    def watch(self) -> FingerprintWatch:
        """Detects a replaced or restored store."""
        return self.shared.watch

    @property
    def changed(self) -> bool:
        """Whether the store was replaced, or restored to an older state."""
        return bool(self.shared.watch.reason) or self.number(SUSPECT) > 0

    @property
    def learns(self) -> bool:
        """Whether what it reads may be kept: it is committed, and ours."""
        return not self.defined and self.mode is not Mode.GUEST

    @property
    def has_tokens(self) -> bool:
        """Whether there may be tokens; a change is tried on any schema, to be refused."""
        return self.mode is not Mode.READ or self.number(SCHEMA) >= TOKENS_SINCE

    def clock_ahead_ms(self) -> int:
        """Return how far the store's time is ahead of its clock."""
        clock = self.shared.time.clock
        at = clock() if clock is not None else self.fetch(f"SELECT {CLOCK}", ())[0][0]
        return max(0, self.now - at)

    # Its end

    def commit(self) -> Done:
        """Commit the step.

        Raises:
            psycopg.Error: it failed; if the connection broke, the outcome is not known.
        """
        woken = dict.fromkeys(self.wakes)
        batch = self._last_writes()
        if self._terms.end:
            batch.append((self._terms.end, ()))
        notice = self._make_notice(woken) if woken and self._wrote else None
        if notice is not None:
            # After the commit: who begins to listen later looks once more, and sees it.
            batch += [(SYNC, ()), notice] if self.mode is Mode.BLIND else [notice]
        answers = self.link.run(batch) if batch or self._guards else []
        shared = self.shared
        if self._guards:
            shared.time.heard(answers[0][0][0])
            shared.time.used(self.now, self.number(EPOCH))
        elif self.mode is Mode.EXCLUSIVE and self._wrote:
            shared.marks.version = self.number(BEHIND)
            for flow, (floors, started) in self.cache.risen.items():
                shared.marks.rise(flow, floors, started)
            shared.high_water = self.number(HIGH_WATER)
            shared.watch.accept(self._fingerprint(), None)
        self.learn()
        return Done(self._wrote, woken, notice is not None)

    def learn(self) -> None:
        """Remember what the step has read, for the next one of its kind."""
        if self._kind is not None and self._forgotten == self.shared.forgotten:
            self.shared.learn(self._kind, self.cache)

    def _last_writes(self) -> list[BoundStatement]:
        self._queue_gathered()
        batch, self._queue = self._queue, []
        shared = self.shared
        if self._wrote and self._terms.beside and self.now > shared.high_water + LAG_MS:
            # Seldom, because an exclusive step waits for the step that writes it.
            shared.high_water = self.now
            batch.append((RAISE_HIGH_WATER, (self.now,)))
        batch = self._guarded(batch)
        if counts := self._taken_counts():
            self._wrote = True
            batch.append((COUNT, _pair(counts)))
        if self.mode is Mode.EXCLUSIVE and self._wrote:
            shared.unfolded += 1
            if shared.unfolded >= FOLD_EVERY:
                shared.unfolded = 0
                batch.append((FOLD, ()))
            if self.behind:
                self.put(BEHIND, self.number(BEHIND) + 1)
            if self.now > self.number(HIGH_WATER):
                self.put(HIGH_WATER, self.now)
            if self._changed:
                batch.append((PUT, _pair(self._changed)))
        return batch

    def _guarded(self, batch: list[BoundStatement]) -> list[BoundStatement]:
        """Put the check of what the step assumes before the first statements that it sends."""
        if self.mode is not Mode.BLIND or self._guards or not batch:
            return batch
        self._guards = True
        return [(FITS, (*_pair(self._taken_counts()), *self._assumptions())), *batch]

    def _taken_counts(self) -> dict[int, int]:
        counts, self._counts = self._counts, {}
        if 0 in counts.values():
            counts = {key: n for key, n in counts.items() if n or key in self._standing}
        return counts

    def _assumptions(self) -> tuple[int | None, ...]:
        clock, facts = self.shared.time.clock, self._facts
        at = clock() if clock is not None else None
        return facts[DEFINITIONS], facts[LANES], facts[IDENTITY], facts[EPOCH], at, self.now

    def rollback(self) -> None:
        """Roll the step back."""
        link, self._link = self._link, None
        if link is None:
            return
        if link.broken:
            link.close()
            self.shared.forget()
            return
        self._link = link
        if self.mode is Mode.GUEST:
            link.run([(text, ()) for text in UNDO_GUEST])
        elif link.connection.info.transaction_status is not TransactionStatus.IDLE:
            link.run([("ROLLBACK", ())])


def _pair(numbers: dict[int, int]) -> tuple[Numbers, Numbers]:
    return Numbers(numbers), Numbers(numbers.values())
