"""Listening: a connection on which a process notifies others of commits, and is notified of theirs.

It is open only while a caller in the process waits, or there is a commit to report. Each listener
holds a shared lock, so a commit detects without a table whether there is a listener at all. If
there is none, it does not notify: NOTIFY takes a server-wide lock at its commit.

For each lane in which its callers wait, a listener holds another shared lock. The statement that
notifies picks two holders of the lane's lock, and the others sleep on: with a hundred idle workers,
a job costs two claims, not a hundred. If a picked process is busy by then, it passes the wake on to
one more; a process whose claim was filled wakes two more (`Wakes.follow`).
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
from headway.stores.postgres.failures import DriverError
from headway.stores.postgres.options import PostgresOptions
from headway.stores.postgres.timing import monotonic

_Lanes = Iterable[tuple[str | None, int | None]]
"""Each with its time; None for any lane, None for now."""

CHECK_EVERY = 5.0
"""Seconds between checks for commits, in addition to notifications."""
CHECK_EVERY_ALONE = 0.25
"""Seconds between checks without notifications, as behind a pooler or with `listen=off`."""
LINGER = 10.0
"""Seconds for which the connection stays open after the last caller has waited."""
NOTIFY_EVERY = 0.01
"""Minimum seconds between two notifications of a process; wakes in between are batched."""
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 5.0
"""Seconds before reconnecting; doubled after each failure up to the second."""

LINGER_IN_LANE = 2.0
"""Seconds for which a lane's lock is kept after the last wait; until then the process may be picked
without need.
"""
MOST_PICKED = 2
"""Processes that are woken for a lane; two, because one may be too busy to claim."""
MOST_PASSED_ON = 3
"""How often a wake is passed on, before all processes are woken."""
MOST_LANES = 32
"""Maximum number of lanes locked by a listener, and named by a notification; more become "any
lane".
"""

_MOST = 5_000
"""Maximum bytes of a payload without the picked processes; a longer one becomes "any lane". The
server allows 7999.
"""
_EVERY_LANE = 0
"""The number that stands for all lanes, if there are too many for a lock each."""

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
# Sends nothing if there is no other listener: a session's own lock does not conflict with itself.
# Sends nothing if the server's queue is half full, because a full queue would fail the commit in
# the same trip.
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
"""The sender, the lanes, the backends that passed it on, and the picked backends, each with the
number of its lane.
"""

ANY_LANE: tuple[str | None, int | None] = (None, None)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Payload).decode


def waiting_key(namespace: str) -> int:
    """Return the key of the advisory lock held by each listener."""
    digest = blake2b(f"headway waits {namespace}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _number(text: str) -> int:
    """Hash a text to a positive 31-bit number; collisions are possible."""
    return 1 + int.from_bytes(blake2b(text.encode(), digest_size=4).digest(), "big") % (2**31 - 1)


class Listening:
    """A thread with its own connection, started when first needed.

    Args:
        on_wake: called with the lanes that another process woke.
        on_missed: called if something may have been missed, so that all waiters must claim.
        on_maybe_missed: called if something may have been missed, but probably was not: one waiter
            of each lane should claim.
        waiting: returns the lanes in which callers of this process wait.
    """

    def __init__(
        self,
        options: PostgresOptions,
        *,
        on_wake: Callable[[_Lanes], None],
        on_missed: Callable[[], None],
        on_maybe_missed: Callable[[], None],
        waiting: Callable[[], Set[str]],
    ) -> None:
        self._options = options
        self._on_wake, self._waiting = on_wake, waiting
        self._on_missed, self._on_maybe_missed = on_missed, on_maybe_missed
        self._channel = f"headway_{options.namespace}"
        self._key = waiting_key(options.namespace)
        self._class = _number(options.namespace)
        self._name = secrets.token_hex(4)
        self._db: Connection | None = None
        self._is_listening = False
        self._covered: frozenset[int] = frozenset()
        self._left_at: dict[int, float] = {}
        self._alone = False
        self._snapshot = ""
        self._next_check_at = 0.0
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
        """Return whether this process is notified of other processes' commits in these lanes."""
        return self._covers({_number(lane) for lane in lanes})

    def _covers(self, numbers: Set[int]) -> bool:
        covered = self._covered
        return self._is_listening and (self._alone or _EVERY_LANE in covered or numbers <= covered)

    # From any thread

    def listen_for(self, lanes: Iterable[str]) -> None:
        """Record that a caller waits in lanes, so that the connection listens for them soon.

        When it starts listening for a lane, callers that wait there are woken.
        """
        self._waited_at = now = monotonic()
        numbers = {_number(lane) for lane in lanes}
        self._left_at.update(dict.fromkeys(numbers, now))
        if not self._covers(numbers):
            self._start()

    def notify(self, lanes: _Lanes) -> None:
        """Notify other processes of a commit, soon and batched with others.

        Call this before waking waiters of this process: if one waits in the lane, fewer other
        processes are woken.
        """
        picks = self._with_most(lanes)
        with self._lock:
            scheduled = bool(self._unsent)
            self._unsent.update(picks)
        if not scheduled:
            self._start()

    def make_notice(self, lanes: _Lanes) -> tuple[str, tuple[object, ...]] | None:
        """Return a statement that notifies other processes of a commit, to be sent with it.

        This is faster than waiting for this process's thread to send it. Run it after the commit: a
        process that starts listening later claims once more after that, and sees what was
        committed.

        Args:
            lanes: as for `notify`.

        Returns:
            The statement and its parameters; None if `notify` is better, because a notification was
            just sent, or this process would be notified of its own commits.
        """
        now = monotonic()
        if self._is_listening or self._unsent or now < self._notified_at + NOTIFY_EVERY:
            return None
        self._notified_at = now
        return _NOTIFY, self._message(self._with_most(lanes))

    def _with_most(self, lanes: _Lanes) -> dict[tuple[str | None, int | None], int]:
        """Return the lanes with the number of other processes to wake for each."""
        here = self._waiting()
        return {one: MOST_PICKED - (one[0] in here) or 1 for one in lanes}

    def _message(
        self, picks: Mapping[tuple[str | None, int | None], int], passed_on: Sequence[int] = ()
    ) -> tuple[object, ...]:
        """Return the parameters of `_NOTIFY`.

        Args:
            picks: lanes, each with its time (None for any lane, None for now) and the number of
                processes to pick.
            passed_on: backends that were notified but did not need the wake.
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
        """Stop the thread. Blocks until it has stopped, or until the timeout."""
        self._stopped = True
        with self._lock:
            thread = self._thread
        if thread is not None:
            self._wake_thread()
            thread.join(seconds)
            if thread.is_alive():
                # It hangs in a call to the server, and will clean up when the call returns.
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
        # A full or closed socket needs no further byte.
        with suppress(OSError):
            self._poke.send(b"\0")

    # On its thread

    def _run(self) -> None:
        while not self._stopped:
            try:
                self._turn()
                self._pause = FIRST_PAUSE
            except (DriverError, HeadwayError, OSError):
                # Claims report the cause. Without notifications, waiters claim on their own, at
                # growing intervals.
                self._hang_up()
                self._on_missed()
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
            if not self._is_listening:
                self._begin(db)
            elif not self._alone:
                self._cover(db)
        self._send_notices(db)
        if self._is_listening and monotonic() >= self._next_check_at:
            self._check_for_writes(db)
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
        db.add_notify_handler(lambda notification: self._receive(notification.payload))
        row = db.execute("SELECT pg_backend_pid()").fetchone()
        # A pooler invents the backend's id when a connection starts.
        pooled = row is None or row[0] != db.info.backend_pid
        self._alone = pooled or self._options.pooled or not self._options.listen
        return db

    def _begin(self, db: Connection) -> None:
        if not self._alone:
            db.execute(f'LISTEN "{self._channel}"'.encode())
            db.execute("SELECT pg_advisory_lock_shared(%s)", (self._key,))
            self._cover(db)
        self._check_for_writes(db)
        # Callers that wait already made their claims before notifications could arrive.
        self._on_missed()
        # Set last: a caller that sees it has been woken for anything missed.
        self._is_listening = True

    def _cover(self, db: Connection) -> None:
        """Hold the locks of lanes in which callers wait, or waited until recently."""
        now = monotonic()
        lanes = self._waiting()
        waited = {_number(lane) for lane in lanes} if len(lanes) <= MOST_LANES else {_EVERY_LANE}
        self._left_at.update(dict.fromkeys(waited, now))
        lately = {
            one for one in self._covered if now < self._left_at.get(one, now) + LINGER_IN_LANE
        }
        wanted = waited | lately if len(waited | lately) <= MOST_LANES else waited
        added, removed = wanted - self._covered, self._covered - wanted
        cursor = psycopg.RawCursor(db)
        if added:
            cursor.execute(_COVER, (self._class, Numbers(added)))
        self._covered = frozenset(wanted)
        if added and self._is_listening:
            # Commits before the lock was taken did not notify this process.
            self._on_wake([(lane, None) for lane in lanes if added & {_number(lane), _EVERY_LANE}])
        if removed:
            cursor.execute(_UNCOVER, (self._class, Numbers(removed)))
        for one in self._left_at.keys() - wanted:
            if now >= self._left_at[one] + LINGER_IN_LANE:
                del self._left_at[one]

    def _check_for_writes(self, db: Connection) -> None:
        """Check for writes since the last check; there are none if the snapshot is the same."""
        row = db.execute(_SNAPSHOT).fetchone()
        snapshot = str(row[0]) if row else ""
        changed = snapshot != self._snapshot
        self._snapshot = snapshot
        self._next_check_at = monotonic() + (CHECK_EVERY_ALONE if self._alone else CHECK_EVERY)
        if changed and self._is_listening:
            # With notifications, a check rarely finds anything: most commits are heartbeats.
            (self._on_missed if self._alone else self._on_maybe_missed)()

    def _send_notices(self, db: Connection) -> None:
        cursor = psycopg.RawCursor(db)
        while self._to_pass_on:
            lane, passed_on = self._to_pass_on.popitem()
            if len(passed_on) <= MOST_PASSED_ON:
                message = self._message({(lane, None): 1}, passed_on)
            else:
                # A lane with a time is heard by all processes; this time is in the past.
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
        if self._is_listening:
            ends.append(self._next_check_at)
            left = self._covered - {_number(lane) for lane in self._waiting()}
            ends += [self._left_at.get(one, now) + LINGER_IN_LANE for one in left]
        if self._unsent:
            ends.append(self._notified_at + NOTIFY_EVERY)
        return max(0.0, min(ends) - now)

    def _sleep(self, seconds: float | None) -> None:
        """Block until there is something to receive or to do, or until the timeout."""
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
            self._receive(notification.extra.decode())

    def _receive(self, payload: str) -> None:
        try:
            name, lanes, passed_on, picked = _decode(payload)
        except msgspec.MsgspecError:
            # Not from Headway, or from another version.
            self._on_missed()
            return
        if name == self._name:
            return
        mine = {number for backend, number in picked if backend == self._backend}
        every, waiting = _EVERY_LANE in self._covered, self._waiting()
        woken: list[tuple[str | None, int | None]] = []
        for lane, at in lanes:
            if lane is None or at is not None or every:
                woken.append((lane, at))
            elif _number(lane) in mine:
                woken.append((lane, at))
                if lane not in waiting:
                    self._to_pass_on[lane] = [*passed_on, self._backend]
        if woken:
            self._on_wake(woken)

    def _hang_up(self) -> None:
        self._is_listening = False
        self._covered = frozenset()
        self._to_pass_on.clear()
        self._snapshot = ""
        db, self._db = self._db, None
        if db is not None:
            with suppress(KeyError):
                self._selector.unregister(self._fd)
            with suppress(DriverError):
                db.close()

    def _clear_up(self) -> None:
        self._selector.close()
        self._poked.close()
        self._poke.close()
