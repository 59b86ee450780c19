"""Listening: one connection of a process tells others of its commits, and hears of theirs.

It is open only while a caller in the process waits, or there is a commit to report. Each listener
holds a shared lock, so a commit sees at once, without a table, whether there is a listener at all.
Without one it does not notify: NOTIFY takes a lock of the whole server at its commit.
"""

from __future__ import annotations

import secrets
import selectors
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b
from math import inf

import msgspec

from headway.core.errors import HeadwayError
from headway.stores.postgres.connection import Connection, connect
from headway.stores.postgres.failures import Failure
from headway.stores.postgres.options import PostgresOptions
from headway.stores.postgres.timing import monotonic

Lanes = Iterable[tuple[str | None, int | None]]
"""Each with from when; None for any lane, None for now."""

LOOK_EVERY = 5.0
"""Seconds between two looks at whether anything was committed, where it is told, too."""
LOOK_EVERY_ALONE = 0.25
"""The same where nothing can be told: a pooler is in between, or the URL says `listen=off`."""
LINGER = 10.0
"""Seconds for which it stays after the last one who waited."""
TELL_EVERY = 0.01
"""Seconds between two notifications of one process; what comes meanwhile goes together."""
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 5.0
"""Seconds before it tries again to reach the server."""

_MOST = 7_900
"""Bytes of a payload; a longer one says "any lane". The server takes 7999."""

_SNAPSHOT = "SELECT pg_current_snapshot()::text"
# Without another listener nothing is sent: a session's own lock does not conflict with itself.
_TELL = """
SELECT set_config('synchronous_commit', 'off', true),
       CASE WHEN pg_try_advisory_lock(%s) THEN pg_advisory_unlock(%s)::text
            ELSE pg_notify(%s, %s)::text END
"""
# With a commit, which a queue of the server that is full must not make fail.
_SPEECH = """
SELECT set_config('synchronous_commit', 'off', true),
       CASE WHEN pg_try_advisory_lock($1) THEN pg_advisory_unlock($1)::text
            WHEN pg_notification_queue_usage() < 0.5 THEN pg_notify($2, $3)::text END
"""

Payload = tuple[str, list[tuple[str | None, int | None]]]
"""Who tells it, and the lanes."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Payload).decode


def waiting_key(namespace: str) -> int:
    """Return the key of the advisory lock that each listener holds."""
    digest = blake2b(f"headway waits {namespace}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _payload(name: str, lanes: Sequence[tuple[str | None, int | None]]) -> str:
    payload = _encode((name, lanes))
    return (payload if len(payload) <= _MOST else _encode((name, [(None, None)]))).decode()


class Listening:
    """A thread with a connection of its own; begins when it is first needed.

    Args:
        hear: is told the lanes that another process woke.
        miss: is told that something may have been missed, so that all waiters must claim.
        waiting: returns whether a caller waits in this process.
    """

    def __init__(
        self,
        options: PostgresOptions,
        *,
        hear: Callable[[Lanes], None],
        miss: Callable[[], None],
        waiting: Callable[[], bool],
    ) -> None:
        self._options = options
        self._hear, self._miss, self._waiting = hear, miss, waiting
        self._channel = f"headway_{options.namespace}"
        self._key = waiting_key(options.namespace)
        self._name = secrets.token_hex(4)
        self._db: Connection | None = None
        self._attending = False
        self._alone = False
        self._snapshot = ""
        self._look_at = 0.0
        self._told_at = self._waited_at = -inf
        self._fd = -1
        self._pause = FIRST_PAUSE
        self._stopped = False
        self._lock = threading.Lock()
        self._to_tell: dict[tuple[str | None, int | None], None] = {}
        self._thread: threading.Thread | None = None
        self._poked, self._poke = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._poked, selectors.EVENT_READ)
        for end in (self._poked, self._poke):
            end.setblocking(False)

    @property
    def attending(self) -> bool:
        """Whether what others commit reaches this process now."""
        return self._attending

    # From any thread

    def attend(self) -> None:
        """Note that a caller waits: soon the connection listens, and `miss` is called then."""
        self._waited_at = monotonic()
        if not self._attending:
            self._start()

    def tell(self, lanes: Lanes) -> None:
        """Tell the other processes of a commit, soon and together with others."""
        with self._lock:
            begun = bool(self._to_tell)
            self._to_tell.update(dict.fromkeys(lanes))
        if not begun:
            self._start()

    def speech(self, lanes: Lanes) -> tuple[str, tuple[int, str, str]] | None:
        """A statement that tells the other processes of a commit, to go with it.

        It saves listeners the time until this process's thread has come to send it. To be run
        after the commit: a process that began to listen later claims once more after that, and
        sees what was committed.

        Args:
            lanes: as for `tell`.

        Returns:
            The text and what it is bound to; None where `tell` does it better: something was told
            a moment ago, or this process would be told of its own commits.
        """
        now = monotonic()
        if self._attending or self._to_tell or now < self._told_at + TELL_EVERY:
            return None
        self._told_at = now
        return _SPEECH, (self._key, self._channel, _payload(self._name, list(lanes)))

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
        if not self._attending and self._is_waited_for():
            self._begin(db)
        self._speak(db)
        if self._attending and monotonic() >= self._look_at:
            self._look(db)
        self._sleep(self._until_next())
        self._listen(db)

    def _is_waited_for(self) -> bool:
        if self._waiting():
            self._waited_at = monotonic()
        return monotonic() < self._waited_at + LINGER

    def _wanted(self) -> bool:
        lingers = monotonic() < self._told_at + LINGER
        return self._is_waited_for() or bool(self._to_tell) or lingers

    def _open(self) -> Connection:
        db = self._db = connect(self._options)
        self._fd = db.fileno()
        self._selector.register(self._fd, selectors.EVENT_READ)
        db.add_notify_handler(lambda told: self._heard(told.payload))
        row = db.execute("SELECT pg_backend_pid()").fetchone()
        # A pooler makes up what it says at the beginning of a connection.
        pooled = row is None or row[0] != db.info.backend_pid
        self._alone = pooled or self._options.pooled or not self._options.listen
        return db

    def _begin(self, db: Connection) -> None:
        if not self._alone:
            db.execute(f'LISTEN "{self._channel}"'.encode())
            db.execute("SELECT pg_advisory_lock_shared(%s)", (self._key,))
        self._look(db)
        # Callers that wait already have claimed before a notification could arrive.
        self._miss()
        # Last: a caller that sees it set has been woken for what was missed.
        self._attending = True

    def _look(self, db: Connection) -> None:
        """Check for writes since the last look; there are none if the snapshot is the same."""
        row = db.execute(_SNAPSHOT).fetchone()
        snapshot = str(row[0]) if row else ""
        changed = snapshot != self._snapshot
        self._snapshot = snapshot
        self._look_at = monotonic() + (LOOK_EVERY_ALONE if self._alone else LOOK_EVERY)
        if changed and self._attending:
            self._miss()

    def _speak(self, db: Connection) -> None:
        if not self._to_tell or monotonic() < self._told_at + TELL_EVERY:
            return
        with self._lock:
            lanes, self._to_tell = list(self._to_tell), {}
        payload = _payload(self._name, lanes)
        db.execute(_TELL, (self._key, self._key, self._channel, payload))
        self._told_at = monotonic()

    def _until_next(self) -> float:
        now = monotonic()
        ends = [max(self._waited_at, self._told_at) + LINGER]
        if self._attending:
            ends.append(self._look_at)
        if self._to_tell:
            ends.append(self._told_at + TELL_EVERY)
        return max(0.0, min(ends) - now)

    def _sleep(self, seconds: float | None) -> None:
        """Block until something is to be heard or done."""
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
        while (told := db.pgconn.notifies()) is not None:
            self._heard(told.extra.decode())

    def _heard(self, payload: str) -> None:
        try:
            name, lanes = _decode(payload)
        except msgspec.MsgspecError:
            # Not ours, or of a later program.
            self._miss()
            return
        if name != self._name:
            self._hear(lanes)

    def _hang_up(self) -> None:
        self._attending = False
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
