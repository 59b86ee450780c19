"""A worker's process: started, watched, started again when it dies."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

STOP_S = 6.0
PAUSE_S = 0.5


class WorkerProcess:
    """A program that is to run all the time.

    Args:
        name: a label, also of its log file.
        command: the program.
        env: what its environment has besides.
        folder: where its log goes.

    Attributes:
        name: as given.
        pid: of the process that runs; None between two.
        died: the ids of the processes that ended unasked.
    """

    def __init__(
        self, name: str, command: Sequence[str], env: Mapping[str, str], folder: Path
    ) -> None:
        self.name = name
        self.pid: int | None = None
        self.died: list[int] = []
        self._command = tuple(command)
        self._env = {**os.environ, **env}
        self._log = folder / f"{name}.log"
        self._stopping = False

    async def run(self) -> None:
        """Runs it until `stop`."""
        while not self._stopping:
            with self._log.open("ab") as log:
                process = await asyncio.create_subprocess_exec(
                    *self._command,
                    env=self._env,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    # Ctrl-C is the demo's: its workers end in good order, after the last letter.
                    start_new_session=True,
                )
            self.pid = process.pid
            try:
                await process.wait()
            finally:
                self.pid = None
                if process.returncode is None:
                    process.kill()
            if not self._stopping:
                self.died.append(process.pid)
                await asyncio.sleep(PAUSE_S)

    def kill(self) -> None:
        """Ends the process with SIGKILL: it has no time for a last word."""
        self._signal(signal.SIGKILL)

    async def stop(self, running: asyncio.Task[None]) -> None:
        """Ends it in good order, or after some seconds without.

        Args:
            running: its `run`.
        """
        self._stopping = True
        self._signal(signal.SIGTERM)
        done, _ = await asyncio.wait([running], timeout=STOP_S)
        if not done:
            self.kill()
        await running

    def _signal(self, number: signal.Signals) -> None:
        if self.pid is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, number)
