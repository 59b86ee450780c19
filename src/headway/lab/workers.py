"""The workers of a scenario: started, stopped gracefully, or killed with all they hold."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from headway.contract.store import Store
from headway.lab.outside_world import OutsideWorld
from headway.lab.scenario import KillMove, Scenario, WorkersTable
from headway.lab.scenario_app import declared_app
from headway.lab.virtual_time import VirtualTiming
from headway.runtime.worker.worker import Worker
from headway.testing.faulty import StoreProxy

Reply = TypeVar("Reply")


class DisconnectedStore(StoreProxy):
    """A process's connection to a store; once it is cut, every call is cancelled."""

    is_cut = False
    """Whether the process is dead, so that nothing it still does may have an effect."""

    async def _call(self, name: str, operation: Callable[[], Awaitable[Reply]]) -> Reply:
        if self.is_cut:
            raise asyncio.CancelledError
        return await super()._call(name, operation)

    async def close(self) -> None:
        """Leave the store open, because the other processes use it."""


@dataclass(slots=True)
class _Process:
    """A live worker process."""

    table: str
    worker: Worker
    store: DisconnectedStore
    task: asyncio.Task[None]


class ScenarioWorkers:
    """Starts and stops the workers of a scenario."""

    def __init__(
        self, scenario: Scenario, world: OutsideWorld, store: Store, timing: VirtualTiming
    ) -> None:
        self._scenario = scenario
        self._world = world
        self._store = store
        self._timing = timing
        self._alive: list[_Process] = []
        self._started = 0
        self._failed: asyncio.Future[None] | None = None

    async def work(self) -> None:
        """Start and stop workers as the scenario's tables specify, until cancelled.

        Raises:
            Exception: the error with which a worker failed.
        """
        self._failed = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.TaskGroup() as group:
                for table in self._scenario.workers:
                    group.create_task(self._run_workers(table))
                group.create_task(self._watch())
        finally:
            ending = [process.task for process in self._alive]
            for process in list(self._alive):
                self._kill(process)
            if ending:
                await asyncio.wait(ending)

    async def kill(self, move: KillMove) -> None:
        """Kill some workers at once, and start as many again after `restart_after`."""
        table = next(one for one in self._scenario.workers if one.name == move.worker)
        doomed = [one for one in self._alive if one.table == move.worker][: move.count]
        for process in doomed:
            self._kill(process)
        if move.restart_after is not None:
            await self._timing.pause(move.restart_after / 1000)
            for _ in doomed:
                self._start(table)

    async def _watch(self) -> None:
        assert self._failed is not None  # noqa: S101  (work() has set it)
        await self._failed

    async def _run_workers(self, table: WorkersTable) -> None:
        start_at, zone = self._scenario.start, self._scenario.tz
        if table.starts is not None:
            await self._sleep_until(table.starts.resolve(start_at, zone))
        for _ in range(table.count):
            self._start(table)
        if table.stops is not None:
            await self._sleep_until(table.stops.resolve(start_at, zone))
            for process in [one for one in self._alive if one.table == table.name]:
                process.worker.stop()

    def _start(self, table: WorkersTable) -> None:
        self._started += 1
        store = DisconnectedStore(self._store)
        app = declared_app(
            self._scenario, self._world, store, self._timing, dead=lambda: store.is_cut
        )
        worker = app.worker(
            lanes=dict(table.lanes),
            concurrency=table.concurrency,
            lease=timedelta(milliseconds=table.lease),
            name=f"{table.name}-{self._started}",
            timing=self._timing,
            heartbeat="task",
            chores=False,
        )
        task = asyncio.get_running_loop().create_task(worker.run())
        process = _Process(table.name, worker, store, task)
        self._alive.append(process)
        task.add_done_callback(lambda done: self._on_exit(process, done))

    def _kill(self, process: _Process) -> None:
        # Cut the connection first, so that nothing the cancelled worker still sends arrives.
        process.store.is_cut = True
        process.task.cancel()
        self._alive = [one for one in self._alive if one is not process]

    def _on_exit(self, process: _Process, done: asyncio.Task[None]) -> None:
        self._alive = [one for one in self._alive if one is not process]
        error = None if done.cancelled() else done.exception()
        if error is not None and self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def _sleep_until(self, at: int) -> None:
        now = self._scenario.start + round(self._timing.monotonic() * 1000)
        await self._timing.pause(max(0, at - now) / 1000)
