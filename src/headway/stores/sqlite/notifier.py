"""Notifications between processes: each waiting process listens on a socket beside the file."""

from __future__ import annotations

import os
import secrets
import socket
import tempfile
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import msgspec

from headway.core.errors import HeadwayError
from headway.stores.sqlite.caches import READ, WAKES
from headway.stores.sqlite.connection import connect
from headway.stores.sqlite.database import Database, DriverError
from headway.stores.sqlite.forking import close_before_forks, no_fork
from headway.stores.sqlite.options import SqliteOptions
from headway.stores.sqlite.timing import file_age_ms, monotonic

_LONGEST = 100
"""Most bytes of a socket's path; the limit of the system is 103 to 107."""
_MOST = 60_000
"""Most bytes of one message; a longer one is replaced by "all lanes"."""
_SETTLED_MS = 100
"""A folder's time stamp is coarse: within this time it may change again with the same stamp."""

_TRIES = 3
"""How often the folder is created, if processes that exit remove it."""

_Lanes = Iterable[tuple[str | None, int | None]]
CommitWakes = tuple[int, list[tuple[str | None, int | None]]]
"""The number of the commit, and the lanes to wake, each with the time (None: now)."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(CommitWakes).decode


def folder_of(path: Path) -> Path:
    """Return the folder of a file's sockets: beside the file, or elsewhere if its path is long."""
    beside = path.resolve()
    beside = beside.with_name(f"{beside.name}.wake")
    if len(os.fsencode(beside)) + 20 <= _LONGEST:
        return beside
    short = blake2b(os.fsencode(beside), digest_size=12).hexdigest()
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(base) / f"headway-{os.getuid()}-{short}"


class Notifier:
    """Sends to the sockets of other processes that wait for one file, and listens on its own."""

    def __init__(self, path: Path) -> None:
        self._folder = folder_of(path)
        self._own: Path | None = None
        self._process = os.getpid()
        self._receiver: socket.socket | None = None
        self._sender: socket.socket | None = None
        self._others: list[str] = []
        self._stamp = -1

    # Receiving

    def start(self) -> None:
        """Bind a socket, once; if that fails, the process relies on `PollFallback`."""
        if self._receiver is not None:
            return
        own = self._folder / f"{os.getpid()}-{secrets.token_hex(4)}"
        receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        for _ in range(_TRIES):
            try:
                self._folder.mkdir(mode=0o700, exist_ok=True)
                receiver.bind(os.fspath(own))
                own.chmod(0o600)
            except FileNotFoundError:
                # A process that just exited removed the empty folder.
                continue
            except OSError:
                break
            self._own, self._receiver = own, receiver
            return
        receiver.close()

    def listen(self, seconds: float) -> CommitWakes | None:
        """Block until a notification arrives; return None at the time limit."""
        assert self._receiver is not None  # noqa: S101  (started by the caller)
        self._receiver.settimeout(seconds)
        try:
            return _decode(self._receiver.recv(_MOST + 1024))
        except (OSError, msgspec.DecodeError):
            return None

    @property
    def listening(self) -> bool:
        """Whether this process has a socket."""
        return self._receiver is not None

    def wake_own(self) -> None:
        """Make a `listen` of this process return."""
        if self._own is not None:
            self._send(_encode((0, [])), [os.fspath(self._own)])

    # Sending

    def notify(self, number: int, lanes: _Lanes) -> None:
        """Notify all other waiting processes; never blocks and never fails."""
        others = self._find_others()
        if not others:
            return
        message = _encode((number, list(lanes)))
        if len(message) > _MOST:
            message = _encode((number, [(None, None)]))
        self._send(message, others)

    def _send(self, message: bytes, others: Iterable[str]) -> None:
        if self._sender is None:
            self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._sender.setblocking(False)
        for other in others:
            try:
                self._sender.sendto(message, other)
            except ConnectionRefusedError:
                # Its process died and left the socket behind.
                with suppress(OSError):
                    os.unlink(other)
            except OSError:
                # Its buffer is full; it will notice the gap in the numbers.
                continue

    def _find_others(self) -> list[str]:
        try:
            stamp = os.stat(self._folder).st_mtime_ns
            names = os.listdir(self._folder) if stamp != self._stamp else []
        except OSError:
            # It does not exist, or a cleaner of temporary files just removed it.
            return []
        if stamp != self._stamp:
            own = self._own.name if self._own is not None else ""
            names = [name for name in names if name != own]
            self._others = [os.path.join(self._folder, name) for name in names]
            self._stamp = stamp if file_age_ms(stamp) > _SETTLED_MS else -1
        return self._others

    def close(self) -> None:
        """Close the sockets, remove this process's socket file, and the folder if it is empty.

        A forked process removes nothing, because the socket file belongs to its parent.
        """
        for one in (self._receiver, self._sender):
            if one is not None:
                one.close()
        if self._own is not None and self._process == os.getpid():
            self._own.unlink(missing_ok=True)
            with suppress(OSError):
                self._folder.rmdir()


class PollFallback:
    """Reads the number of the last commit that notified waiters."""

    def __init__(self, options: SqliteOptions) -> None:
        self._options = options
        self._db: Database | None = None
        self.turn = threading.Lock()
        close_before_forks(self)

    def last_wake(self) -> int:
        """Return the number; 0 if there is none, or if the file cannot be read now."""
        with self.turn:
            try:
                if self._db is None:
                    self._db = connect(self._options)
                return self._db.execute(READ, (WAKES,)).get or 0
            except (DriverError, HeadwayError):
                # A claim will report the error; here it only means that no waiter is woken.
                self.disconnect()
                return 0

    def disconnect(self) -> None:
        """Close its connection; the next read opens it again."""
        if self._db is not None:
            with suppress(DriverError):
                self._db.close()
            self._db = None

    def close(self) -> None:
        """Close its connection, at the end of its thread."""
        with no_fork:
            self.disconnect()


CHECK_EVERY = 1.0
"""Seconds between two checks."""


class BackgroundThread:
    """The thread that receives notifications and checks the store once a second.

    Args:
        leave: releases what `look` uses, when the thread ends.

    Attributes:
        started: whether `start` has nothing left to do.
    """

    def __init__(
        self,
        notifier: Notifier,
        on_notification: Callable[[CommitWakes], None],
        look: Callable[[], None],
        leave: Callable[[], None],
    ) -> None:
        self._notifier = notifier
        self._on_notification = on_notification
        self._check = look
        self._leave = leave
        self.started = False
        self._stopped = False
        self._poke = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headway-keeper", daemon=True)
        self._starting = threading.Lock()

    def start(self) -> None:
        """Start the thread, once."""
        with self._starting:
            if not self.started and not self._stopped:
                self._thread.start()
                self.started = True

    def start_listening(self) -> bool:
        """Start to receive notifications; return whether one may have been missed until now."""
        if self._notifier.listening:
            return False
        self._notifier.start()
        self._poke.set()
        return True

    def _run(self) -> None:
        next_check = monotonic() + CHECK_EVERY
        while not self._stopped:
            pause = next_check - monotonic()
            if pause <= 0:
                next_check = monotonic() + CHECK_EVERY
                self._check()
            elif self._notifier.listening:
                notification = self._notifier.listen(pause)
                if notification is not None and not self._stopped:
                    self._on_notification(notification)
            else:
                self._poke.wait(pause)
                self._poke.clear()
        with self._starting:
            self._release()

    def end(self) -> None:
        """Make the thread end, without waiting for it."""
        with self._starting:
            if self._stopped:
                return
            self._stopped = True
            if self.started:
                self._poke.set()
                self._notifier.wake_own()
            else:
                self._release()

    def _release(self) -> None:
        self._notifier.close()
        self._leave()

    def stop(self) -> None:
        """Stop the thread. Blocks until it has ended."""
        self.end()
        if self._thread.is_alive():
            self._thread.join()
