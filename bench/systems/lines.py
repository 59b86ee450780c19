"""Processes in other languages under measurement; commands and replies are lines of JSON."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from bench.child import LEAVE_S, LIMIT_S, ChildFailed
from bench.tally import Report


class LineChild:
    """A process and its streams, with the interface of `bench.child.Child`."""

    def __init__(self, process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
        self._process = process
        self._errors = errors
        self._read = b""
        self.pid = process.pid

    def receive(self) -> Any:
        """Return the next value that it sends."""
        assert self._process.stdout is not None
        stream = self._process.stdout.fileno()
        parts = [self._read]
        while b"\n" not in parts[-1]:
            ready, _, _ = select.select([stream], [], [], LIMIT_S)
            part = os.read(stream, 1 << 20) if ready else b""
            if not part:
                raise ChildFailed(self._last_words())
            parts.append(part)
        line, _, self._read = b"".join(parts).partition(b"\n")
        return json.loads(line)

    def send(self, value: object) -> None:
        """Send it a value."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(value).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise ChildFailed(self._last_words()) from error

    def ask(self, value: object) -> Any:
        """Send it a value and return its reply."""
        self.send(value)
        return self.receive()

    def look(self) -> None:
        """Raise if it has exited; do not wait."""
        if self._process.poll() is not None:
            raise ChildFailed(self._last_words())

    def _last_words(self) -> str:
        self._errors.seek(0)
        words = self._errors.read()[-1_000:].decode(errors="replace").strip()
        return words or f"the process {self.pid} is gone"


class LineProducer(LineChild):
    """An enqueuing process; converts its times from ms to ns."""

    def ask(self, value: object) -> Any:
        answer = super().ask(value)
        if isinstance(value, tuple) and value[0] == "pace":
            return {number: int(at * 1e6) for number, at in enumerate(answer)}
        return answer


class LineWorker(LineChild):
    """A worker process; converts its times from ms to ns."""

    def ask(self, value: object) -> Report:
        first, last, seen = super().ask(value)
        if seen and isinstance(seen[0], list):
            seen = [(number, int(at * 1e6)) for number, at in seen]
        return Report(int(first * 1e6), int(last * 1e6), seen)


@contextmanager
def started(
    kind: type[LineChild],
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str] | None = None,
) -> Generator[LineChild]:
    """Run a program, and kill it at the end if it has not exited."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
        try:
            yield kind(process, errors)
            with suppress(subprocess.TimeoutExpired):
                process.wait(LEAVE_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()
