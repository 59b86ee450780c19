"""A worker's process, which is restarted when it dies."""

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
    """A program that is kept running.

    Args:
        name: Label, also used for its log file.
        command: The program.
        env: Additional environment variables.
        folder: Folder for its log.

    Attributes:
        name: The label.
        pid: Process id; None while no process runs.
        died: Ids of the processes that exited without being stopped.
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
        """Keep it running until `stop`."""
        while not self._stopping:
            with self._log.open("ab") as log:
                process = await asyncio.create_subprocess_exec(
                    *self._command,
                    env=self._env,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    # Ctrl-C must reach only the demo, which stops its workers at the end.
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
        """Kill the process with SIGKILL."""
        self._signal(signal.SIGKILL)

    async def stop(self, running: asyncio.Task[None]) -> None:
        """Stop it gracefully, or kill it after some seconds.

        Args:
            running: The task of `run`.
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
