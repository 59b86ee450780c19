"""Bells between processes: each waiting process has a socket beside the file, committers ring."""

from __future__ import annotations

import os
import secrets
import socket
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import msgspec

from headway.stores.sqlite.timing import file_age_ms

_LONGEST = 100
"""Bytes of a socket's path; the system takes 103 to 107."""
_MOST = 60_000
"""Bytes of one message; a longer one says "any lane"."""
_SETTLED_MS = 100
"""A folder's time stamp is coarse: what is younger may change again without showing it."""

Lanes = Iterable[tuple[str | None, int | None]]
Ring = tuple[int, list[tuple[str | None, int | None]]]
"""The number of the commit, and the lanes with from when."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Ring).decode


def folder_of(path: Path) -> Path:
    """Where the sockets of a file lie: beside it, or under a short name if its path is long."""
    beside = path.resolve()
    beside = beside.with_name(f"{beside.name}.wake")
    if len(os.fsencode(beside)) + 20 <= _LONGEST:
        return beside
    short = blake2b(os.fsencode(beside), digest_size=12).hexdigest()
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(base) / f"headway-{os.getuid()}-{short}"


class Bells:
    """The sockets of all processes that wait for one file.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self._folder = folder_of(path)
        self._own: Path | None = None
        self._ear: socket.socket | None = None
        self._mouth: socket.socket | None = None
        self._others: list[str] = []
        self._stamp = -1

    # Hearing

    def hang_up(self) -> None:
        """Makes this process heard of, once; without a socket it is left to the slow poll."""
        if self._ear is not None:
            return
        own = self._folder / f"{os.getpid()}-{secrets.token_hex(4)}"
        ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            ear.bind(os.fspath(own))
            own.chmod(0o600)
        except OSError:
            ear.close()
            return
        self._own, self._ear = own, ear

    def listen(self, seconds: float) -> Ring | None:
        """Blocks until a bell rings.

        Args:
            seconds: the longest.

        Returns:
            What was rung, or None.
        """
        assert self._ear is not None  # noqa: S101  (the caller has hung it up)
        self._ear.settimeout(seconds)
        try:
            return _decode(self._ear.recv(_MOST + 1024))
        except (OSError, msgspec.DecodeError):
            return None

    @property
    def hung(self) -> bool:
        """Whether this process is heard of."""
        return self._ear is not None

    def ring_own(self) -> None:
        """Ends a `listen` of this process."""
        if self._own is not None:
            self._send(_encode((0, [])), [os.fspath(self._own)])

    # Ringing

    def ring(self, number: int, lanes: Lanes) -> None:
        """Tells all other waiting processes; never blocks, and never fails.

        Args:
            number: of the commit.
            lanes: to be woken, with from when.
        """
        others = self._find_others()
        if not others:
            return
        message = _encode((number, list(lanes)))
        if len(message) > _MOST:
            message = _encode((number, [(None, None)]))
        self._send(message, others)

    def _send(self, message: bytes, others: Iterable[str]) -> None:
        if self._mouth is None:
            self._mouth = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._mouth.setblocking(False)
        for other in others:
            try:
                self._mouth.sendto(message, other)
            except ConnectionRefusedError:
                # Its process is gone and left the socket behind.
                with suppress(OSError):
                    os.unlink(other)
            except OSError:
                # Full: it has bells to hear already, and will see the gap in their numbers.
                continue

    def _find_others(self) -> list[str]:
        try:
            stamp = os.stat(self._folder).st_mtime_ns
        except OSError:
            return []
        if stamp != self._stamp:
            own = self._own.name if self._own is not None else ""
            names = [name for name in os.listdir(self._folder) if name != own]
            self._others = [os.path.join(self._folder, name) for name in names]
            self._stamp = stamp if file_age_ms(stamp) > _SETTLED_MS else -1
        return self._others

    def close(self) -> None:
        """Takes the own socket away."""
        for one in (self._ear, self._mouth):
            if one is not None:
                one.close()
        if self._own is not None:
            self._own.unlink(missing_ok=True)
