"""The run log: limited in size, readable by its owner only, without the secrets of the URL."""

from __future__ import annotations

import os
import re

LONGEST_LINE = 64_000
LONGEST_SECRET = 4_000
LONGEST_ERROR = 500
# Begins at `://`: a pattern that begins with the scheme is quadratic in a long word.
_IN_URL = re.compile(rb"(?<=[A-Za-z0-9+.-]://)[^\s/'\"<>]*@")


class Log:
    """The log of one session.

    Attributes:
        last: end of what the current step has written.
        bytes: size of the output, including what was omitted.
        truncated: whether part of the output is missing.
    """

    def __init__(self, path: str, most: int, secrets: list[str]) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._file = os.open(path, flags, 0o600)
        except OSError:
            # As on a full device: nothing can be written.
            self._file = -1
        self._secrets = [one.encode() for one in secrets]
        self._left = most
        self._partial = b""
        self.last = b""
        self.bytes = 0
        self.truncated = False

    def feed(self, data: bytes) -> None:
        """Write complete lines and buffer the rest, so that no secret is split."""
        self.bytes += len(data)
        if self.truncated:
            # Only `last` is still kept.
            data = data[-LONGEST_SECRET:]
        self._partial += data
        end = self._partial.rfind(b"\n") + 1
        if not end and len(self._partial) >= LONGEST_LINE:
            # Keep what may be the beginning of a secret.
            self._partial = self._clean(self._partial)
            end = max(len(self._partial) - LONGEST_SECRET, 0)
        self._write(self._partial[:end])
        self._partial = self._partial[end:]

    def flush(self) -> None:
        """Write the buffered rest."""
        self._write(self._partial)
        self._partial = b""

    def note(self, text: str) -> None:
        """Write a line of the supervisor itself, regardless of the size limit."""
        self.flush()
        self._append(self._clean(f"headway: {text}\n".encode(errors="replace")))

    def _write(self, data: bytes) -> None:
        if not data:
            return
        data = self._clean(data)
        self.last = (self.last + data)[-LONGEST_ERROR:]
        if self.truncated:
            return
        self._append(data[: self._left])
        self._left -= len(data)
        if self._left < 0:
            self.truncated = True
            self._partial = b""
            self._append(b"\nheadway: the output is too long; the rest is omitted\n")

    def _append(self, data: bytes) -> None:
        try:
            os.write(self._file, data)
        except OSError:
            # The device is full: the session goes on, and its end is still reported.
            self.truncated = True

    def _clean(self, data: bytes) -> bytes:
        for secret in self._secrets:
            data = data.replace(secret, b"***")
        return _IN_URL.sub(b"***@", data)
