"""What an app declares to its store: lanes, entries of the timetable, gates."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TypedDict, cast

from headway.contract.definitions import (
    OVERLAPS,
    DeclareEntry,
    DeclareGate,
    DeclareLane,
    DefineRequest,
    EntrySpec,
    Item,
    LaneSpec,
    Overlap,
)
from headway.contract.store import Store
from headway.core.duration import Duration, check_duration
from headway.core.errors import InvalidValue
from headway.core.fairness import MAX_WEIGHT
from headway.core.gates.spec import GateSpec, check_count
from headway.core.instant import Instant, parse_instant
from headway.core.job import NewJob, derived_id
from headway.core.naming import check_flag, check_name, did_you_mean
from headway.core.timetable.fires import MisfirePolicy
from headway.core.timetable.schedule import At, Cron, Every, Schedule, parse_schedule
from headway.runtime.kind import Kind
from headway.runtime.kind_options import refuse_unknown
from headway.runtime.worker.worker_options import read_lease

_log = logging.getLogger("headway.worker")


class LaneOptions(TypedDict, total=False):
    """Options of a lane.

    Attributes:
        concurrency: maximum number of its jobs running at once, over all workers; unlimited by
            default.
        fair: "tenant" shares starts fairly between tenants.
        weights: weights of tenants in a fair lane; 1 for tenants not named.
        target: target for the latency from due to start.
        max_backlog: sends are refused while this many jobs are not final; unlimited by default.
        lease: how long runs stay valid without a heartbeat, 1s to 24h; "30s" by default. A worker
            has one lease for all its jobs: without the option `lease`, the shortest that its lanes
            have set when it starts. So a lane whose jobs need a longer one needs its own workers.
    """

    concurrency: int
    fair: Literal["tenant"]
    weights: Mapping[str, int]
    target: Duration | None
    max_backlog: int
    lease: Duration | None


def read_lane(name: str, options: LaneOptions) -> LaneSpec:
    """Validate the options of a lane.

    Raises:
        InvalidValue: an option is unknown or not valid.
    """
    lane = check_name("lane", name)
    refuse_unknown(options, LaneOptions, f"the lane {lane!r} has an unknown option", "options are")
    fair, weights = options.get("fair"), options.get("weights", {})
    if fair not in (None, "tenant"):
        message = f"fair of the lane {lane!r} is {fair!r:.40}"
        raise InvalidValue(message, hint='use "tenant", or omit it')
    if not isinstance(cast("object", weights), Mapping):
        message = f"weights of the lane {lane!r} are {weights!r:.80}"
        raise InvalidValue(message, hint='pass a mapping by tenant, such as {"acme": 2}')
    if weights and fair is None:
        message = f"the lane {lane!r} has weights, but is not fair"
        raise InvalidValue(message, hint='add fair="tenant"')
    lease, target = options.get("lease"), options.get("target")
    return LaneSpec(
        name=lane,
        concurrency=_count(lane, "concurrency", options.get("concurrency")),
        lease_ms=None if lease is None else read_lease(f"lease of the lane {lane!r}", lease),
        target_ms=None
        if target is None
        else check_duration(f"target of the lane {lane!r}", target),
        fair=fair,
        weights=tuple(
            (
                check_name("tenant", tenant, empty=True),
                check_count(f"the weight of {tenant!r}", n, least=1, most=MAX_WEIGHT),
            )
            for tenant, n in weights.items()
        ),
        max_backlog=_count(lane, "max_backlog", options.get("max_backlog")),
    )


def _count(lane: str, what: str, value: int | None) -> int | None:
    return None if value is None else check_count(f"{what} of the lane {lane!r}", value, least=0)


_EPOCH = datetime.fromtimestamp(0, UTC)


class EntryOptions(TypedDict, total=False):
    """Options of a timetable entry.

    Attributes:
        schedule: "cron: 0 3 * * *", "every 30m" or "at 09:00 mon-fri"; or a Cron, Every or At.
        tz: IANA time zone of a cron expression or time of day given as text; defaults to UTC.
        anchor: first fire of an interval given as text: an aware datetime or ISO 8601.
        misfire: what to do with fires missed in an outage: "skip", "once" (the latest) or "all".
        misfire_cap: maximum number of missed fires that "all" makes up for.
        overlap: what to do when a fire is due while an earlier one is waiting or running: "skip"
            drops it, "one" drops it only if one is waiting, "all" keeps it.
        enabled: whether the entry fires.
        args: the handler's arguments, and options of `Kind.make`, except `due`, `job_id` and `key`:
            each fire has its own time and id, and no key, so the kind must not have one either.
    """

    schedule: str | Schedule
    tz: str
    anchor: Instant | None
    misfire: Literal["skip", "once", "all"]
    misfire_cap: int
    overlap: Overlap
    enabled: bool
    args: Mapping[str, Any]


def read_entry(name: str, kind: Kind, options: EntryOptions) -> EntrySpec:
    """Validate the options of a timetable entry.

    Raises:
        InvalidValue: an option is unknown or not valid, or jobs of the kind have a key.
    """
    entry = check_name("entry", name)
    refuse_unknown(
        options, EntryOptions, f"the entry {entry!r} has an unknown option", "options are"
    )
    given = options.get("args", {})
    if not isinstance(cast("object", given), Mapping):
        message = f"args of the entry {entry!r} are {given!r:.80}"
        raise InvalidValue(message, hint='pass a mapping by name, such as {"scope": "new"}')
    for argument in given:
        check_name(f"argument of the entry {entry!r}", argument)
    for refused in ("due", "job_id", "key"):
        if refused in given:
            message = f"the entry {entry!r} gives its jobs {refused!r}"
            raise InvalidValue(message, hint="omit it: each fire is a separate job")
    # Due at 0, so that its expiry counts from the time of each fire.
    job = kind.make(**given, due=_EPOCH, job_id=derived_id("entry", entry)).changed(due_at=None)
    refuse_key(entry, job)
    return EntrySpec(
        name=entry,
        schedule=_schedule(entry, options),
        job=job,
        misfire=_misfire(entry, options.get("misfire", "once")),
        misfire_cap=check_count("misfire_cap", options.get("misfire_cap", 100), least=1),
        overlap=_overlap(entry, options.get("overlap", "skip")),
        enabled=check_flag(f"enabled of the entry {entry!r}", options.get("enabled", True)),
    )


def refuse_key(entry: str, job: NewJob) -> None:
    """Refuse a job with a key as that of an entry: each fire is a job of its own, without one.

    Raises:
        InvalidValue: it has a key.
    """
    if job.key is not None:
        message = f"the entry {entry[:80]!r} gives its jobs a key"
        raise InvalidValue(message, hint="each fire is a separate job; use a kind without a key")


def _schedule(entry: str, options: EntryOptions) -> Schedule:
    schedule = options.get("schedule")
    if isinstance(schedule, Cron | Every | At):
        for option in ("tz", "anchor"):
            if option in options:
                message = f"the entry {entry!r} has {option!r}, but its schedule is not text"
                raise InvalidValue(message, hint="pass it to the schedule itself")
        return schedule
    if not isinstance(schedule, str):
        message = f"the entry {entry!r} has no schedule"
        if schedule is not None:
            message = f"the schedule of the entry {entry!r} is {schedule!r:.80}"
        raise InvalidValue(message, hint='for example "cron: 0 3 * * *", "every 30m" or "at 09:00"')
    anchor = options.get("anchor")
    read = parse_schedule(
        schedule,
        tz=options.get("tz", "UTC"),
        anchor_at=0 if anchor is None else parse_instant(anchor),
    )
    unused = "tz" if isinstance(read, Every) else "anchor"
    if options.get(unused) is not None:
        message = f"the entry {entry!r} has {unused!r}, which {schedule!r:.80} does not use"
        raise InvalidValue(message, hint='"every" takes `anchor`, "cron" and "at" take `tz`')
    return read


def _misfire(entry: str, word: str) -> MisfirePolicy:
    try:
        return MisfirePolicy(word)
    except ValueError:
        message = f"misfire of the entry {entry!r} is {word!r:.40}"
        raise InvalidValue(message, hint=", ".join(MisfirePolicy)) from None


def _overlap(entry: str, word: str) -> Overlap:
    for known in OVERLAPS:
        if word == known:
            return known
    message = f"overlap of the entry {entry!r} is {word!r:.40}"
    raise InvalidValue(message, hint=", ".join(OVERLAPS))


class Declaration:
    """The gates, lanes and entries of an app.

    Attributes:
        lanes: by name.
        entries: by name.
        gates: gates declared at run time, by name. They replace gates of the same name that the
            app's kinds declare.
        author: name of the app, recorded in the trail.
    """

    def __init__(self, author: str) -> None:
        self.lanes: dict[str, LaneSpec] = {}
        self.entries: dict[str, EntrySpec] = {}
        self.gates: dict[str, GateSpec] = {}
        self.author = author
        self._declared: tuple[Store, int] | None = None

    def add_lane(self, spec: LaneSpec) -> None:
        """Add a lane.

        Raises:
            InvalidValue: it has been declared before.
        """
        if spec.name in self.lanes:
            message = f"the lane {spec.name!r} is declared twice"
            raise InvalidValue(message, hint="declare it in one place")
        self.lanes[spec.name] = spec

    def add_entry(self, spec: EntrySpec) -> None:
        """Add a timetable entry.

        Raises:
            InvalidValue: it has been declared before.
        """
        if spec.name in self.entries:
            message = f"the timetable has two entries {spec.name!r}"
            raise InvalidValue(message, hint="give one of them another name")
        self.entries[spec.name] = spec

    def shortest_lease_ms(self, lanes: Iterable[str]) -> int | None:
        """Return the shortest lease of these lanes, or None if none of them sets one."""
        leases = [self.lanes[name].lease_ms for name in lanes if name in self.lanes]
        return min((ms for ms in leases if ms is not None), default=None)

    def forget(self) -> None:
        """Make the next `declare` repeat everything."""
        self._declared = None

    async def declare_gates(self, store: Store, specs: Iterable[GateSpec]) -> None:
        """Declare gates now, and keep them to be declared again if the store is lost.

        Args:
            specs: if two have the same name, the later one counts.

        Raises:
            InvalidValue: the store has one as another kind of gate, or one is not a gate; nothing
                was written or kept.
        """
        gates = {spec.name: spec for spec in map(_check_gate, specs)}
        if gates:
            items = tuple(DeclareGate(spec=spec) for spec in gates.values())
            await store.define(DefineRequest(items=items, author=self.author))
            self.gates |= gates

    async def declare(self, store: Store, kinds: Mapping[str, Kind]) -> None:
        """Declare everything to the store, unless that was done and nothing was added since.

        Raises:
            InvalidValue: two gates of one name differ, a stage has no handler, or a follow-up kind
                cannot take the arguments it gets.
        """
        size = len(kinds) + len(self.lanes) + len(self.entries)
        if self._declared == (store, size):
            return
        for kind in kinds.values():
            kind.check_stages()
            _check_follow_up(kind, kinds)
        gates = {spec.name: spec for spec in _gates(kinds.values())} | self.gates
        items: list[Item] = [DeclareGate(spec=spec) for spec in gates.values()]
        items += [DeclareLane(spec=spec) for spec in self.lanes.values()]
        items += [DeclareEntry(spec=spec) for spec in self.entries.values()]
        if items:
            await store.define(DefineRequest(items=tuple(items), author=self.author))
        self._declared = (store, size)


def _check_gate(spec: object) -> GateSpec:
    if isinstance(spec, GateSpec):
        return spec
    message = f"{spec!r:.80} is not a gate"
    raise InvalidValue(message, hint="pass each as a Slots, Rate, Hours or Pool")


def _gates(kinds: Iterable[Kind]) -> Iterator[GateSpec]:
    seen: dict[str, tuple[GateSpec, str]] = {}
    for kind in kinds:
        for spec in kind.gates:
            if spec.name not in seen:
                seen[spec.name] = spec, kind.name
                yield spec
                continue
            first, by = seen[spec.name]
            if first != spec:
                where = f"by {by!r} and by {kind.name!r}"
                message = f"the gate {spec.name!r} is declared in two different ways, {where}"
                raise InvalidValue(
                    message, hint="declare it once, and use that declaration in both kinds"
                )


def _check_follow_up(kind: Kind, kinds: Mapping[str, Kind]) -> None:
    _check_takes(kind, kind.options.on_final, kinds, ("state: str", "reason: str"))
    _check_takes(
        kind, kind.options.on_accepted, kinds, ("state: str", "candidate: str", "run: int")
    )


def _check_takes(
    kind: Kind, follow: str | None, kinds: Mapping[str, Kind], given: tuple[str, ...]
) -> None:
    if follow is None:
        return
    if follow not in kinds:
        # Another app may have it, so it is not an error.
        meant = did_you_mean(follow, kinds)
        if meant:
            _log.warning("%r is followed by %r, an unknown kind; %s", kind.name, follow, meant)
        return
    if kinds[follow].options.stages[0][1]:
        message = (
            f"the kind {follow!r} follows {kind.name!r}, but has gates, which it would not pass"
        )
        raise InvalidValue(
            message,
            hint=f"let a kind without gates follow, whose handler passes a job of {follow!r} to "
            "job.then",
        )
    parameters = ("job: str", *given)
    if not kinds[follow].takes([one.partition(":")[0] for one in parameters]):
        message = (
            f"the kind {follow!r} follows {kind.name!r}, but cannot take the arguments it gets"
        )
        raise InvalidValue(
            message,
            hint=f"let its handler take {', '.join(parameters[:-1])} and {parameters[-1]}; "
            "its first parameter, annotated hw.Job, may have any other name",
        )
