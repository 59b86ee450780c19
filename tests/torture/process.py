"""A process of a rig: it creates jobs, or works, or both, until it is stopped or killed."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import headway as hw
from headway.core.job import MAX_BATCH, NewJob
from headway.runtime import event_loop
from headway.runtime.timing import PASSING
from headway.stores import open_store
from tests.torture import file_flag
from tests.torture.plan import (
    DEADLINE_MS,
    LIGHT,
    OFFER_MS,
    VARIED,
    Asked,
    Jobs,
    declare,
    declare_varied,
)
from tests.torture.random_kills import RandomKills
from tests.torture.recorded_store import RecordedStore
from tests.torture.witness import Witness

PAUSE_S = 0.05
LONG_S = 2.0
AWAY_S = 60.0
"""For this long a starting process tries to reach the store."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Role:
    """The tasks of a process.

    Attributes:
        name: used for the seed and in messages.
        folder: folder of the store and the witness's file.
        seed: seed of the whole run.
        lane: the lane that it works for; empty for none.
        jobs: number of jobs to create; 0 for none, negative for as many as possible until it stops.
        batch: maximum number of jobs in one enqueue.
        pause_s: pause between enqueues.
        calls: the share of jobs that hand over.
        concurrency: maximum number of handlers running at once.
        lease: lease of its worker.
        dwell_s: maximum duration of a handler; every other one takes no time at all.
        long: the share of jobs whose handlers take up to `LONG_S` instead.
        fails: the share of runs that fail.
        chance: probability of killing itself at each point.
        plant: a fault to plant, to check that the checker finds it.
        varied: the share of jobs with stages, candidates or hours.
        begin_at: start of the history, ms UTC; 0 declares none of the varied kinds.
    """

    name: str
    folder: Path
    seed: int
    lane: str = ""
    jobs: int = 0
    batch: int = 1
    pause_s: float = 0.0
    calls: float = 0.0
    concurrency: int = 32
    lease: str = "5s"
    dwell_s: float = 0.01
    long: float = 0.0
    fails: float = 0.0
    chance: float = 0.0
    plant: str = ""
    varied: float = 0.0
    begin_at: int = 0

    @property
    def url(self) -> str:
        return store_url(self.folder)


def store_url(folder: Path) -> str:
    """Return the store's URL, as written by the rig."""
    return (folder / "url").read_text()


def witness_file(folder: Path) -> Path:
    return folder / "witness.jsonl"


def run(role: Role) -> None:
    """Run the process from start to exit, until the flag to stop is up."""
    # Refusals of stale runs are expected here, and are recorded by the witness.
    logging.getLogger("headway").setLevel(logging.CRITICAL)
    event_loop.run(_Process(role).live())


def opened(url: str) -> hw.Store:
    """Open the store; the process may have started while the server was unreachable."""
    for _ in range(int(AWAY_S / PAUSE_S)):
        try:
            return open_store(url)
        except PASSING:
            time.sleep(PAUSE_S)
    return open_store(url)


class _Process:
    def __init__(self, role: Role) -> None:
        self.role = role
        self.witness = witness = Witness(witness_file(role.folder))
        self.kills = RandomKills(witness, f"{role.seed} {role.name}", role.chance)
        self.random = random.Random(f"work {role.seed} {role.name}")
        self.lost: list[str] = []
        self.store = opened(role.url)
        watched = RecordedStore(self.store, witness, self.kills)
        self.app = declare(role.url, self.work, self.call, store=watched)
        if role.begin_at:
            declare_varied(self.app, self.work, self.offer, role.begin_at)

    async def live(self) -> None:
        role = self.role
        tasks: list[asyncio.Task[None]] = []
        worker = None
        if role.lane:
            lanes = (role.lane, VARIED) if role.begin_at else (role.lane,)
            worker = self.app.worker(
                lanes=lanes, concurrency=role.concurrency, lease=role.lease, grace="5s"
            )
            tasks.append(asyncio.create_task(worker.run()))
        if role.jobs:
            tasks.append(asyncio.create_task(self.make()))
        stop = file_flag.stop(role.folder)
        while not stop.up:
            await asyncio.sleep(PAUSE_S)
            for task in tasks:
                if task.done():
                    task.result()  # an error ends the process, so it is noticed
        if worker is not None:
            worker.stop()
        await asyncio.gather(*tasks)
        await self.store.close()
        self.witness.note("left", role=role.name)

    # Creating jobs

    async def make(self) -> None:
        role = self.role
        jobs = Jobs(
            self.app,
            f"{role.seed} {role.name}",
            calls=role.calls,
            later=0.1,
            varied=role.varied,
        )
        left = role.jobs
        enough = file_flag.enough(role.folder)
        while left and not enough.up:
            size = self.random.randint(1, min(role.batch, MAX_BATCH))
            if left > 0:
                size = min(size, left)
                left -= size
            if role.lane == LIGHT:
                await self.enqueue([jobs.light()])
            else:
                await self.enqueue([jobs.draw(time.time_ns() // 1_000_000) for _ in range(size)])
            await asyncio.sleep(role.pause_s)
        file_flag.made(role.folder, role.name).hoist()

    async def enqueue(self, asked: list[Asked]) -> None:
        self.witness.note("asked", jobs=[one.fact for one in asked])
        if self.role.plant == "lose" and not self.lost:
            sent = self.lost = [one.job.id for one in asked]
        else:
            sent = await self.send([one.job for one in asked])
        self.witness.note("acked", jobs=sent)

    async def send(self, jobs: list[NewJob]) -> list[str]:
        """Send jobs until their ids are known; a job with a key gets a new id for each try."""
        tries = {job.key: [job.id] for job in jobs if job.key is not None}
        while True:
            try:
                return [one.id for one in await self.app.send_many_async(jobs)]
            except PASSING:
                await asyncio.sleep(PAUSE_S)
            jobs = [job if job.key is None else job.changed(id=str(uuid4())) for job in jobs]
            for job in jobs:
                if job.key is not None:
                    tries[job.key].append(job.id)
                    self.witness.note("again", key=job.key, jobs=tries[job.key])

    # Running jobs

    async def work(self, job: hw.Job) -> None:
        outcome = "stopped"
        self.begin(job)
        try:
            await self.dwell(job)
            if self.random.random() < self.role.fails:
                outcome = "failed"
                message = "the outside world said no"
                raise RuntimeError(message)
            outcome = "done"
        finally:
            self.end(job, outcome)

    async def call(self, job: hw.Job) -> None:
        outcome = "stopped"
        self.begin(job)
        try:
            if self.role.plant != "call early":
                await job.hand_over(timeout=f"{DEADLINE_MS}ms")
                self.kills.meet("after hand-over")
                self.witness.note("handed", job=job.id, run=job.run)
                await self.dwell(job)
            # From here on the outside world is touched: it must happen once, or never.
            self.witness.note("called", job=job.id, run=job.run)
            self.kills.meet("after call")
            await self.dwell(job)
            outcome = "done"
        finally:
            self.end(job, outcome)

    async def offer(self, job: hw.Job) -> None:
        self.begin(job)
        outcome = "stopped"
        try:
            await job.offer(timeout=f"{OFFER_MS}ms")
            self.kills.meet("after hand-over")
            self.witness.note("offered", job=job.id, run=job.run)
            outcome = "done"
        finally:
            self.end(job, outcome)

    async def dwell(self, job: hw.Job) -> None:
        # Drawn from the job, so that either all or none of its runs take long: only then can a
        # worker that was stopped return while another is still running the job.
        chance = random.Random(job.id)
        if chance.random() < self.role.long:
            await asyncio.sleep((0.5 + chance.random() / 2) * LONG_S)
        elif chance.random() < 0.5:
            await asyncio.sleep(chance.random() * self.role.dwell_s)

    def begin(self, job: hw.Job) -> None:
        members = {} if self.role.plant == "one line" else dict(job.permits)
        if self.role.plant == "one line" and job.permits:
            members = {"lines": "three"}
        self.witness.note(
            "begin",
            job=job.id,
            run=job.run,
            members=members,
            stage=job.stage,
            candidate=job.candidate,
        )
        self.kills.meet("at begin")

    def end(self, job: hw.Job, outcome: str) -> None:
        if self.role.plant == "leave early":
            # Continues to work after it has reported that it was done.
            self.witness.note("begin", job=job.id, run=job.run, members=dict(job.permits))
        self.witness.note("end", job=job.id, run=job.run, outcome=outcome)
        self.kills.meet("at end")
