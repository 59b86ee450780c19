"""A session: one connection, the current step on it, and the step's reads and writes."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

from psycopg.pq import TransactionStatus

from headway.core.errors import InvalidValue, SchemaMismatch
from headway.stores.ledger.fingerprint import FingerprintWatch, StoreFingerprint
from headway.stores.postgres.arrays import Numbers, Texts
from headway.stores.postgres.connection import setting
from headway.stores.postgres.link import SYNC, BoundStatement, Link, leads_to_current_server
from headway.stores.postgres.numbers import (
    BEHIND,
    CLOCK,
    COUNT,
    FACTS,
    FITS,
    FOLD,
    FOLD_EVERY,
    LAG_MS,
    LANES,
    OLDEST_PROGRAM,
    PUT,
    RAISE_HIGH_WATER,
    SUSPECT,
    TOKENS_SINCE,
    WAIT_BRIEFLY,
)
from headway.stores.postgres.schema import latest
from headway.stores.postgres.shared import Done, MakeNotice, Shared
from headway.stores.postgres.statement import (
    TERMS,
    UNDO_SAVEPOINT,
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

_Columns = Callable[[list[Any]], tuple[Any, ...]]
"""Build the parameters of a statement from gathered rows."""


def lock_key(namespace: str) -> int:
    """Return the key of the advisory lock held by a namespace's exclusive steps."""
    return 0x4864_7779 << 32 | zlib.crc32(namespace.encode())


class Session:
    """One connection, running one step at a time.

    Args:
        shared: state shared with the store's other sessions.
        connect: opens the connection.
        make_notice: builds the statement that notifies other processes with a commit.

    Attributes:
        now: the store's time of the step, ms.
        cache: rows that the step has read.
        wakes: lanes to wake after the step (None: any), each with its time (None: now).
        waits_for_keys: whether to wait for other transactions that insert the same keys.
        waits_briefly: whether to wait only briefly for such a transaction.
        behind: whether the exclusive step makes jobs wait that may precede others.
        queued: flow, priority, due time and seq of such jobs, if the step is not exclusive.
        lowered: see `LowWaterMarks.rise`.
        defined: whether the step has written definitions, so that none may be cached.
        wrote_exclusively: whether it has written something that only an exclusive step may write.
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
        self.waits_for_keys = False
        self.lowered = 0
        self._forgotten = -1
        self._connect = connect
        self._link: Link | None = None
        self._make_notice = make_notice
        self._lock = lock_key(shared.options.namespace)
        # Behind a pooler, each step may get a different connection, with the settings of any
        # client.
        pooled = shared.options.pooled
        self._settings = setting(shared.options, local=True) if pooled else ""
        self._reset(Mode.READ)

    def _reset(self, mode: Mode, kind: StepKind | None = None) -> None:
        self.mode, self._kind = mode, kind
        self._terms = TERMS[mode]
        self.cache = StepCache()
        self.wakes: list[tuple[str | None, int | None]] = []
        self.waits_briefly = self.behind = self.defined = self.wrote_exclusively = False
        self.queued: list[tuple[int, int, int, int]] = []
        self._wrote = self._sent_guard = False
        self._raised_to = 0
        self._facts: dict[int, int] = {}
        self._changed: dict[int, int] = {}
        self._counts: dict[int, int] = {}
        self._kept_counts: set[int] = set()
        self._queue: list[BoundStatement] = []
        self._gathered: dict[Write, tuple[_Columns, dict[Thing, Any]]] = {}

    # The connection

    @property
    def link(self) -> Link:
        """Return the connection; open it if there is none."""
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
        """Return one of the store's numbers; 0 if it was never written."""
        found = self._changed.get(key)
        return self._facts.get(key, 0) if found is None else found

    def put(self, key: int, n: int) -> None:
        """Set one of the store's numbers, in an exclusive step."""
        self.need_exclusive()
        self._changed[key] = n
        self._wrote = True

    def count(self, key: int, n: int) -> None:
        """Add to a counter."""
        self._counts[key] = self._counts.get(key, 0) + n

    def keep_count(self, key: int) -> None:
        """Write a counter even if it stays 0."""
        self._counts.setdefault(key, 0)
        self._kept_counts.add(key)

    # Reading

    def select(self, select: Select, *bound: Any) -> Rows:  # noqa: ANN401  (depends on the statement)
        """Return the rows of a query, including this step's writes."""
        if not select.ahead:
            return self.fetch(select.text, bound)
        key, cache = (select, bound), self.cache
        cache.used[key] = None
        found = cache.answers.get(key)
        if found is None:
            found = cache.answers[key] = self.fetch(select.text, bound)
        return found

    def select_each(self, select: Select, things: Sequence[Thing]) -> None:
        """Read what `select` will be asked for each of these things, in one trip."""
        answers = self.cache.answers
        missing = [(select, (one,)) for one in things if (select, (one,)) not in answers]
        if len(missing) > 1:
            rows = self.fetch_all([(select.text, bound) for _, bound in missing])
            answers.update(zip(missing, rows, strict=True))

    def fetch(self, text: str, bound: tuple[Any, ...]) -> Rows:
        """Send a query after the writes so far; see `fetch_all`."""
        return self.fetch_all([(text, bound)])[0]

    def fetch_all(self, batch: Sequence[BoundStatement]) -> list[Rows]:
        """Send several queries in one trip, after the writes so far.

        Raises:
            NeedsMore: the step may not read, or may not read more.
        """
        if self.mode is Mode.BLIND or self.mode is Mode.PEEK:
            raise NeedsMore
        self._queue_gathered()
        queued, self._queue = self._queue, []
        answers = self.link.run([*queued, *batch])
        return answers[len(answers) - len(batch) :]

    def each(self, each: Each, things: Sequence[Thing]) -> dict[Any, Rows]:
        """Return the rows by thing, possibly of other things too; callers must not change them."""
        read = self.cache.read_of(each, things)
        if read is not None:
            read.take(self.fetch(read.text, read.bound))
        return self.cache.each(each)

    def read_all(self, reads: Sequence[Read]) -> None:
        """Execute reads in one trip."""
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
        """Queue a write, which is sent with the next query or the commit.

        The caller updates the cached rows of the queries in `patched` itself.
        """
        self._prepare_write(write, patched)
        self._queue.append((write.text, bound))

    def gather(
        self,
        write: Write,
        name: Thing,
        row: Any,  # noqa: ANN401  (depends on the statement)
        columns: _Columns,
        patched: Sequence[Each] = (),
    ) -> None:
        """Queue a row to be written together with others of the same statement; see `write`.

        Args:
            name: key of the row; it replaces a row that was gathered under the same key.
            columns: builds the parameters from all rows.
        """
        known = self._gathered.get(write)
        self._prepare_write(write, patched, gathering=known is not None)
        if known is None:
            known = self._gathered[write] = (columns, {})
        known[1].pop(name, None)
        known[1][name] = row

    def _queue_gathered(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for write, (columns, rows) in gathered.items():
            self._queue.append((write.text, columns(list(rows.values()))))

    def send_ahead(self) -> None:
        """Send the writes so far without waiting for results, if the step only adds."""
        if self.mode is Mode.INSERT or self.mode is Mode.BLIND:
            self._queue_gathered()
            queued, self._queue = self._queue, []
            if queued:
                self.link.send_ahead(self._guarded(queued))

    def do(self, write: Write, *bound: Any) -> Rows:  # noqa: ANN401  (depends on the statement)
        """Execute a write now, and return its rows."""
        self._prepare_write(write)
        return self.fetch(write.text, bound)

    def wrote_ahead(self, write: Write) -> None:
        """Record that a statement sent with the start of the step has changed something."""
        self._wrote = True
        self.wrote_exclusively = self.wrote_exclusively or write.beside is not Mode.SHARED

    def _prepare_write(
        self, write: Write, patched: Sequence[Each] = (), *, gathering: bool = False
    ) -> None:
        limited = self.mode in {Mode.SHARED, Mode.BEAT} and write.beside is not self.mode
        if limited or self.mode in {Mode.PEEK, Mode.READ_OR_ABORT, Mode.READ}:
            raise NeedsMore
        self._wrote = True
        self.wrote_exclusively = self.wrote_exclusively or write.beside is not Mode.SHARED
        if not gathering and any(one.changes & write.changes for one in self._gathered):
            self._queue_gathered()
        self.cache.invalidate(write.changes, patched)

    def need_exclusive(self) -> None:
        """Raise unless the step is exclusive.

        Raises:
            NeedsMore: the step is not exclusive.
        """
        if self.mode is not Mode.EXCLUSIVE:
            raise NeedsMore

    # Starting a step

    def begin(
        self,
        mode: Mode,
        ahead: Sequence[BoundSelect] = (),
        *,
        kind: StepKind | None = None,
        reads: Callable[[], Sequence[Read]] = list,
    ) -> list[Rows]:
        """Start a step.

        Args:
            ahead: queries that are sent in the same trip.
            kind: kind of the step; its other queries are prefetched by the next step of the kind.
            reads: builds further queries for the same trip.

        Returns:
            The rows of each query of `ahead`.

        Raises:
            NeedsMore: the step may not read, and the process does not know enough.
            psycopg.Error: the connection broke, or the lock timed out.
            SchemaMismatch: this program no longer supports the schema.
            Repeat: the connection leads to a different server than new connections do; it is
                closed.
        """
        self._reset(mode, kind)
        self._drop_if_hung_up()
        if mode is Mode.BLIND:
            self._assume_facts()
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

    def run_in_one_trip(self, batch: Sequence[BoundStatement]) -> list[Rows]:
        """Run statements as one shared step, in one trip, and return the rows of each.

        The store's facts arrive only with the commit. So anything for which another step would be
        aborted after reading its facts must make a statement of this step fail.

        Raises:
            psycopg.Error: nothing was written, or the connection broke.
        """
        self._reset(Mode.WHOLE)
        self._drop_if_hung_up()
        return self._send(batch)

    def _drop_if_hung_up(self) -> None:
        """Drop the connection if the server has closed it between two steps."""
        if self._link is not None and not self._link.alive():
            self.drop()
            self.shared.forget()

    def _send(self, batch: Sequence[BoundStatement]) -> list[Rows]:
        """Send the start of the step together with `batch`, and apply the store's facts."""
        terms, time = self._terms, self.shared.time
        head: list[BoundStatement] = [(terms.begin, ())] if terms.begin else []
        if self._settings and self.mode is not Mode.CALLER:
            head.append((self._settings, ()))
        if terms.lock:
            head.append((terms.lock, (self._lock,)))
        elif self.mode is Mode.INSERT and not self.waits_for_keys:
            head.append((WAIT_BRIEFLY, ()))
        clock = None if time.clock is None else time.clock()
        head.append((FACTS, (clock, time.epoch, time.floor(time.epoch))))
        # Read before the request is sent, so they are older than the reply.
        before, self.lowered = self.shared.watch.known, self.shared.marks.lowered
        answers = self.link.run([*head, *batch])
        self._take_facts(answers[len(head) - 1][0], before)
        return answers[len(head) :]

    def _assume_facts(self) -> None:
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
        if self.mode is Mode.CALLER:
            # Cache nothing: the caller's transaction may see an old state, or be rolled back.
            if facts.get(IDENTITY, 0) != shared.identity:
                message = "the connection is to a different database from the store's"
                raise InvalidValue(
                    message, hint="pass a connection to the database in the store's URL"
                )
            return
        shared.time.observe(clock)
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
        elif self.mode is Mode.WHOLE or (self.mode is Mode.INSERT and watch.reason):
            # The step checked itself, and is already committed; or it may add jobs nevertheless.
            return
        elif self.mode is not Mode.EXCLUSIVE:
            raise NeedsMore
        elif watch.reason or leads_to_current_server(self.link, self._connect):
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
        """Return the watch that detects a replaced or restored store."""
        return self.shared.watch

    @property
    def changed(self) -> bool:
        """Whether the store was replaced, or restored to an older state."""
        return bool(self.shared.watch.reason) or self.number(SUSPECT) > 0

    @property
    def may_cache(self) -> bool:
        """Whether its reads may be cached: they are committed, in the store's own transaction."""
        return not self.defined and self.mode is not Mode.CALLER

    @property
    def has_tokens(self) -> bool:
        """Whether there may be tokens; a write tries it on any schema, and is refused."""
        return self.mode is not Mode.READ or self.number(SCHEMA) >= TOKENS_SINCE

    def clock_ahead_ms(self) -> int:
        """Return how far the store's time is ahead of its clock."""
        clock = self.shared.time.clock
        at = clock() if clock is not None else self.fetch(f"SELECT {CLOCK}", ())[0][0]
        return max(0, self.now - at)

    # Ending a step

    def commit(self) -> Done:
        """Commit the step.

        Raises:
            psycopg.Error: the commit failed; if the connection broke, the outcome is unknown.
        """
        woken = dict.fromkeys(self.wakes)
        batch = self._last_writes()
        if self._terms.end:
            batch.append((self._terms.end, ()))
        notice = self._make_notice(woken) if woken and self._wrote else None
        if notice is not None:
            # After the commit: a process that starts listening later reads once more, and sees it.
            batch += [(SYNC, ()), notice] if self.mode is Mode.BLIND else [notice]
        answers = self.link.run(batch) if batch or self._sent_guard else []
        shared = self.shared
        if self._sent_guard:
            shared.time.observe(answers[0][0][0])
            shared.time.used(self.now, self.number(EPOCH))
        elif self.mode is Mode.EXCLUSIVE and self._wrote:
            shared.marks.version = self.number(BEHIND)
            for flow, (floors, started) in self.cache.new_marks.items():
                lane = self.flows.value(flow).lane
                shared.marks.rise(lane, flow, floors, started, self.lowered)
            shared.high_water = self.number(HIGH_WATER)
            shared.watch.accept(self._fingerprint(), None)
        if self._raised_to:
            shared.watch.raised(self.number(IDENTITY), self.number(EPOCH), self._raised_to)
        for job in self.queued:
            # After the commit: a claim that reads later does so from the lowered mark, and one that
            # has read before raises none.
            shared.marks.lower(*job)
        self.learn()
        return Done(self._wrote, woken, notice is not None)

    def learn(self) -> None:
        """Remember the step's reads, to be prefetched by the next step of its kind."""
        if self._kind is not None and self._forgotten == self.shared.forgotten:
            self.shared.learn(self._kind, self.cache)

    def _last_writes(self) -> list[BoundStatement]:
        self._queue_gathered()
        batch, self._queue = self._queue, []
        shared = self.shared
        if self._wrote and self._terms.beside and self.now > shared.high_water + LAG_MS:
            # Only rarely, because an exclusive step waits for the step that writes it.
            shared.high_water = self._raised_to = self.now
            batch.append((RAISE_HIGH_WATER, (self.now,)))
        batch = self._guarded(batch)
        if counts := self._taken_counts():
            self._wrote = True
            batch.append((COUNT, _pair(counts)))
        if self.mode is Mode.EXCLUSIVE:
            shared.unfolded += self._wrote
            if shared.unfolded >= FOLD_EVERY:
                shared.unfolded = 0
                batch.append((FOLD, ()))
        if self.mode is Mode.EXCLUSIVE and self._wrote:
            if self.behind:
                self.put(BEHIND, self.number(BEHIND) + 1)
            if self.now > self.number(HIGH_WATER):
                self.put(HIGH_WATER, self.now)
            if self._changed:
                batch.append((PUT, _pair(self._changed)))
        return batch

    def _guarded(self, batch: list[BoundStatement]) -> list[BoundStatement]:
        """Put the check of the step's assumptions before the first statements that it sends."""
        if self.mode is not Mode.BLIND or self._sent_guard or not batch:
            return batch
        self._sent_guard = True
        return [(FITS, (*_pair(self._taken_counts()), *self._assumptions())), *batch]

    def _taken_counts(self) -> dict[int, int]:
        counts, self._counts = self._counts, {}
        if 0 in counts.values():
            counts = {key: n for key, n in counts.items() if n or key in self._kept_counts}
        return counts

    def _assumptions(self) -> tuple[int | None, ...]:
        clock, watch, facts = self.shared.time.clock, self.shared.watch, self._facts
        at = clock() if clock is not None else None
        # Jobs may be added to a store that is already known to be older.
        least = watch.known.high_water if watch.known is not None and not watch.reason else 0
        store = (facts[DEFINITIONS], facts[LANES], facts[IDENTITY], facts[EPOCH])
        return *store, least, at, self.now

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
        if self.mode is Mode.CALLER:
            link.run([(text, ()) for text in UNDO_SAVEPOINT])
        elif link.connection.info.transaction_status is not TransactionStatus.IDLE:
            link.run([("ROLLBACK", ())])


def _pair(numbers: dict[int, int]) -> tuple[Numbers, Numbers]:
    return Numbers(numbers), Numbers(numbers.values())
