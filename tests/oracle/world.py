"""A brute-force model of gates and jobs, to compare claims with; it has no flows.

It scans all jobs for each claim, keeps no caches, and shares no code with the engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

FOREVER = 10**18
RESERVED = 60_000


@dataclass
class Gate:
    """A declared gate; a `keyed` one has many instances under one name."""

    template: str
    kind: str
    keyed: bool = False
    capacity: int = 0
    per: int = 0
    members: dict[str, int] = field(default_factory=dict)
    strategy: str = "least_used"


@dataclass
class Use:
    gate: Gate
    name: str
    amount: int = 1
    hold: str = "settled"


@dataclass
class Permit:
    gate: str
    member: str
    amount: int
    hold: str


@dataclass
class Reserved:
    job: str
    order: tuple[int, int, int]
    amount: int
    until: int


@dataclass
class Job:
    id: str
    lane: str
    tenant: str
    kind: str
    priority: int
    due: int
    seq: int
    uses: list[Use]
    state: str = "queued"
    run: int = 0
    worker: str = ""
    permits: list[Permit] = field(default_factory=list)

    @property
    def order(self) -> tuple[int, int, int]:
        return (self.priority, self.due, self.seq)

    @property
    def flow(self) -> tuple[object, ...]:
        shared = tuple((use.name, use.amount, use.hold) for use in self.uses if not use.gate.keyed)
        return (self.lane, self.tenant, self.kind, shared)


class World:
    def __init__(self, now: int) -> None:
        self.now = now
        self.jobs: dict[str, Job] = {}
        self.live: dict[str, Job] = {}
        """Jobs that are running or awaiting: only they hold permits."""
        self.starts: dict[str, list[tuple[int, int]]] = {}
        self.closed: dict[str, int] = {}
        self.caps: dict[str, int] = {}
        self.last: dict[str, str] = {}
        self.reserved: dict[str, Reserved] = {}

    # Gates

    def is_closed(self, name: str) -> bool:
        return self.closed.get(name, 0) > self.now

    def out(self, gate: str, member: str = "") -> int:
        return sum(
            permit.amount
            for job in self.live.values()
            for permit in job.permits
            if (permit.gate, permit.member) == (gate, member)
        )

    def in_window(self, use: Use) -> int:
        since = self.now - use.gate.per
        return sum(n for at, n in self.starts.get(use.name, ()) if at > since)

    def kept_from(self, use: Use, job: Job | None) -> int:
        """Return how much a gate withholds from a job, for a job before it."""
        one = self.standing(use)
        return one.amount if one and job and one.order < job.order else 0

    def standing(self, use: Use) -> Reserved | None:
        """Return the current reservation of a gate."""
        one = self.reserved.get(use.name)
        if one is None or one.until <= self.now or one.amount > self.most(use):
            return None
        return one

    def members(self, use: Use, job: Job | None = None) -> list[tuple[str, int, int, int]]:
        """Return the members of a pool: name, capacity, permits out, and permits free for a job."""
        found = self.all_members(use)
        kept = self.kept_from(use, job)
        if kept:
            # The member that is closest to having enough free permits is reserved.
            free, place = max(
                (free, -place)
                for place, (_, capacity, _, free) in enumerate(found)
                if capacity >= kept
            )
            name, capacity, out, _ = found[-place]
            found[-place] = (name, capacity, out, free - kept)
        return found

    def all_members(self, use: Use) -> list[tuple[str, int, int, int]]:
        found: list[tuple[str, int, int, int]] = []
        for member, declared in use.gate.members.items():
            capacity = self.caps.get(f"{use.name}/{member}", declared)
            out = self.out(use.name, member)
            free = 0 if self.is_closed(f"{use.name}/{member}") else max(0, capacity - out)
            found.append((member, capacity, out, free))
        return found

    def room(self, use: Use, job: Job | None = None) -> int:
        """Return the largest amount that a job (default: any job) could take there now."""
        if self.is_closed(use.name):
            return 0
        if use.gate.kind == "pool":
            return max((free for *_, free in self.members(use, job)), default=0)
        capacity = self.caps.get(use.name, use.gate.capacity) - self.kept_from(use, job)
        if use.gate.kind == "slots":
            return capacity - self.out(use.name)
        return capacity - self.in_window(use)

    def most(self, use: Use) -> int:
        """Return the largest amount that could ever be taken there."""
        if use.gate.kind == "pool":
            return max((capacity for _, capacity, _, _ in self.all_members(use)), default=0)
        return self.caps.get(use.name, use.gate.capacity)

    def implicit_fits(self, job: Job) -> bool:
        for name, matches in self.implicit(job):
            if self.is_closed(name):
                return False
            cap = self.caps.get(name)
            if cap is None:
                continue
            states = {"running"} if name.startswith("lane:") else {"running", "awaiting"}
            used = sum(matches(one) and one.state in states for one in self.live.values())
            if used >= cap:
                return False
        return True

    @staticmethod
    def implicit(job: Job):
        return [
            ("all", lambda _: True),
            (f"lane:{job.lane}", lambda one: one.lane == job.lane),
            (f"tenant:{job.tenant}", lambda one: one.tenant == job.tenant),
            (f"kind:{job.kind}", lambda one: one.kind == job.kind),
        ]

    # Claims

    def fits(self, job: Job) -> bool:
        return self.implicit_fits(job) and all(
            self.room(use, job) >= use.amount for use in job.uses
        )

    def reserve(self, job: Job) -> None:
        """Reserve shared gates for a job that does not fit, if it only lacks permits."""
        if not self.implicit_fits(job):
            return
        short = [use for use in job.uses if not use.gate.keyed and self.room(use, job) < use.amount]
        if not all(self.is_short(use) for use in short):
            return
        for use in short:
            one = self.standing(use)
            renewed = one is not None and one.job == job.id
            late = one is None or one.until <= self.now + RESERVED // 2
            if one is None or job.order < one.order or (renewed and late):
                until = self.now + RESERVED
                self.reserved[use.name] = Reserved(job.id, job.order, use.amount, until)

    def is_short(self, use: Use) -> bool:
        if self.is_closed(use.name) or not 1 < use.amount <= self.most(use):
            return False
        return self.room(use) < use.amount

    def unreserve(self, job: Job) -> None:
        gone = [name for name, one in self.reserved.items() if one.job == job.id]
        for name in gone:
            del self.reserved[name]

    def due_jobs(self, lane: str) -> list[Job]:
        jobs = self.jobs.values()
        waiting = [
            job
            for job in jobs
            if job.lane == lane and job.state == "queued" and job.due <= self.now
        ]
        return sorted(waiting, key=lambda job: job.order)

    def expected(
        self, lane: str, n: int, parked: frozenset[str] = frozenset()
    ) -> list[tuple[str, dict[str, str]]]:
        """Start what a claim must start; return it in order, with the member of each pool.

        Args:
            lane: lane of the claim.
            n: maximum number of jobs.
            parked: jobs that stay parked throughout, and so reserve no shared gate.
        """
        started: list[tuple[str, dict[str, str]]] = []
        for job in self.due_jobs(lane):
            if len(started) == n:
                break
            if self.fits(job):
                started.append((job.id, self.start(job)))
            elif job.id not in parked:
                self.reserve(job)
        return started

    def start(self, job: Job, chosen: Mapping[str, str] | None = None) -> dict[str, str]:
        """Start a job that fits.

        Args:
            job: the job.
            chosen: the members to take, if they are already decided.

        Returns:
            The member taken of each pool.
        """
        members: dict[str, str] = {}
        for use in job.uses:
            member = ""
            if use.gate.kind == "rate":
                self.starts.setdefault(use.name, []).append((self.now, use.amount))
                continue
            if use.gate.kind == "pool":
                member = members[use.name] = (
                    self.choose(use, job) if chosen is None else chosen[use.name]
                )
                self.last[use.name] = member
            job.permits.append(Permit(use.name, member, use.amount, use.hold))
        self.unreserve(job)
        job.state = "running"
        self.live[job.id] = job
        job.run += 1
        return members

    def choose(self, use: Use, job: Job) -> str:
        able = [one for one in self.members(use, job) if one[3] >= use.amount]
        if use.gate.strategy == "first_free":
            return able[0][0]
        if use.gate.strategy == "least_used":
            return min(able, key=lambda one: one[2] / one[1])[0]
        names = list(use.gate.members)
        last = self.last.get(use.name)
        if last in names:
            turn = names.index(last) + 1
            names = names[turn:] + names[:turn]
        return min(able, key=lambda one: names.index(one[0]))[0]

    def opens_next(self, lane: str) -> int | None:
        """Return the first time at which a claim would start a job if nothing else happened."""
        moments = {job.due for job in self.jobs.values() if job.lane == lane}
        moments.update(self.closed.values())
        moments.update(one.until for one in self.reserved.values())
        for job in self.jobs.values():
            if job.lane == lane and job.state == "queued":
                for use in job.uses:
                    moments.update(at + use.gate.per for at, _ in self.starts.get(use.name, ()))
        now = self.now
        try:
            for moment in sorted(at for at in moments if now < at < FOREVER):
                self.now = moment
                if any(self.fits(job) for job in self.due_jobs(lane)):
                    return moment
        finally:
            self.now = now
        return None

    # Effects on jobs

    def give_back(self, job: Job, *, gate: str | None = None, hold: str | None = None) -> None:
        job.permits = [
            permit
            for permit in job.permits
            if (gate is not None and permit.gate != gate)
            or (hold is not None and permit.hold != hold)
        ]

    def requeue(self, job: Job, due: int) -> None:
        self.give_back(job)
        job.state, job.due = "queued", due
        del self.live[job.id]

    def finish(self, job: Job) -> None:
        self.give_back(job)
        job.state = "final"
        self.live.pop(job.id, None)
