"""A day of the campaign on any store, in virtual time, with the real engine.

The bench controls the store's clock. It stands still while the store works, and jumps to the next
event when nothing more can be done, so a day takes only as long as the store's operations.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import headway as hw
from bench.campaign.allowed import Allowed
from bench.campaign.plan import (
    CAP,
    CAPPED,
    CHANNELS,
    EMPTY_POOL,
    HOUR,
    LANE,
    MINUTE,
    NUMBERS,
    OFFSETS,
    OPENS,
    OWN_POOL,
    PAUSED,
    POOL,
    SECOND,
    START,
    Campaign,
    Lead,
    dial_gates,
    numbers,
    pool_of,
)
from bench.campaign.reasons import Reasons
from headway.contract.claims import Claimed
from headway.contract.definitions import (
    CloseGate,
    DeclareGate,
    DeclareLane,
    DefineRequest,
    Item,
    LaneSpec,
    OpenGate,
    ResetGate,
    SetGate,
)
from headway.contract.outcomes import HandedOver, NextStage, Outcome
from headway.contract.signals import Decided, Signal
from headway.contract.store import Store
from headway.contract.views import AuditQuery, StatsQuery
from headway.testing.clock import FakeClock
from headway.testing.conformance.worker import PlayedWorker

HANDLERS = 400
BEAT = 10 * SECOND
SWEEP = MINUTE
FULL = NUMBERS * CHANNELS
ENOUGH = 50_000
"""Number of leads from which every reason occurs."""


@dataclass(slots=True)
class Seen:
    """The results of a day.

    Attributes:
        points: (ms, in use, allowed) whenever either changed.
        used_ms: Channels in use, integrated over time.
        allowed_ms: Channels that could have been in use, integrated over time.
        starts: Number of calls by reseller.
        most: Maximum number of channels in use at once.
        whys: A sentence of `why` for each reason.
        asked: How often `why` was queried for each reason.
        faults: Violations of the rules.
    """

    points: list[tuple[int, int, int]] = field(default_factory=list)
    used_ms: int = 0
    allowed_ms: int = 0
    starts: Counter[str] = field(default_factory=Counter)
    most: int = 0
    whys: dict[str, str] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    calls: int = 0
    ended_at: int = 0
    wall_s: float = 0.0

    @property
    def use(self) -> float:
        """The share of the allowed channels that were in use."""
        return self.used_ms / self.allowed_ms if self.allowed_ms else 0.0


class Day:
    """Plays a campaign."""

    def __init__(
        self, store: Store, clock: FakeClock, campaign: Campaign, report: Callable[[str], None]
    ) -> None:
        self._store, self._clock, self._plan, self._report = store, clock, campaign, report
        self._worker = PlayedWorker(store, "campaign")
        self._after: dict[str, int] = {}
        self._events: list[tuple[int, int, str, str]] = []
        self._n = 0
        self._running: dict[str, int] = {}
        self._unchecked: dict[str, Lead] = {}
        self._ready: dict[str, Lead] = {}
        self._on: Counter[str] = Counter()
        self._dialled: set[str] = set()
        self._number_of: dict[str, str] = {}
        self._last = (START, 0, 0)
        self.allowed = Allowed()
        self.reasons = Reasons(store, self.allowed)
        self.seen = Seen()

    async def play(self) -> Seen:
        """Play the campaign to its end."""
        began = time.monotonic()
        app = hw.App(store=self._store)
        self._plan.declare(app)
        await app.declare()
        own = [dial_gates(name)[0] for name in (OWN_POOL, EMPTY_POOL)]
        fair = DeclareLane(spec=LaneSpec(name=LANE, fair="tenant"))
        await self._define(fair, *(DeclareGate(spec=one) for one in own))
        jobs = self._plan.jobs()
        self._unchecked = dict(self._plan.leads)
        for first in range(0, len(jobs), 1_000):
            await self._store.enqueue(jobs[first : first + 1_000])
        self._report(f"{len(jobs)} leads are in the store after {time.monotonic() - began:.0f} s")
        self._schedule()
        while True:
            next_at = await self._claim_all()
            self._count()
            if self.seen.calls >= len(jobs) and not self.allowed.in_use:
                break
            await self._go_on(next_at)
        await self._close(len(jobs))
        self.seen.wall_s = time.monotonic() - began
        return self.seen

    # --------------------------------------------------------------------------------- events

    def _schedule(self) -> None:
        for minute, what, whom in (
            *((n, "why", "") for n in (2, 10, 21, 40, 50.5, 75)),
            (0, "cap", CAPPED),
            (12, "shrink", numbers()[0]),
            (17, "grow", numbers()[0]),
            (20, "pause", PAUSED),
            (25, "enable", numbers()[-2]),
            (28, "add", numbers()[-1]),
            (35, "uncap", CAPPED),
            (50, "halt", f"lane:{LANE}"),
            (51, "go on", f"lane:{LANE}"),
            (60, "resume", PAUSED),
        ):
            self._push(START + int(minute * MINUTE), what, whom)
        self._push(START + BEAT, "beat", "")
        self._push(START + SWEEP, "sweep", "")
        for tz in OFFSETS:
            self._push(_opens_at(tz), "hours", tz)

    def _push(self, at: int, what: str, whom: str) -> None:
        self._n += 1
        heapq.heappush(self._events, (at, self._n, what, whom))

    async def _go_on(self, next_at: int | None) -> None:
        """Advance to the time of the next event, and handle all events of that time."""
        now = self._clock()
        at = self._events[0][0]
        if next_at is not None:
            at = min(at, max(next_at, now + 1))
        if at > now:
            self._spend(at - now)
            self._clock.jump_to(at)
        checked: list[Outcome] = []
        while self._events and self._events[0][0] <= at:
            _, _, what, whom = heapq.heappop(self._events)
            if what == "checked":
                checked.append(self._passed(whom))
            else:
                await self._happens(what, whom, at)
        if checked:
            await self._worker.settle(*checked)

    async def _happens(self, what: str, whom: str, at: int) -> None:
        match what:
            case "ended":
                lead = self._plan.leads[whom.partition(":")[0]]
                self._end(lead)
                await self._store.signal(Signal(key=whom, event="end", decided=Decided.SUCCEEDED))
            case "beat":
                await self._worker.beat(*self._running.items())
                self._push(at + BEAT, "beat", "")
            case "sweep":
                await self._store.sweep(1_000)
                self._push(at + SWEEP, "sweep", "")
            case "why":
                await self.reasons.ask(self._unchecked.values(), self._ready.values(), at)
            case "hours":
                pass
            case _:
                await self._operate(what, whom)
        self.allowed.pass_time(at)

    async def _operate(self, what: str, whom: str) -> None:
        """Perform an operator's action."""
        match what:
            case "pause" | "resume":
                paused = what == "pause"
                self.allowed.pause(whom, paused=paused)
                gate = f"tenant:{whom}"
                await self._define(CloseGate(name=gate) if paused else OpenGate(name=gate))
            case "halt" | "go on":
                self.allowed.lane_is_paused = what == "halt"
                await self._define(CloseGate(name=whom) if what == "halt" else OpenGate(name=whom))
            case "cap":
                self.allowed.cap(whom, CAP)
                await self._define(SetGate(name=f"tenant:{whom}", capacity=CAP))
            case "uncap":
                self.allowed.cap(whom, None)
                await self._define(ResetGate(name=f"tenant:{whom}"))
            case "shrink" | "grow":
                capacity = 2 if what == "shrink" else CHANNELS
                self.allowed.resize(POOL, (NUMBERS - 3) * CHANNELS + capacity)
                await self._define(SetGate(name=f"{POOL}/{whom}", capacity=capacity))
            case "enable":
                self.allowed.resize(OWN_POOL, CHANNELS)
                await self._define(SetGate(name=f"{OWN_POOL}/{whom}", capacity=CHANNELS))
            case "add":
                self.allowed.resize(EMPTY_POOL, CHANNELS)
                await self._define(SetGate(name=EMPTY_POOL, members=((whom, CHANNELS),)))
            case _:
                raise AssertionError(what)

    def _passed(self, whom: str) -> Outcome:
        job, _, run = whom.rpartition(":")
        lead = self._plan.leads[job]
        self._running.pop(job, None)
        self._ready[job] = lead
        self.allowed.check_ends(lead)
        return NextStage(job, int(run), stage="dial", gates=self._plan.dial_gates(lead))

    # --------------------------------------------------------------------------------- claims

    async def _claim_all(self) -> int | None:
        """Claim until nothing can start now; return when to claim again."""
        while True:
            free = HANDLERS - len(self._running)
            reply = await self._worker.ask(free, LANE, after=self._after)
            self._after = dict(reply.after)
            dials = [one for one in reply.jobs if one.stage == "dial"]
            for one in reply.jobs:
                if one.stage == "check":
                    self._running[one.id] = one.run
                    lead = self._unchecked.pop(one.id)
                    if reply.now < lead.due_at:
                        self.seen.faults.append(f"{one.id} was checked before it was due")
                    self.allowed.check_begins(lead)
                    self._push(reply.now + lead.check_ms, "checked", f"{one.id}:{one.run}")
            if dials:
                await self._dial(dials, reply.now)
            if not reply.again and len(reply.jobs) < free:
                return reply.next_at

    async def _dial(self, claimed: list[Claimed], now: int) -> None:
        outcomes = [
            HandedOver(one.id, one.run, key=f"{one.id}:{one.run}", timeout_ms=30 * MINUTE)
            for one in claimed
        ]
        await self._worker.settle(*outcomes)
        for one in claimed:
            lead = self._plan.leads[one.id]
            self._check(one, lead, now)
            self.allowed.dialled(lead, now)
            number = one.members[pool_of(lead.reseller)]
            self._on[number] += 1
            self._dialled.add(one.id)
            self._number_of[one.id] = number
            self._ready.pop(one.id, None)
            self.seen.starts[lead.reseller] += 1
            self._push(now + lead.talk_ms, "ended", f"{one.id}:{one.run}")
        self.seen.most = max(self.seen.most, self.allowed.in_use)

    def _check(self, one: Claimed, lead: Lead, now: int) -> None:
        faults = self.seen.faults
        number = one.members[pool_of(lead.reseller)]
        self.allowed.pass_time(now)
        if one.id in self._dialled:
            faults.append(f"{one.id} was dialled twice")
        if not self.allowed.is_open(lead.tz):
            faults.append(f"{one.id} was dialled at {now}, when {lead.tz} was closed")
        if self.allowed.rate_free(lead.phone, now) < 1:
            faults.append(f"{lead.phone} was called more than it may be at {now}")
        if self.allowed.is_paused(lead.reseller):
            faults.append(f"{one.id} of {lead.reseller} was dialled while that was paused")
        if not self.allowed.room(lead.reseller):
            faults.append(f"{one.id} of {lead.reseller} was dialled above its cap")
        if self.allowed.lane_is_paused:
            faults.append(f"{one.id} was dialled while its lane was paused")
        if self._on[number] >= CHANNELS:
            faults.append(f"{number} had {self._on[number]} calls when one more began")

    def _end(self, lead: Lead) -> None:
        self._on[self._number_of.pop(lead.id)] -= 1
        self.allowed.ended(lead)
        self.seen.calls += 1
        if self.seen.calls % 10_000 == 0:
            minutes = (self._clock() - START) / MINUTE
            self._report(f"{self.seen.calls} calls, {minutes:.0f} minutes of the day")

    # -------------------------------------------------------------------------------- results

    def _count(self) -> None:
        now = self._clock()
        self.allowed.pass_time(now)
        used = self.allowed.in_use
        point = (now, used, used + self.allowed.startable(now))
        if not self.seen.points or self.seen.points[-1][1:] != point[1:]:
            self.seen.points.append(point)
        self._last = point

    def _spend(self, ms: int) -> None:
        _, used, allowed = self._last
        self.seen.used_ms += used * ms
        self.seen.allowed_ms += allowed * ms

    async def _define(self, *items: Item) -> None:
        await self._store.define(DefineRequest(items=items, author="campaign", reason="a bench"))

    async def _close(self, n: int) -> None:
        self.seen.ended_at = self._clock()
        self.seen.whys, self.seen.asked = self.reasons.sentences, self.reasons.asked
        self.seen.faults += self.reasons.faults
        if n >= ENOUGH:
            self.seen.faults += [f"nobody was asked why: {one}" for one in self.reasons.missing]
        stats = await self._store.read(StatsQuery())
        if stats.counts.get("succeeded") != n:
            self.seen.faults.append(f"{n} leads were sent, {stats.counts} are there")
        cursor: str | None = None
        while True:
            audit = await self._store.read(AuditQuery(cursor=cursor))
            self.seen.faults += [str(one) for one in audit.differences]
            cursor = audit.cursor
            if cursor is None:
                break
        if self.seen.use < 0.99:
            self.seen.faults.append(f"only {self.seen.use:.4f} of what the gates allow was used")
        if self.seen.most > FULL:
            self.seen.faults.append(f"{self.seen.most} channels were in use")


def _opens_at(tz: str) -> int:
    midnight = START - (START + OFFSETS[tz]) % (24 * HOUR)
    return midnight + OPENS
