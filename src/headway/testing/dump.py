"""The whole content of a store, for comparing stores, or one store at different times."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, fields, replace
from typing import TypeVar, cast

from headway.contract.store import Store, read_pages
from headway.contract.views import (
    AuditQuery,
    Difference,
    EntryView,
    GatesQuery,
    GateState,
    JobsQuery,
    JobView,
    LanesQuery,
    LaneView,
    StatsQuery,
    StatsView,
    TimetableQuery,
    TokensQuery,
    TokenView,
    TrailQuery,
    TrailView,
    WorkersQuery,
    WorkerView,
)

Row = TypeVar("Row")


@dataclass(frozen=True, kw_only=True, slots=True)
class Dump:
    """Everything that can be read from a store, except for its identity.

    Attributes:
        jobs: by arrival, with their runs and trails.
        gates: by name, with their first holders.
        trail: oldest first.
    """

    jobs: tuple[JobView, ...]
    gates: tuple[GateState, ...]
    lanes: tuple[LaneView, ...]
    workers: tuple[WorkerView, ...]
    timetable: tuple[EntryView, ...]
    tokens: tuple[TokenView, ...]
    trail: tuple[TrailView, ...]
    stats: StatsView


async def dump(store: Store) -> Dump:
    """Read a small store completely; nothing else may use it meanwhile."""
    jobs = [job async for job in every_job(store, runs=True, trail=True)]
    gates = [gate async for page in read_pages(store, GatesQuery()) for gate in page.rows]
    lines = read_pages(store, TrailQuery(limit=1000))
    trail = [line async for page in lines for line in page.rows]
    stats = await store.read(StatsQuery())
    workers = await store.read(WorkersQuery())
    return Dump(
        jobs=tuple(jobs),
        gates=tuple(gates),
        lanes=await store.read(LanesQuery()),
        workers=tuple(sorted(workers, key=lambda worker: worker.id)),
        timetable=await store.read(TimetableQuery()),
        tokens=await store.read(TokensQuery()),
        trail=tuple(reversed(trail)),
        stats=replace(stats, identity=""),
    )


def unnumbered(dumped: Dump) -> Dump:
    """Return a dump with every `seq` set to 0, since a rolled-back step may use up numbers.

    The lists are still in the order of these numbers.
    """
    jobs = tuple(replace(job, seq=0) for job in dumped.jobs)
    return replace(dumped, jobs=jobs, trail=tuple(replace(line, seq=0) for line in dumped.trail))


async def every_job(
    store: Store, *, runs: bool = False, trail: bool = False
) -> AsyncIterator[JobView]:
    """Iterate over all jobs of a store, oldest arrival first."""
    async for page in read_pages(store, JobsQuery(limit=1000, runs=runs, trail=trail)):
        for job in page.rows:
            yield job


async def differences(store: Store) -> list[Difference]:
    """Return all differences that an audit finds; there are none unless there is a bug."""
    return [one async for page in read_pages(store, AuditQuery()) for one in page.differences]


def compare(one: Dump, other: Dump) -> list[str]:
    """Return a line for each difference between two dumps."""
    lines: list[str] = []
    for part in fields(Dump):
        left: object = getattr(one, part.name)
        right: object = getattr(other, part.name)
        if left == right:
            continue
        lefts, rights = _records(left), _records(right)
        if len(lefts) != len(rights):
            lines.append(f"{part.name}: {len(lefts)} against {len(rights)} records")
        for first, second in zip(lefts, rights, strict=False):
            lines.extend(_differences(part.name, first, second))
    return lines


def _records(part: object) -> tuple[object, ...]:
    return cast("tuple[object, ...]", part) if isinstance(part, tuple) else (part,)


def _differences(what: str, first: object, second: object) -> list[str]:
    names: tuple[str, ...] = getattr(type(first), "__slots__", ())
    key = getattr(first, "id", getattr(first, "name", ""))
    return [
        f"{what} {key} {name}: {getattr(first, name)!r} against {getattr(second, name)!r}"
        for name in names
        if getattr(first, name) != getattr(second, name)
    ]
