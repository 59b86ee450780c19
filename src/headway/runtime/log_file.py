"""The log file: JSON lines, rotated by size, shared by any number of processes."""

from __future__ import annotations

import fcntl
import logging
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from headway.core.errors import InvalidValue

_log = logging.getLogger("headway.log_file")

MODE = 0o600
"""Readable by the owner only."""


class LogFile(RotatingFileHandler):
    """Appends to a file, and rotates it when it is full.

    Any number of processes, such as a server and several workers, may write to the same file: each
    line is appended in one write, and only one process rotates the file, while the others notice
    the rotation.
    """

    def __init__(self, path: Path, *, size: int, keep: int) -> None:
        """Open the file, or create it.

        Args:
            path: path of the newest file; older ones are `path.1`, `path.2`, ...
            size: size in bytes from which the file is rotated.
            keep: number of older files to keep.

        Raises:
            InvalidValue: the file cannot be written.
        """
        self._failures = 0
        try:
            super().__init__(path, maxBytes=size, backupCount=keep, encoding="utf-8")
        except OSError as error:
            message = f"the log file {path} cannot be written: {error.strerror}"
            raise InvalidValue(message, hint="fix log_file or HEADWAY_LOG_FILE") from None

    def _open(self) -> TextIOWrapper:
        stream = open(self.baseFilename, "a", encoding=self.encoding, opener=_private)  # noqa: SIM115  (the handler closes it)
        # A file that something else created may be readable by all.
        os.fchmod(stream.fileno(), MODE)
        return stream

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line; if that fails, only this handler loses it."""
        before = self._failures
        super().emit(record)
        if self._failures == before:
            self._failures = 0

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  (its base's name)
        """Log the first of several failed writes, for the other handlers to report."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        self._failures += 1
        if self._failures == 1:
            _log.warning("the log file %s cannot be written: %s", self.baseFilename, error.strerror)

    def shouldRollover(self, record: logging.LogRecord) -> bool:  # noqa: N802  (its base's name)
        """Return whether the file is full, after reopening it if another process rotated it."""
        del record
        if self.stream is None or self._was_rotated():
            self._reopen()
        return os.stat(self.baseFilename).st_size >= self.maxBytes

    def doRollover(self) -> None:  # noqa: N802  (its base's name)
        """Rotate the file, unless another process has just done so."""
        with self._rotation_lock():
            if self._was_rotated():
                self._reopen()
            else:
                self._close_stream()
                super().doRollover()

    def _was_rotated(self) -> bool:
        """Return whether the file at the path is not the one that is open here."""
        if not self.stream:
            return True
        try:
            return not os.path.samestat(os.stat(self.baseFilename), os.fstat(self.stream.fileno()))
        except FileNotFoundError:
            return True

    def _reopen(self) -> None:
        self._close_stream()
        self.stream = self._open()

    def _close_stream(self) -> None:
        # On a full device, closing fails too, because it flushes what could not be written.
        stream, self.stream = self.stream, None
        if stream:
            with suppress(OSError):
                stream.close()

    @contextmanager
    def _rotation_lock(self) -> Generator[None]:
        """Hold a file lock, so that no other process rotates in this block."""
        lock = os.open(f"{self.baseFilename}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, MODE)
