"""The workers of the mail room, in Python and in Node; one of them is killed at intervals."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import headway as hw
from examples.demo.mail_room.interpreters import find_node
from examples.demo.mail_room.worker_process import WorkerProcess
from headway.contract.views import WorkersQuery, WorkerView
from headway.lab.draws import Draws

REPOSITORY = Path(__file__).parents[3]
NODE_WORKER = REPOSITORY / "examples" / "workers" / "worker.mjs"
NODE_HANDLERS = Path(__file__).with_name("letters.mjs")
KILL_EACH_S = 5.0
LEASE_MS = "3000"
HELD_TRIES = 100

Notify = Callable[[str, str], None]


class Crew:
    """The workers.

    Args:
        store: The store, to look up killed workers.
        url: URL of the server from which they pull.
        env: Environment of their handlers: the mail server and their database.
        folder: Folder for their logs.
        seed: Random seed for the kills.
        notify: Called for each event, with a word and a sentence.

    Attributes:
        workers: The processes; the last one is killed at intervals.
        dead: The store's ids of the workers that died.
    """

    def __init__(
        self,
        store: hw.Store,
        url: str,
        env: dict[str, str],
        folder: Path,
        seed: int,
        notify: Notify,
    ) -> None:
        self.dead: set[str] = set()
        self._store = store
        self._draws = Draws(seed)
        self._notify = notify
        at = {**env, "HEADWAY_URL": url, "HEADWAY_TOKEN": ""}
        clerk = [sys.executable, "-m", "examples.demo.mail_room.clerk"]
        paths = filter(None, (os.environ.get("PYTHONPATH"), REPOSITORY))
        here = {**at, "PYTHONPATH": os.pathsep.join(map(str, paths))}
        self.workers = [WorkerProcess("worker-python", clerk, here, folder)]
        node = find_node()
        if node is not None:
            line = [node, str(NODE_WORKER), str(NODE_HANDLERS)]
            there = {**at, "LANES": "send_email", "LEASE_MS": LEASE_MS, "CONCURRENCY": "2"}
            self.workers.append(WorkerProcess("worker-node", line, there, folder))

    @asynccontextmanager
    async def at_work(self) -> AsyncGenerator[None]:
        """Run the workers until the block ends."""
        running = [asyncio.create_task(worker.run()) for worker in self.workers]
        try:
            yield
        finally:
            pairs = zip(self.workers, running, strict=True)
            await asyncio.gather(*(worker.stop(task) for worker, task in pairs))
            await self.note_the_dead()

    async def kill_now_and_then(self) -> None:
        """Kill a worker that has a job, at intervals, until cancelled."""
        victim, count = self.workers[-1], 0
        while True:
            count += 1
            # The store forgets a dead worker after an hour.
            await self.note_the_dead()
            await asyncio.sleep(KILL_EACH_S * (0.5 + self._draws.unit("kill", count)))
            if await self._holds_something(victim) and victim.pid is not None:
                self._notify("killed", f"kill -9 {victim.pid}: {victim.name}, in the middle of it")
                victim.kill()

    async def note_the_dead(self) -> None:
        """Look up the store's ids of the workers that have died."""
        died = [pid for worker in self.workers for pid in worker.died]
        for worker in await self._store.read(WorkersQuery()):
            if any(_is(worker, pid) for pid in died):
                self.dead.add(worker.id)

    async def _holds_something(self, victim: WorkerProcess) -> bool:
        """Poll for a short time until the worker has a job: the store does not notify of that."""
        for _ in range(HELD_TRIES):
            if await self._holds(victim.pid):
                return True
            await asyncio.sleep(0.02)
        return False

    async def _holds(self, pid: int | None) -> bool:
        workers = await self._store.read(WorkersQuery())
        return pid is not None and any(one.running for one in workers if _is(one, pid))


def _is(worker: WorkerView, pid: int) -> bool:
    """Return whether a worker runs in a process: its name or id contains the host and pid."""
    place = f"-{socket.gethostname()}-{pid}-"
    return place in worker.id or place in worker.name
