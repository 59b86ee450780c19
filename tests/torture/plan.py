"""The rigs' workload: gates, kinds, and jobs with their requirements, drawn from a seed.

A job's requirements are drawn here and reported to the witness before the engine gets them; the
checker never asks the engine how it interpreted them.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import headway as hw
from headway.core.job import NewJob

WORK, LIGHT, VARIED = "work", "light", "varied"
MEMBERS = {"one": 2, "two": 3, "three": 1}
BUDGET = 6
BUSY = 40
PACE, PACE_MS = 250, 500
GUEST, GUEST_MS = 3, 400
START_WITHIN_MS = 150
PLACES, GUESTS = 60, 200
DEADLINE_MS = 3_000
DESK = 3
CANDIDATES = tuple(f"tech{number}" for number in range(12))
OFFER_MS = 2_000
TICK, TICK_MS = "tick", 1_000
MINUTES = 60
"""For this many minutes the hours gate is open in every other one."""
KEYED = 0.3
"""The share of jobs with a key."""
MINUTE_MS = 60_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Gates = list[tuple[str, int, str]]
Body = Callable[[hw.Job], Awaitable[None]]

GATES: dict[str, dict[str, Any]] = {
    "lock": {"kind": "slots", "capacity": 1},
    "phone": {"kind": "slots", "capacity": 1},
    "budget": {"kind": "slots", "capacity": BUDGET},
    "lane": {"kind": "slots", "capacity": BUSY},
    "lines": {"kind": "pool", "members": MEMBERS},
    "pace": {"kind": "rate", "limit": PACE, "per_ms": PACE_MS},
    "guest": {"kind": "rate", "limit": GUEST, "per_ms": GUEST_MS},
    "desk": {"kind": "slots", "capacity": DESK},
    "tech": {"kind": "slots", "capacity": 1},
}
LANE: Gates = [(f"lane:{WORK}", 1, "lane")]


@dataclass(frozen=True, slots=True)
class Asked:
    """A job, and the report to the witness about it."""

    job: NewJob
    gates: Gates
    due_at: int | None
    hands_over: bool
    sort: str = ""
    """The checker's category of its kind: "staged", "offered" or "timed"; otherwise empty."""

    @property
    def fact(self) -> list[object]:
        return [self.job.id, self.gates, self.due_at, self.hands_over, self.sort]


def declare(url: str, work: Body, call: Body, store: hw.Store | None = None) -> hw.App:
    """Declare the app that every process of a rig has.

    Args:
        url: URL of the store.
        work: the action of handlers.
        call: the action of handlers that hand over.
        store: an open store instead of the URL's.
    """
    app = hw.App(url, store=store, name="torture")
    app.lane(WORK, concurrency=BUSY)
    lock = hw.Slots("lock:{place}", 1)
    phone = hw.Slots("phone:{guest}", 1)
    budget = hw.Slots("budget", BUDGET)
    lines = hw.Pool("lines", MEMBERS)
    pace = hw.Rate("pace", PACE, per=f"{PACE_MS}ms")
    guest = hw.Rate("guest:{guest}", GUEST, per=f"{GUEST_MS}ms")
    again = hw.Backoff(attempts=200, base="20ms", cap="300ms")
    within = f"{START_WITHIN_MS}ms"

    @app.job(lane=LIGHT, retry=again)
    async def light(job: hw.Job) -> None:
        await work(job)

    @app.job(lane=WORK, retry=again, start_within=within)
    async def plain(job: hw.Job) -> None:
        await work(job)

    @app.job(lane=WORK, retry=again, start_within=within, gates=[lock])
    async def locked(job: hw.Job, place: int) -> None:
        await work(job)

    @app.job(lane=WORK, retry=again, start_within=within, gates=[budget.take(1)])
    async def small(job: hw.Job) -> None:
        await work(job)

    @app.job(lane=WORK, retry=again, start_within=within, gates=[budget.take(4)])
    async def large(job: hw.Job) -> None:
        await work(job)

    @app.job(lane=WORK, retry=again, start_within=within, gates=[lines])
    async def pooled(job: hw.Job) -> None:
        await work(job)

    @app.job(lane=WORK, retry=again, start_within=within, gates=[guest, pace])
    async def paced(job: hw.Job, guest: int) -> None:
        await work(job)

    @app.job(
        lane=WORK, retry=again, start_within=within, gates=[lock, guest, lines, budget.take(2)]
    )
    async def everything(job: hw.Job, place: int, guest: int) -> None:
        await work(job)

    @app.job(lane=WORK, retry=again, start_within=within, gates=[phone])
    async def calls(job: hw.Job, guest: int) -> None:
        await call(job)

    return app


def declare_varied(app: hw.App, work: Body, offer: Body, begin_at: int) -> None:
    """Add stages, a cascade, hours and a timetable to the app.

    Args:
        app: the app from `declare`.
        work: the action of handlers.
        offer: the action of the cascade's handler.
        begin_at: start of the history, ms UTC.
    """
    app.lane(VARIED)
    desk = hw.Slots("desk", DESK)
    tech = hw.Slots("tech:{candidate}", 1)
    spans = ",".join(
        f"{_clock(opening)}-{_clock(closing)}" for opening, closing in open_spans(begin_at)
    )
    hours = hw.Hours("hours", spans, tz="UTC")
    again = hw.Backoff(attempts=200, base="20ms", cap="300ms")

    @app.job(lane=VARIED, retry=again, stages={"check": [], "dial": [desk]})
    async def staged(job: hw.Job) -> object:
        await work(job)
        return hw.Next("dial")

    @staged.stage("dial")
    async def dial(job: hw.Job) -> None:
        await work(job)

    @app.job(lane=VARIED, retry=again, cascade=True, gates=[tech])
    async def offered(job: hw.Job) -> None:
        await offer(job)

    @app.job(lane=VARIED, retry=again, gates=[hours])
    async def timed(job: hw.Job) -> None:
        await work(job)

    @app.job(lane=VARIED, retry=again)
    async def tick(job: hw.Job) -> None:
        await work(job)

    app.timetable(TICK, tick, schedule=f"every {TICK_MS}ms", overlap="all", misfire="all")


def open_spans(begin_at: int) -> list[tuple[int, int]]:
    """Return when the hours gate is open: (from, to), ms UTC."""
    first = begin_at // MINUTE_MS
    return [
        (minute * MINUTE_MS, (minute + 1) * MINUTE_MS)
        for minute in range(first, first + MINUTES, 2)
    ]


def _clock(at: int) -> str:
    return f"{EPOCH + timedelta(milliseconds=at):%H:%M}"


class Jobs:
    """Draws jobs.

    Args:
        app: the app from `declare`.
        seed: the same seed draws the same jobs, except for their ids.
        calls: the share of jobs that hand over.
        later: the share of jobs that are due later.
        varied: the share of jobs with stages, candidates or hours.
    """

    def __init__(
        self, app: hw.App, seed: object, *, calls: float, later: float, varied: float = 0.0
    ) -> None:
        self._app = app
        self._random = random.Random(f"jobs {seed}")
        self._calls = calls
        self._later = later
        self._varied = varied

    def draw(self, now_ms: int) -> Asked:
        """Draw one job.

        Args:
            now_ms: the caller's time, ms UTC; some jobs are due slightly later.
        """
        chance = self._random
        due_at = now_ms + chance.randrange(2_000) if chance.random() < self._later else None
        place, guest = chance.randrange(PLACES), chance.randrange(GUESTS)
        if self._varied and chance.random() < self._varied:
            return self._draw_varied(due_at)
        lock = (f"lock:{place}", 1, "lock")
        paced = (f"guest:{guest}", 1, "guest")
        lines = ("lines", 1, "lines")
        if chance.random() < self._calls:
            gates: Gates = [(f"phone:{guest}", 1, "phone")]
            return self._asked("calls", gates, due_at, hands_over=True, guest=guest)
        kind = chance.choice(["plain", "locked", "small", "large", "pooled", "paced", "everything"])
        drawn: dict[str, tuple[Gates, dict[str, int]]] = {
            "plain": ([], {}),
            "locked": ([lock], {"place": place}),
            "small": ([("budget", 1, "budget")], {}),
            "large": ([("budget", 4, "budget")], {}),
            "pooled": ([lines], {}),
            "paced": ([paced, ("pace", 1, "pace")], {"guest": guest}),
            "everything": (
                [lock, paced, lines, ("budget", 2, "budget")],
                {"place": place, "guest": guest},
            ),
        }
        gates, args = drawn[kind]
        # A job that hands over releases the lane's slot at its hand-over; the others at their end.
        return self._asked(kind, [*gates, *LANE], due_at, hands_over=False, **args)

    def _draw_varied(self, due_at: int | None) -> Asked:
        kind = self._random.choice(["staged", "offered", "timed"])
        gates: Gates = [("desk", 1, "desk")] if kind == "staged" else []
        args: dict[str, object] = {}
        if kind == "offered":
            args["candidates"] = self._random.sample(CANDIDATES, self._random.randint(1, 4))
        asked = self._asked(kind, gates, due_at, hands_over=False, **args)
        return replace(asked, sort=kind)

    def _asked(
        self, kind: str, gates: Gates, due_at: int | None, *, hands_over: bool, **args: object
    ) -> Asked:
        due = None if due_at is None else EPOCH + timedelta(milliseconds=due_at)
        key = f"order {uuid4().hex}" if self._random.random() < KEYED else None
        job = self._app.kind(kind).make(due=due, key=key, **args)
        return Asked(job, gates, due_at, hands_over)

    def light(self) -> Asked:
        """Return one job of the light lane."""
        return Asked(self._app.kind("light").make(), [], None, hands_over=False)
