"""The whole content of a store, to compare one store, or one moment, with another."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, fields, replace
from typing import cast

from headway.contract.store import Store
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Dump:
    """Everything that a store can be asked for, but for its identity.

    Attributes:
        jobs: by arrival, with their runs and trails.
        gates: by name, with their first holders.
        lanes: by name.
        workers: by id.
        timetable: by name.
        tokens: by id.
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
    """Read all of a small store; nothing else may use it meanwhile.

    Returns:
        Its content.
    """
    jobs = [job async for job in every_job(store, whole=True)]
    gates: list[GateState] = []
    cursor: str | None = None
    while True:
        page = await store.read(GatesQuery(cursor=cursor))
        gates.extend(page.rows)
        cursor = page.cursor
        if cursor is None:
            break
    stats = await store.read(StatsQuery())
    workers = await store.read(WorkersQuery())
    return Dump(
        jobs=tuple(jobs),
        gates=tuple(gates),
        lanes=await store.read(LanesQuery()),
        workers=tuple(sorted(workers, key=lambda worker: worker.id)),
        timetable=await store.read(TimetableQuery()),
        tokens=await store.read(TokensQuery()),
        trail=await _whole_trail(store),
        stats=replace(stats, identity=""),
    )


def unnumbered(dumped: Dump) -> Dump:
    """A dump without the numbers of its rows: a step that is undone may use numbers up or not.

    The order of records, which the numbers are for, is the order of the lists.

    Returns:
        The same with each `seq` 0.
    """
    jobs = tuple(replace(job, seq=0) for job in dumped.jobs)
    return replace(dumped, jobs=jobs, trail=tuple(replace(line, seq=0) for line in dumped.trail))


async def every_job(store: Store, *, whole: bool = False) -> AsyncIterator[JobView]:
    """The jobs of a store, oldest arrival first.

    Args:
        whole: with their runs and trails.

    Yields:
        Each job as listings show it.
    """
    cursor: str | None = None
    while True:
        page = await store.read(JobsQuery(cursor=cursor, limit=1000, runs=whole, trail=whole))
        for job in page.rows:
            yield job
        cursor = page.cursor
        if cursor is None:
            return


async def differences(store: Store) -> list[Difference]:
    """What an audit finds that does not add up, all pages of it.

    Returns:
        Nothing, unless there is a bug.
    """
    found: list[Difference] = []
    cursor: str | None = None
    while True:
        page = await store.read(AuditQuery(cursor=cursor))
        found.extend(page.differences)
        cursor = page.cursor
        if cursor is None:
            return found


def compare(one: Dump, other: Dump) -> list[str]:
    """Says in which records two dumps differ.

    Returns:
        A line for each difference; empty if the dumps are equal.
    """
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


async def _whole_trail(store: Store) -> tuple[TrailView, ...]:
    rows: list[TrailView] = []
    cursor: str | None = None
    while True:
        page = await store.read(TrailQuery(cursor=cursor, limit=1000))
        rows.extend(page.rows)
        cursor = page.cursor
        if cursor is None:
            return tuple(reversed(rows))
