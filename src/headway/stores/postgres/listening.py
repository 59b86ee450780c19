"""Listening: one connection of a process notifies others of its commits, and is notified of theirs.

It is open only while a caller in the process waits, or there is a commit to report. Each listener
holds a shared lock, so a commit sees at once, without a table, whether there is a listener at all.
Without one it does not notify: NOTIFY takes a lock of the whole server at its commit.

For each lane that its callers wait in, a listener holds another shared lock. The statement that
notifies picks two of those who hold the lane's lock, and the others sleep on: with a hundred idle
workers a job costs two claims, not a hundred. A picked process whose callers are busy by now passes
the wake on to one more, and one whose claim took as much as it asked for wakes two more
(`Wakes.follow`).
"""

from __future__ import annotations

import secrets
import selectors
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from hashlib import blake2b
from math import inf

import msgspec
import psycopg

from headway.core.errors import HeadwayError
from headway.stores.postgres.arrays import Numbers
from headway.stores.postgres.connection import Connection, connect
from headway.stores.postgres.failures import Failure
from headway.stores.postgres.options import PostgresOptions
from headway.stores.postgres.timing import monotonic

Lanes = Iterable[tuple[str | None, int | None]]
"""Each with from when; None for any lane, None for now."""

LOOK_EVERY = 5.0
"""Seconds between two looks at whether anything was committed, beside notifications."""
LOOK_EVERY_ALONE = 0.25
"""The same without notifications: a pooler is in between, or the URL says `listen=off`."""
LINGER = 10.0
"""Seconds for which it stays after the last one who waited."""
NOTIFY_EVERY = 0.01
"""Seconds between two notifications of one process; what comes meanwhile goes together."""
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 5.0
"""Seconds before it tries again to reach the server."""

LINGER_IN_LANE = 2.0
"""The same of one lane: while it lasts, the process may be picked in vain."""
MOST_PICKED = 2
"""Processes that are woken for a lane: one may be too busy to claim."""
MOST_PASSED_ON = 3
"""Processes that a wake is passed on to, one after another, before all others are woken."""
MOST_LANES = 32
"""Lanes that a listener holds locks of, and that one notification names; more are "any lane"."""

_MOST = 5_000
"""Bytes of a payload before those who are picked; a longer one says "any lane". The server takes
7999."""
_EVERY_LANE = 0
"""The number of a lane that stands for more lanes than are worth a lock each."""

_SNAPSHOT = "SELECT pg_current_snapshot()::text"
_PICKED = """
SELECT json_agg(json_build_array(pid, objid::bigint))::text AS picked FROM (
    SELECT pid, objid, row_number() OVER (PARTITION BY objid ORDER BY random()) AS place
    FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND objsubid = 2 AND classid::bigint = $4
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND objid::bigint = ANY($5) AND pid <> ALL($6)
) AS waiting WHERE place <= $7
"""
# Without another listener nothing is sent: a session's own lock does not conflict with itself. It
# may go with a commit, which a queue of the server that is full must not make fail.
_NOTIFY = f"""
SELECT set_config('synchronous_commit', 'off', true),
       CASE WHEN pg_try_advisory_lock($1) THEN pg_advisory_unlock($1)::text
            WHEN pg_notification_queue_usage() < 0.5 THEN (
                SELECT pg_notify($2, $3 || coalesce(picked, '[]') || ']')::text
                FROM ({_PICKED}) AS waiting WHERE picked IS NOT NULL OR $8
            ) END
"""  # noqa: S608  (of constants)
_COVER = "SELECT pg_advisory_lock_shared($1::int, one::int) FROM unnest($2) AS one"
_UNCOVER = "SELECT pg_advisory_unlock_shared($1::int, one::int) FROM unnest($2) AS one"

Payload = tuple[str, list[tuple[str | None, int | None]], list[int], list[tuple[int, int]]]
"""The sender, the lanes, the backends that passed it on, and those that are picked, each with the
number of its lane."""

ANY_LANE: tuple[str | None, int | None] = (None, None)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Payload).decode


def waiting_key(namespace: str) -> int:
    """Return the key of the advisory lock that each listener holds."""
    digest = blake2b(f"headway waits {namespace}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _number(text: str) -> int:
    """A positive number of 31 bits; two texts may have the same."""
    return 1 + int.from_bytes(blake2b(text.encode(), digest_size=4).digest(), "big") % (2**31 - 1)


class Listening:
    """A thread with a connection of its own; begins when it is first needed.

    Args:
        hear: is called with the lanes that another process woke.
        miss: is called when something may have been missed, so that all waiters must claim.
        check: is called when that is unlikely: one waiter of each lane is to claim.
        waiting: returns the lanes in which callers of this process wait.
    """

    def __init__(
        self,
        options: PostgresOptions,
        *,
        hear: Callable[[Lanes], None],
        miss: Callable[[], None],
        check: Callable[[], None],
        waiting: Callable[[], Set[str]],
    ) -> None:
        self._options = options
        self._hear, self._miss, self._check, self._waiting = hear, miss, check, waiting
        self._channel = f"headway_{options.namespace}"
        self._key = waiting_key(options.namespace)
        self._class = _number(options.namespace)
        self._name = secrets.token_hex(4)
        self._db: Connection | None = None
        self._attending = False
        self._covered: frozenset[int] = frozenset()
        self._left_at: dict[int, float] = {}
        self._alone = False
        self._snapshot = ""
        self._look_at = 0.0
        self._notified_at = self._waited_at = -inf
        self._fd = -1
        self._backend = 0
        self._pause = FIRST_PAUSE
        self._stopped = False
        self._lock = threading.Lock()
        self._unsent: dict[tuple[str | None, int | None], int] = {}
        self._to_pass_on: dict[str, list[int]] = {}
        self._thread: threading.Thread | None = None
        self._poked, self._poke = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._poked, selectors.EVENT_READ)
        for end in (self._poked, self._poke):
            end.setblocking(False)

    def listens_for(self, lanes: Iterable[str]) -> bool:
        """Return whether what others commit in these lanes reaches this process now."""
        return self._covers({_number(lane) for lane in lanes})

    def _covers(self, numbers: Set[int]) -> bool:
        covered = self._covered
        return self._attending and (self._alone or _EVERY_LANE in covered or numbers <= covered)

    # From any thread

    def attend(self, lanes: Iterable[str]) -> None:
        """Note that a caller waits in lanes: soon the connection listens for them.

        Callers that wait in a lane that it did not listen for are woken then.
        """
        self._waited_at = now = monotonic()
        numbers = {_number(lane) for lane in lanes}
        self._left_at.update(dict.fromkeys(numbers, now))
        if not self._covers(numbers):
            self._start()

    def notify(self, lanes: Lanes) -> None:
        """Notify the other processes of a commit, soon and together with others.

        To be called before those who wait here are woken: if one does, fewer others are.
        """
        picks = self._with_most(lanes)
        with self._lock:
            begun = bool(self._unsent)
            self._unsent.update(picks)
        if not begun:
            self._start()

    def make_notice(self, lanes: Lanes) -> tuple[str, tuple[object, ...]] | None:
        """Return a statement that notifies the other processes of a commit, to go with it.

        It saves listeners the time until this process's thread has come to send it. To be run
        after the commit: a process that began to listen later claims once more after that, and
        sees what was committed.

        Args:
            lanes: as for `notify`.

        Returns:
            The text and what it is bound to; None if `notify` does it better: a notification was
            sent a moment ago, or this process would be notified of its own commits.
        """
        now = monotonic()
        if self._attending or self._unsent or now < self._notified_at + NOTIFY_EVERY:
            return None
        self._notified_at = now
        return _NOTIFY, self._message(self._with_most(lanes))

    def _with_most(self, lanes: Lanes) -> dict[tuple[str | None, int | None], int]:
        """Lanes with how many other processes are to be woken for each."""
        here = self._waiting()
        return {one: MOST_PICKED - (one[0] in here) or 1 for one in lanes}

    def _message(
        self, picks: Mapping[tuple[str | None, int | None], int], passed_on: Sequence[int] = ()
    ) -> tuple[object, ...]:
        """What `_NOTIFY` is bound to.

        Args:
            picks: lanes, each with from when; None for any lane, None for now. And how many
                processes are picked for it.
            passed_on: backends of those that were notified in vain.
        """
        lanes = list(picks)
        head = _encode((self._name, lanes, passed_on))
        if len(head) > _MOST or len(lanes) > MOST_LANES:
            lanes = [ANY_LANE]
            head = _encode((self._name, lanes, ()))
        numbers = {_number(lane) for lane, at in lanes if lane is not None and at is None}
        excluded = Numbers((*passed_on, self._backend))
        text = head[:-1].decode() + ","
        most = max((n for (_, at), n in picks.items() if at is None), default=1)
        fresh = not passed_on
        return (
            *(self._key, self._channel, text, self._class),
            *(Numbers(numbers), excluded, most, fresh),
        )

    def close(self, seconds: float) -> None:
        """End it. Blocks until it has, or for so long."""
        self._stopped = True
        with self._lock:
            thread = self._thread
        if thread is not None:
            self._wake_thread()
            thread.join(seconds)
            if thread.is_alive():
                # It hangs in a call to the server; it ends, and clears up, when that does.
                return
        self._clear_up()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._stopped:
                self._thread = threading.Thread(
                    target=self._run, name="headway-listening", daemon=True
                )
                self._thread.start()
        self._wake_thread()

    def _wake_thread(self) -> None:
        # A full buffer, or one that is closed, needs no further byte.
        with suppress(OSError):
            self._poke.send(b"\0")

    # In its thread

    def _run(self) -> None:
        while not self._stopped:
            try:
                self._turn()
                self._pause = FIRST_PAUSE
            except (Failure, HeadwayError, OSError):
                # Claims report why. Here it means that no notification arrives for a while: waiters
                # claim without one, more and more slowly.
                self._hang_up()
                self._miss()
                self._hold(self._pause)
                self._pause = min(self._pause * 2, LONGEST_PAUSE)
        self._hang_up()

    def _turn(self) -> None:
        if not self._wanted():
            self._hang_up()
            self._sleep(None)
            return
        db = self._db or self._open()
        if self._is_waited_for():
            if not self._attending:
                self._begin(db)
            elif not self._alone:
                self._cover(db)
        self._send_notices(db)
        if self._attending and monotonic() >= self._look_at:
            self._look(db)
        self._sleep(self._until_next())
        self._listen(db)

    def _is_waited_for(self) -> bool:
        if self._waiting():
            self._waited_at = monotonic()
        return monotonic() < self._waited_at + LINGER

    def _wanted(self) -> bool:
        lingers = monotonic() < self._notified_at + LINGER
        return self._is_waited_for() or bool(self._unsent) or lingers

    def _open(self) -> Connection:
        db = self._db = connect(self._options)
        self._fd = db.fileno()
        self._backend = db.info.backend_pid
        self._selector.register(self._fd, selectors.EVENT_READ)
        db.add_notify_handler(lambda notification: self._heard(notification.payload))
        row = db.execute("SELECT pg_backend_pid()").fetchone()
        # A pooler makes up what it says at the beginning of a connection.
        pooled = row is None or row[0] != db.info.backend_pid
        self._alone = pooled or self._options.pooled or not self._options.listen
        return db

    def _begin(self, db: Connection) -> None:
        if not self._alone:
            db.execute(f'LISTEN "{self._channel}"'.encode())
            db.execute("SELECT pg_advisory_lock_shared(%s)", (self._key,))
            self._cover(db)
        self._look(db)
        # Callers that wait already have claimed before a notification could arrive.
        self._miss()
        # Last: a caller that sees it set has been woken for what was missed.
        self._attending = True

    def _cover(self, db: Connection) -> None:
        """Hold the locks of the lanes in which callers wait, and for a while of those they left."""
        now = monotonic()
        lanes = self._waiting()
        waited = {_number(lane) for lane in lanes} if len(lanes) <= MOST_LANES else {_EVERY_LANE}
        self._left_at.update(dict.fromkeys(waited, now))
        lately = {
            one for one in self._covered if now < self._left_at.get(one, now) + LINGER_IN_LANE
        }
        wanted = waited | lately if len(waited | lately) <= MOST_LANES else waited
        begun, ended = wanted - self._covered, self._covered - wanted
        cursor = psycopg.RawCursor(db)
        if begun:
            cursor.execute(_COVER, (self._class, Numbers(begun)))
        self._covered = frozenset(wanted)
        if begun and self._attending:
            # Others were notified of what was committed before the lock was there.
            self._hear([(lane, None) for lane in lanes if begun & {_number(lane), _EVERY_LANE}])
        if ended:
            cursor.execute(_UNCOVER, (self._class, Numbers(ended)))
        for one in self._left_at.keys() - wanted:
            if now >= self._left_at[one] + LINGER_IN_LANE:
                del self._left_at[one]

    def _look(self, db: Connection) -> None:
        """Check for writes since the last look; there are none if the snapshot is the same."""
        row = db.execute(_SNAPSHOT).fetchone()
        snapshot = str(row[0]) if row else ""
        changed = snapshot != self._snapshot
        self._snapshot = snapshot
        self._look_at = monotonic() + (LOOK_EVERY_ALONE if self._alone else LOOK_EVERY)
        if changed and self._attending:
            # Beside notifications a look seldom finds anything: most commits are workers' beats.
            (self._miss if self._alone else self._check)()

    def _send_notices(self, db: Connection) -> None:
        cursor = psycopg.RawCursor(db)
        while self._to_pass_on:
            lane, passed_on = self._to_pass_on.popitem()
            if len(passed_on) <= MOST_PASSED_ON:
                message = self._message({(lane, None): 1}, passed_on)
            else:
                # A moment reaches all, and this one is over.
                message = self._message({(lane, 0): 1})
            cursor.execute(_NOTIFY, message)
        if not self._unsent or monotonic() < self._notified_at + NOTIFY_EVERY:
            return
        with self._lock:
            picks, self._unsent = self._unsent, {}
        cursor.execute(_NOTIFY, self._message(picks))
        self._notified_at = monotonic()

    def _until_next(self) -> float:
        now = monotonic()
        ends = [max(self._waited_at, self._notified_at) + LINGER]
        if self._attending:
            ends.append(self._look_at)
            left = self._covered - {_number(lane) for lane in self._waiting()}
            ends += [self._left_at.get(one, now) + LINGER_IN_LANE for one in left]
        if self._unsent:
            ends.append(self._notified_at + NOTIFY_EVERY)
        return max(0.0, min(ends) - now)

    def _sleep(self, seconds: float | None) -> None:
        """Block until something is to be received or done."""
        for key, _ in self._selector.select(seconds):
            if key.fileobj is self._poked:
                with suppress(OSError):
                    self._poked.recv(4096)

    def _hold(self, seconds: float) -> None:
        until = monotonic() + seconds
        while not self._stopped and (left := until - monotonic()) > 0:
            self._sleep(left)

    def _listen(self, db: Connection) -> None:
        db.pgconn.consume_input()
        while (notification := db.pgconn.notifies()) is not None:
            self._heard(notification.extra.decode())

    def _heard(self, payload: str) -> None:
        try:
            name, lanes, passed_on, picked = _decode(payload)
        except msgspec.MsgspecError:
            # Not ours, or of another version of this program.
            self._miss()
            return
        if name == self._name:
            return
        mine = {number for backend, number in picked if backend == self._backend}
        every, waiting = _EVERY_LANE in self._covered, self._waiting()
        heard: list[tuple[str | None, int | None]] = []
        for lane, at in lanes:
            if lane is None or at is not None or every:
                heard.append((lane, at))
            elif _number(lane) in mine:
                heard.append((lane, at))
                if lane not in waiting:
                    self._to_pass_on[lane] = [*passed_on, self._backend]
        if heard:
            self._hear(heard)

    def _hang_up(self) -> None:
        self._attending = False
        self._covered = frozenset()
        self._to_pass_on.clear()
        self._snapshot = ""
        db, self._db = self._db, None
        if db is not None:
            with suppress(KeyError):
                self._selector.unregister(self._fd)
            with suppress(Failure):
                db.close()

    def _clear_up(self) -> None:
        self._selector.close()
        self._poked.close()
        self._poke.close()
