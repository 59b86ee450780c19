"""Leads are called while workers and servers are killed with -9 at each step of a call.

The carrier is a separate process that speaks Twilio's API to Twilio's client and records each call:
it is the outside world, which must be touched only once.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from headway.contract.store import Store
from headway.contract.views import AuditQuery, GatesQuery, JobsQuery
from headway.core.state import State
from headway.stores import open_store
from headway.systems.calls.catalogue import DEFAULT_POOL
from tests.torture.calls_judge import Story, judge, reported_in
from tests.torture.calls_points import POINTS, RINGS
from tests.torture.calls_site import CHANNELS, NUMBERS, CallsSite, ended, kill
from tests.torture.checker import Violation

WORKERS = 3
WAITING = 12
"""Maximum number of waiting leads; no more are sent until some have been called."""
PATIENCE_S = 90.0
"""For a process to reach its point."""
WORKED_OFF_S = 240.0
"""For the last lead after the last kill: one whose worker died five times rests for a minute."""
LIVE = {"ringing", "in-progress", "queued"}
MOVING = (State.WAITING, State.PARKED, State.RUNNING, State.AWAITING)
OPEN = (State.SCHEDULED, *MOVING)


@dataclass(kw_only=True)
class _Torture:
    """A single run.

    Attributes:
        site: the site of the run.
        store: the same store, as opened by the rig.
        seed: seed of all random choices.
        left: kills that remain, by role: the points, the next one last.
    """

    site: CallsSite
    store: Store
    seed: int
    left: dict[str, list[str]]
    say: Callable[[str], None]
    story: Story = field(default_factory=Story)
    killed: Counter[str] = field(default_factory=Counter)
    enough: asyncio.Event = field(default_factory=asyncio.Event)
    struck: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        striking = [asyncio.create_task(self._strike("server"))]
        for number in NUMBERS:
            body = {"number": number, "provider": "twilio", "maximum_channels": CHANNELS}
            reply = await self.site.ask("POST", "/numbers", body)
            # Sent again after a kill, the number already exists.
            assert reply.status_code in {201, 409}, reply.text
        watching = asyncio.create_task(self._watch())
        feeding = asyncio.create_task(self._feed())
        striking += [asyncio.create_task(self._strike("worker", n)) for n in range(WORKERS)]
        tasks = [*striking, watching, feeding]
        try:
            await _all_or_first_error(asyncio.create_task(self.struck.wait()), tasks)
            self.enough.set()
            await feeding
            await _all_or_first_error(asyncio.create_task(self._work_off()), tasks)
            self.story.leads = [
                (await self.site.ask("GET", f"/leads/{one}")).json() for one in self.story.sent
            ]
            # No late webhook is still in flight.
            self.story.ledger = await self.site.ledger()
        finally:
            self.enough.set()
            self.over.set()
            await asyncio.gather(*tasks, return_exceptions=True)
        await self._look_once_more()

    async def _strike(self, role: str, n: int = 0) -> None:
        """Keep one process running, and kill each at its next point, as long as there are any."""
        draw = random.Random(f"{self.seed} {role} {n}")
        while not self.over.is_set():
            point = self.left[role].pop() if self.left[role] else ""
            within = "" if point == RINGS else point
            nth = draw.randint(1, 3) if self.story.wanted > len(POINTS) else 1
            one = await self._start(role, within, nth)
            if not point:
                await self.over.wait()
                await kill(one, signal.SIGTERM)
                self._must_end(one, role, 0)
                return
            if point == RINGS:
                await self._until_it_rings()
                await kill(one)
            elif await ended(one, PATIENCE_S) is None:
                await kill(one, signal.SIGTERM)
                message = f"no {role} came {nth} times to: {point}"
                raise RuntimeError(message)
            self._must_end(one, role, -signal.SIGKILL)
            self.killed[f"{role}: {point}"] += 1
            self.story.kills += 1
            if self.story.kills == self.story.wanted:
                self.struck.set()
            if self.story.kills % 20 == 0:
                self.say(f"{self.story.kills} killed; {len(self.story.sent)} leads")

    async def _start(self, role: str, point: str, nth: int) -> BaseProcess:
        if role == "worker":
            return self.site.work(point, nth)
        return await self.site.serve(point, nth)

    def _must_end(self, one: BaseProcess, role: str, code: int) -> None:
        if one.exitcode != code:
            self.story.found.append(Violation("process", f"a {role} ended with {one.exitcode}"))

    async def _until_it_rings(self) -> None:
        begun = time.time_ns() // 1_000_000
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            calls = (await self.site.ledger())["calls"]
            if any(one["status"] == "ringing" and one["placed_at"] > begun for one in calls):
                return
            await asyncio.sleep(0.02)
        message = "it never rings"
        raise RuntimeError(message)

    async def _feed(self) -> None:
        """Send leads, one after another, as long as processes are being killed."""
        n = 0
        while not self.enough.is_set():
            await asyncio.sleep(0.05)
            # Leads waiting for a retry after their workers died are not counted.
            if await self._count(MOVING) > WAITING:
                continue
            n += 1
            body = {
                "phone": f"+1415{5_500_000 + n}",
                "tz": "America/Los_Angeles",
                "reseller": f"reseller-{n % 3}",
                "key": f"lead-{n}",
            }
            reply = await self.site.ask("POST", "/leads", body)
            assert reply.status_code in {200, 201}, reply.text
            self.story.sent.append(reply.json()["id"])

    async def _count(self, states: tuple[State, ...]) -> int:
        query = JobsQuery(kind="lead", states=states, limit=200)
        return len((await self.store.read(query)).rows)

    async def _work_off(self) -> None:
        self.say("no more kills: the last leads are called")
        end = time.monotonic() + WORKED_OFF_S
        while left := await self._count(OPEN):
            if time.monotonic() > end:
                self.story.found.append(Violation("left", f"{left} leads are not finished"))
                return
            await asyncio.sleep(0.1)

    async def _watch(self) -> None:
        """Check repeatedly that each ongoing call has its line."""
        while not self.over.is_set():
            before = _going_on(await self.site.ledger())
            held = await self._held()
            after = _going_on(await self.site.ledger())
            self.story.looks += 1
            # A call seen both before and after was in progress meanwhile.
            for sid in before.keys() & after.keys():
                ref, number = before[sid]
                self.story.seen_live += 1
                if (ref, number) not in held:
                    where = f"{ref} is called from {number}, and has no line there"
                    self.story.found.append(Violation("freed under a live call", where))
            await asyncio.sleep(0.2)

    async def _held(self) -> set[tuple[str, str]]:
        page = await self.store.read(GatesQuery(names=(DEFAULT_POOL,)))
        return {
            (f"{one.job}:{one.run}", member.name.removeprefix(f"{DEFAULT_POOL}/"))
            for gate in page.rows
            for member in gate.members
            for one in member.holders
        }

    async def _look_once_more(self) -> None:
        found = self.story.found
        audit = await self.store.read(AuditQuery())
        found += [Violation("audit", f"{one.where}: {one.what}") for one in audit.differences]
        page = await self.store.read(GatesQuery(names=(DEFAULT_POOL,)))
        for gate in page.rows:
            for one in (gate, *gate.members):
                if one.used or one.holder_count:
                    found.append(Violation("line not freed", f"{one.name}: {one.used} used"))
        stored: set[str] = set()
        cursor: str | None = None
        while True:
            jobs = await self.store.read(JobsQuery(kind="lead", cursor=cursor, limit=1_000))
            stored |= {one.id for one in jobs.rows}
            cursor = jobs.cursor
            if cursor is None:
                break
        found += [Violation("lost", one) for one in self.story.sent if one not in stored]
        found += [Violation("from nowhere", one) for one in stored - set(self.story.sent)]


async def _all_or_first_error(main: asyncio.Task[Any], beside: list[asyncio.Task[None]]) -> None:
    """Wait for one task, and raise the error of any other task that fails meanwhile.

    Raises:
        BaseException: the other task's error.
    """
    waiting = {main, *(one for one in beside if not one.done())}
    while not main.done():
        done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            one.result()


def _going_on(ledger: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {
        one["sid"]: (one["ref"], one["from"]) for one in ledger["calls"] if one["status"] in LIVE
    }


def drawn(seed: int, kills: int) -> dict[str, list[str]]:
    """Return the points for the kills: each equally often, in random order."""
    draw = random.Random(f"points {seed}")
    order: list[tuple[str, str]] = []
    while len(order) < kills:
        order += draw.sample(POINTS, len(POINTS))
    left: dict[str, list[str]] = {"worker": [], "server": []}
    for role, point in order[:kills]:
        left[role].append(point)
    return left


def call_and_kill(
    folder: Path,
    url: str,
    seed: int,
    kills: int,
    say: Callable[[str], None],
    plant: str = "",
) -> tuple[list[str], list[Violation]]:
    """Call leads while processes are killed this many times.

    Args:
        folder: empty; the evidence is stored there.
        url: URL of the store.
        seed: seed of all random choices.
        kills: kills of workers and servers together.
        say: prints a line.
        plant: a fault to plant.

    Returns:
        Lines to print, and violations.
    """
    torture = asyncio.run(_run(folder, url, seed, kills, say, plant))
    story = torture.story
    (folder / "ledger.json").write_text(json.dumps(story.ledger, indent=1))
    (folder / "leads.json").write_text(json.dumps(story.leads, indent=1))
    story.witnessed = reported_in(folder / "witness.jsonl")
    lines, violations = judge(story)
    points = f"{story.kills} kills at {len(torture.killed)} points of {len(POINTS)}"
    return [points, *lines], violations


async def _run(
    folder: Path, url: str, seed: int, kills: int, say: Callable[[str], None], plant: str
) -> _Torture:
    site = await CallsSite.begin(folder, url, seed, plant)
    store = open_store(url)
    try:
        torture = _Torture(site=site, store=store, seed=seed, left=drawn(seed, kills), say=say)
        torture.story.wanted = kills
        await torture.run()
        return torture
    finally:
        await store.close()
        await site.end()
