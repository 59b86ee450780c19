"""Several worker processes under one: what dies is started again, what is asked to stop stops."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

import structlog

from headway.cli.failures import CALLER, DONE
from headway.runtime.timing import REAL

TETHER = "--tether"
"""The hidden option by which a child is given the end of a pipe that closes with its parent."""

_HEALTHY_S = 10.0
_LONGEST_S = 30.0
_SHORTEST_S = 0.2

log = structlog.stdlib.get_logger("headway.processes")


class Processes:
    """A number of children that run the same command.

    Attributes:
        restarts: how often a child had to be started again.

    Args:
        arguments: of each child, without the program's name.
        drain: whether a child that ends well has done its work.
    """

    def __init__(self, arguments: Sequence[str], *, count: int, drain: bool) -> None:
        self._arguments = list(arguments)
        self._count = count
        self._drain = drain
        self._children: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self._wrong: int | None = None
        self.restarts = 0

    async def run(self) -> int:
        """Run until asked to stop, or until all children have drained.

        SIGTERM and SIGINT are passed on to the children as SIGTERM, each time they come.

        Returns:
            0; or the exit code of a child that said that the call is wrong.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        read_end, write_end = os.pipe()
        try:
            await asyncio.gather(*(self._keep(place, read_end) for place in range(self._count)))
        finally:
            os.close(read_end)
            os.close(write_end)
        return DONE if self._wrong is None else self._wrong

    def _stop(self) -> None:
        self._stopping.set()
        for child in self._children.values():
            if child.returncode is None:
                child.send_signal(signal.SIGTERM)

    async def _keep(self, place: int, tether: int) -> None:
        pause_s = _SHORTEST_S
        while not self._stopping.is_set():
            started = REAL.monotonic()
            code = await self._once(place, tether)
            if self._stopping.is_set() or (code == DONE and self._drain):
                return
            if code == CALLER:
                self._wrong = code
                self._stop()
                return
            lived_s = REAL.monotonic() - started
            pause_s = _SHORTEST_S if lived_s > _HEALTHY_S else min(pause_s * 2, _LONGEST_S)
            pid = self._children[place].pid
            log.warning("worker process died", pid=pid, code=code, again_in_s=pause_s)
            self.restarts += 1
            await REAL.wait(self._stopping, pause_s)

    async def _once(self, place: int, tether: int) -> int:
        # A session of its own: Ctrl-C reaches the children through this process alone, once.
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "headway",
            self._arguments[0],
            f"{TETHER}={tether}",
            *self._arguments[1:],
            pass_fds=(tether,),
            start_new_session=True,
        )
        self._children[place] = child
        if self._stopping.is_set():
            child.send_signal(signal.SIGTERM)
        return await child.wait()
