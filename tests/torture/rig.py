"""Shared parts of the rigs: processes that come and go, the end, and the verdict."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from headway.contract.definitions import DefineRequest, EnableEntry
from headway.contract.views import GatesQuery
from headway.stores import open_store
from tests.torture import file_flag, process, side_processes
from tests.torture.checker import Violation, check
from tests.torture.evidence import Evidence, read_evidence
from tests.torture.plan import (
    DEADLINE_MS,
    GATES,
    OFFER_MS,
    START_WITHIN_MS,
    TICK,
    TICK_MS,
    declare_varied,
    open_spans,
)
from tests.torture.process import Role, witness_file
from tests.torture.site import Site
from tests.torture.witness import Witness

# A clean server forks the processes: each starts without threads, and within milliseconds.
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["tests.torture.process", "tests.torture.side_processes"])
DRAIN_S = 900.0
SLACK_MS = 100
"""Allowance for the time between a worker's reading of the clock and a handler's first line."""


@dataclass(slots=True)
class Rig:
    """A run: a store, and a folder with a single witness.

    Attributes:
        folder: empty at first.
        site: the store's site.
        seed: seed of all random choices.
        calm: whether nothing is killed, so that no lease may be lost.
        say: prints a line.
        answered_s: maximum time until the outside world signals the end of a call.
        begin_at: start, ms UTC, of a history with stages, cascades, hours, a timetable and an
            operator; 0 for a history without them.
    """

    folder: Path
    site: Site
    seed: int
    calm: bool
    say: Callable[[str], None]
    answered_s: float = 0.1
    begin_at: int = 0
    witness: Witness = field(init=False)
    running: list[BaseProcess] = field(default_factory=list)
    looking: list[BaseProcess] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.witness = Witness(witness_file(self.folder))
        plan: dict[str, Any] = {
            "gates": GATES,
            "deadline_ms": DEADLINE_MS,
            "calm": self.calm,
            "start_within_ms": START_WITHIN_MS,
            "slack_ms": SLACK_MS,
            "audits": 5,
        }
        onlooking: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
            (side_processes.audit, (self.folder,)),
            (side_processes.answer, (self.folder, self.seed, self.answered_s)),
        ]
        if self.begin_at:
            plan["hours"] = open_spans(self.begin_at)
            plan["entries"] = {TICK: {"every_ms": TICK_MS}}
            plan["offer_ms"] = OFFER_MS
            onlooking.append((side_processes.operate, (self.folder, self.seed)))
        self.witness.note("plan", plan=plan)
        (self.folder / "url").write_text(self.site.url)
        asyncio.run(_prepare(self.site.own_url, self.begin_at))
        for target, args in onlooking:
            self.looking.append(_start(target, *args))

    def start(self, role: Role) -> BaseProcess:
        """Start a new process."""
        one = _start(process.run, role)
        self.running.append(one)
        return one

    def wait_until_made(self, *names: str) -> None:
        """Wait until these processes have created all their jobs, or one of them has failed."""
        end = time.monotonic() + DRAIN_S
        while not all(file_flag.made(self.folder, name).up for name in names):
            if time.monotonic() > end or self.failed():
                return
            time.sleep(0.1)

    def kill(self, one: BaseProcess) -> None:
        """Kill a process without notice, unless it has already exited."""
        pid = one.pid or 0
        if one.is_alive():
            os.kill(pid, signal.SIGKILL)
        one.join()
        self.running.remove(one)
        self.witness.note("died", of=pid)

    def failed(self) -> list[str]:
        """Return processes that exited because of an error of their own, and not by a kill."""
        ended = [one for one in [*self.running, *self.looking] if not one.is_alive()]
        wrong = [one for one in ended if one.exitcode not in {0, -signal.SIGKILL}]
        return [f"{one.name} ended with {one.exitcode}" for one in wrong]

    def work_off(self, *lanes: str) -> int:
        """Wait until no job is left in these lanes; return how many remained."""
        return asyncio.run(_work_off(self.site.own_url, lanes, self.failed, self.say))

    def end(self) -> None:
        """Stop the producers, wait until no job is left, and stop everything."""
        file_flag.enough(self.folder).hoist()
        if self.begin_at:
            asyncio.run(_disable_the_timetable(self.site.own_url))
        self.work_off()
        file_flag.stop(self.folder).hoist()
        _join(self.running)
        file_flag.over(self.folder).hoist()
        _join(self.looking)

    def verdict(self) -> tuple[Evidence, list[Violation]]:
        """Return the checker's findings on the witness's file and the export."""
        found = [Violation("process", one) for one in self.failed()]
        asyncio.run(_note_gates(self.site.own_url, self.witness))
        found += [Violation("integrity", one) for one in self.site.broken()]
        export = self.folder / "export.jsonl"
        subprocess.run(
            [
                *(sys.executable, "-m", "headway", "export", "--no-trail"),
                *("--out", str(export), "--store", self.site.own_url),
            ],
            check=True,
            capture_output=True,
        )
        with witness_file(self.folder).open("rb") as seen, export.open("rb") as told:
            evidence = read_evidence(seen, told)
        return evidence, found + check(evidence)


def _start(target: Callable[..., None], *args: Any) -> BaseProcess:
    one = _PROCESSES.Process(target=_with_its_rig, args=(target, *args), daemon=True)
    one.start()
    return one


def _with_its_rig(target: Callable[..., None], *args: Any) -> None:
    """Run a target, and exit with the rig even if it is killed: the file would grow forever."""
    rig = multiprocessing.parent_process()
    assert rig is not None

    def end() -> None:
        rig.join()
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()
    target(*args)


def _join(processes: list[BaseProcess]) -> None:
    for one in processes:
        one.join(60)
        if one.is_alive():
            one.kill()
            one.join()


async def _disable_the_timetable(url: str) -> None:
    store = open_store(url)
    try:
        await store.define(
            DefineRequest(items=(EnableEntry(name=TICK, enabled=False),), author="rig")
        )
    finally:
        await store.close()


async def _prepare(url: str, begin_at: int) -> None:
    """Create the store and declare everything, before any processes race for it."""
    app = process.declare(url, _nothing, _nothing)
    if begin_at:
        declare_varied(app, _nothing, _nothing, begin_at)
    async with app:
        pass


async def _nothing(_: object) -> None:
    return None


async def _work_off(
    url: str,
    lanes: tuple[str, ...],
    failed: Callable[[], list[str]],
    say: Callable[[str], None],
) -> int:
    store = open_store(url)
    end = time.monotonic() + DRAIN_S
    told = 0.0
    try:
        while left := await side_processes.unfinished(store, lanes):
            if time.monotonic() > end or failed():
                return left
            if time.monotonic() - told > 2:
                told = time.monotonic()
                say(f"{left} jobs left")
            await asyncio.sleep(0.2)
        return 0
    finally:
        await store.close()


async def _note_gates(url: str, witness: Witness) -> None:
    store = open_store(url)
    gates: list[dict[str, object]] = []
    cursor: str | None = None
    while True:
        page = await store.read(GatesQuery(cursor=cursor, limit=1_000))
        gates += [
            {
                "name": gate.name,
                "kind": gate.kind,
                "used": gate.used,
                "holders": gate.holder_count,
                "parked": gate.parked,
            }
            for gate in page.rows
        ]
        cursor = page.cursor
        if cursor is None:
            break
    await store.close()
    witness.note("gates", gates=gates)
