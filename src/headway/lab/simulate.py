"""Simulates scenarios in virtual time: the real engine, the memory store and the outside world."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never, cast

import msgspec

from headway.contract.definitions import CloseGate, DefineRequest, Item, OpenGate, SetGate
from headway.contract.operate import ActRequest, Verb
from headway.contract.store import Sent
from headway.contract.views import StatsQuery
from headway.core.errors import BacklogFull, CallerError, HeadwayError, located
from headway.core.instant import format_instant
from headway.core.job import MAX_BATCH, NewJob
from headway.lab.arrivals import Arrival, Arrivals
from headway.lab.history import FAR_AT, Changed, Closed, History, read_into
from headway.lab.invariants import FINAL, check
from headway.lab.outside_world import OutsideWorld
from headway.lab.report import Report, report
from headway.lab.scenario import (
    CapacityMove,
    KillMove,
    LimitMove,
    PauseMove,
    ResumeMove,
    Scenario,
    ScenarioMove,
)
from headway.lab.scenario_app import declared_app
from headway.lab.scenario_file import read_scenarios
from headway.lab.virtual_time import VirtualLoop, VirtualTiming, run_virtually
from headway.lab.workers import ScenarioWorkers
from headway.runtime.chores import Sweep
from headway.stores.memory import MemoryStore

LONGEST_MS = 7 * 86_400_000
"""Maximum length of a scenario without a duration."""
_CHECK_EVERY_MS = 5_000
_PROGRESS_STEPS = 200

_Progress = Callable[[str, float], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Played:
    """The result of playing a scenario.

    Attributes:
        outcomes: number of attempts by (kind, outcome).
    """

    history: History
    outcomes: Mapping[tuple[str, str], int]


def play(scenario: Scenario, folder: Path, *, progress: _Progress | None = None) -> Played:
    """Play a scenario to its end; the same scenario always gives the same result.

    Args:
        folder: folder of the files that the scenario names.
        progress: called with the scenario's name and the share of its time that has passed.

    Raises:
        InvalidValue: the engine refused a gate's name, an argument or a move of the scenario.
    """
    return run_virtually(lambda loop: _Play(scenario, folder, loop, progress).run(), scenario.start)


class _Play:
    def __init__(
        self, scenario: Scenario, folder: Path, loop: VirtualLoop, progress: _Progress | None
    ) -> None:
        self.scenario = scenario
        self.loop = loop
        self.progress = progress
        self.timing = VirtualTiming(loop)
        self.store = MemoryStore(loop.clock)
        self.world = OutsideWorld(scenario, self.store, self.timing)
        self.history = History(start_at=scenario.start)
        self.arrivals = Arrivals(scenario, folder)
        self.workers = ScenarioWorkers(scenario, self.world, self.store, self.timing)
        self.app = declared_app(scenario, self.world, self.store, self.timing)
        duration = scenario.duration
        self.until_at = scenario.start + (LONGEST_MS if duration is None else duration)
        self.last_at = self.until_at + (0 if duration is None else scenario.drain)
        self.all_sent = False

    async def run(self) -> Played:
        try:
            await self.app.declare()
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self.workers.work())]
                # One sweeper for all workers, which run without chores.
                tasks.append(group.create_task(Sweep(self.store, self.timing).run()))
                tasks += [
                    group.create_task(self._move(n, one))
                    for n, one in enumerate(self.scenario.moves)
                ]
                tasks.append(group.create_task(self._send_all()))
                if self.progress is not None:
                    tasks.append(group.create_task(self._report()))
                await self._wait_until_done()
                await self._read_history()
                for task in tasks:
                    task.cancel()
        except* Exception as errors:  # noqa: BLE001  (it is raised again)
            # Raise the error itself, not the exception group of the tasks.
            raise _first_error(errors) from None
        finally:
            await self.world.carrier.close()
        return Played(history=self.history, outcomes=self.world.outcomes)

    async def _wait_until_done(self) -> None:
        if self.scenario.duration is not None:
            await self._sleep_until(self.until_at)
        while self.loop.clock() < self.last_at:
            if self.all_sent and not await self._unfinished():
                break
            await self._sleep_until(min(self.last_at, self.loop.clock() + _CHECK_EVERY_MS))

    async def _unfinished(self) -> int:
        counts = (await self.store.read(StatsQuery())).counts
        return sum(count for state, count in counts.items() if state not in FINAL)

    async def _sleep_until(self, at: int) -> None:
        await self.timing.pause(max(0, at - self.loop.clock()) / 1000)

    async def _read_history(self) -> None:
        history = self.history
        await read_into(history, self.store)
        history.outside_violations = list(self.world.carrier.violations)
        history.refused = list(self.arrivals.refused)
        history.end_at = self.loop.clock()
        ends = [job.finished_at or 0 for job in history.jobs]
        if not await self._unfinished() and self.loop.clock() > self.scenario.start:
            # All jobs are final: end the history with the last of them, or when arrivals end.
            least = self.until_at if self.scenario.duration is not None else 0
            history.end_at = max(least, max(ends, default=0), self.scenario.start + 1)

    # ------------------------------------------------------------------------------ arrivals

    async def _send_all(self) -> None:
        batch: list[Arrival] = []
        for arrival in self.arrivals:
            if batch and (arrival.at != batch[0].at or len(batch) == MAX_BATCH):
                await self._send(batch)
                batch = []
            batch.append(arrival)
        if batch:
            await self._send(batch)
        self.all_sent = True

    async def _send(self, batch: list[Arrival]) -> None:
        await self._sleep_until(batch[0].at)
        jobs: list[NewJob] = []
        cancelled: list[str] = []
        for one in batch:
            try:
                jobs.append(self._job(one))
            except CallerError as error:
                if not one.place:
                    raise
                self.arrivals.refused.append(f"{one.place}: {error.message}")
                continue
            if one.cancel:
                cancelled.append(one.id)
        self.history.sent.update(one.id for one in await self._enqueue(jobs) if one.created)
        if cancelled:
            await self.store.act(
                ActRequest(
                    request=f"cancel {cancelled[0]}",
                    ids=tuple(cancelled),
                    verb=Verb.CANCEL,
                    author="scenario",
                    reason="part of the scenario",
                )
            )

    async def _enqueue(self, jobs: Sequence[NewJob]) -> list[Sent]:
        """Enqueue jobs that arrive together; those that a lane's max_backlog refuses are noted."""
        try:
            return await self.app.send_many_async(jobs)
        except BacklogFull as full:
            if len(jobs) == 1:
                at = format_instant(self.loop.clock(), self.scenario.tz)
                self.arrivals.refused.append(f"{jobs[0].kind} at {at}: {full.message}")
                return []
        return [sent for job in jobs for sent in await self._enqueue([job])]

    def _job(self, arrival: Arrival) -> NewJob:
        return self.app.kinds[arrival.kind].make(
            job_id=arrival.id,
            due=format_instant(arrival.due_at),
            priority=arrival.priority,
            **arrival.args,
        )

    # --------------------------------------------------------------------------------- moves

    async def _move(self, number: int, move: ScenarioMove) -> None:
        await self._sleep_until(move.at.resolve(self.scenario.start, self.scenario.tz))
        with located(f"moves[{number}]: ", HeadwayError):
            if isinstance(move, KillMove):
                await self.workers.kill(move)
            else:
                await self._operate(move)

    async def _operate(self, move: PauseMove | ResumeMove | CapacityMove | LimitMove) -> None:
        now, history = self.loop.clock(), self.history
        item: Item
        match move:
            case PauseMove():
                until = None
                if move.until is not None:
                    until = move.until.resolve(self.scenario.start, self.scenario.tz)
                item = CloseGate(name=move.gate, until_at=until, reason=move.reason)
                history.closings.append(
                    Closed(gate=move.gate, from_at=now, to_at=FAR_AT if until is None else until)
                )
            case ResumeMove():
                item = OpenGate(name=move.gate)
                history.closings[:] = [_opened(one, move.gate, now) for one in history.closings]
            case CapacityMove():
                item = SetGate(name=move.gate, capacity=move.to)
                history.changes.append(Changed(gate=move.gate, at=now, to=move.to))
                channels = self.world.carrier.channels
                if move.gate in channels:
                    # A channel that is removed stays in use until its call ends.
                    channels[move.gate] = max(channels[move.gate], move.to)
            case LimitMove():
                item = SetGate(name=move.gate, limit=move.to)
                history.changes.append(Changed(gate=move.gate, at=now, to=move.to))
            case _:
                assert_never(move)
        await self.store.define(
            DefineRequest(items=(item,), author="scenario", reason="part of the scenario")
        )

    async def _report(self) -> None:
        total_ms = max(1, self.last_at - self.scenario.start)
        while self.progress is not None:
            self.progress(self.scenario.name, (self.loop.clock() - self.scenario.start) / total_ms)
            await self.timing.pause(total_ms / _PROGRESS_STEPS / 1000)


def _opened(closing: Closed, gate: str, at: int) -> Closed:
    if closing.gate != gate or closing.to_at <= at:
        return closing
    return Closed(gate=gate, from_at=closing.from_at, to_at=at)


def _first_error(errors: BaseExceptionGroup[Exception]) -> BaseException:
    found: BaseException = errors
    while isinstance(found, BaseExceptionGroup):
        found = cast("BaseExceptionGroup[BaseException]", found).exceptions[0]
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Simulation:
    """The result of simulating a scenario file.

    Attributes:
        reports: the base first, then each what-if.
    """

    reports: tuple[Report, ...]

    @property
    def violated(self) -> bool:
        """Whether any report has a violation."""
        return any(report.violations for report in self.reports)


def simulate(
    path: Path, *, seed: int | None = None, progress: _Progress | None = None
) -> Simulation:
    """Simulate a scenario file in virtual time, and check what happened.

    The same file and seed always give the same result.

    Args:
        path: TOML file; files that it names are relative to its folder.
        seed: seed in place of the file's.
        progress: called with the name of the current scenario and the share of it that is done.

    Raises:
        InvalidValue: the file is not valid, or the engine refused a value in it.
    """
    reports: list[Report] = []
    for scenario in read_scenarios(path, seed=seed):
        with located(f"{path}: {scenario.name}: ", CallerError):
            played = play(scenario, path.parent, progress=progress)
        violations = check(played.history, scenario)
        reports.append(report(scenario, played.history, played.outcomes, violations))
    return Simulation(reports=tuple(reports))


def as_json(simulation: Simulation) -> bytes:
    """Return all numbers of a simulation, including those of plots, as one JSON document."""
    return msgspec.json.encode(simulation)
