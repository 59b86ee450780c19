"""The shadow: decides when an older system's leads would be called, without placing calls.

Decisions go through the same engine and the same gates under names of their own, so that neither
system takes a line from the other. They are kept beside what the older system did.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from statistics import median

from sqlalchemy import func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from headway.core.errors import UnknownRecord
from headway.core.gates.spec import GateSpec
from headway.core.job import NewJob
from headway.runtime.answers import Ended, Next
from headway.runtime.app import App
from headway.runtime.awaited import Awaited
from headway.runtime.job import Job
from headway.runtime.kind import Kind
from headway.systems.calls.truth.lead_table import LeadTable
from headway.systems.calls.truth.migration import SHADOW, Migration
from headway.systems.calls.truth.row import LeadRow, Recipe
from headway.systems.calls.truth.settings import Mode
from headway.systems.directory.database import Directory

LOOKED_UP = 1_000
"""Decisions whose rows are looked up at once."""
COMPARED = 10_000
"""Decisions, the newest, that are compared."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """When a lead would have been called.

    Attributes:
        row_id: of the older system's row.
        due_at: when it was due, ms UTC.
        decided_at: when it would have been called, ms UTC.
        number: from which; None if no pool is asked for.
        theirs_at: when the older system called, ms UTC; None until that is known.
    """

    row_id: str
    reseller: str
    due_at: int
    decided_at: int
    number: str | None
    why: str
    theirs_at: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """What was decided, beside what the older system did.

    Attributes:
        decided: how many leads would have been called.
        compared: of those, how many the older system has called; of the newest 10,000.
        median_ms: of how much later than theirs ours would have been; less than 0 for earlier.
        p99_ms: of the same, without its sign.
    """

    decided: int
    compared: int
    median_ms: int | None
    p99_ms: int | None


class ShadowBook:
    """What was decided, in the directory."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    async def note(self, decision: Decision) -> None:
        """Write a decision down; one that is written already stays.

        Raises:
            StoreUnavailable: the directory cannot be reached; nothing was written.
        """
        async with self._directory.change() as session:
            named = session.get_bind().dialect.name
            insert = postgresql.insert if named == "postgresql" else sqlite.insert
            values = insert(SHADOW).values(asdict(decision))
            await session.execute(values.on_conflict_do_nothing())

    async def known(self, ids: Sequence[str]) -> set[str]:
        """Of these rows, those about which it is decided."""
        query = select(SHADOW.c.row_id).where(SHADOW.c.row_id.in_(ids))
        async with self._directory.read() as session:
            return set((await session.execute(query)).scalars())

    async def look_up(self, table: LeadTable) -> None:
        """Write down when the older system called, of leads about which that is not known yet.

        Raises:
            StoreUnavailable: the directory or the table cannot be reached.
        """
        after: tuple[int, str] = (0, "")
        while True:
            query = (
                select(SHADOW.c.decided_at, SHADOW.c.row_id)
                .where(SHADOW.c.theirs_at.is_(None), _after(after))
                .order_by(SHADOW.c.decided_at, SHADOW.c.row_id)
                .limit(LOOKED_UP)
            )
            async with self._directory.read() as session:
                page = [(at, row_id) for at, row_id in await session.execute(query)]
            if page:
                await self._look_up(table, [row_id for _, row_id in page])
                after = page[-1]
            if len(page) < LOOKED_UP:
                return

    async def page(self, after: tuple[int, str], limit: int) -> list[Decision]:
        """Decisions from a place on, in the order in which they were made."""
        query = select(SHADOW).where(_after(after))
        query = query.order_by(SHADOW.c.decided_at, SHADOW.c.row_id).limit(limit)
        async with self._directory.read() as session:
            rows = (await session.execute(query)).mappings()
            return [Decision(**row) for row in rows]

    async def compare(self) -> Comparison:
        """How far what was decided is from what the older system did.

        Raises:
            StoreUnavailable: the directory cannot be reached.
        """
        newest = (
            select(SHADOW.c.decided_at - SHADOW.c.theirs_at)
            .where(SHADOW.c.theirs_at.is_not(None))
            .order_by(SHADOW.c.decided_at.desc())
            .limit(COMPARED)
        )
        async with self._directory.read() as session:
            decided = (await session.execute(select(func.count()).select_from(SHADOW))).scalar_one()
            late: list[int] = list((await session.execute(newest)).scalars())
        if not late:
            return Comparison(decided=decided, compared=0, median_ms=None, p99_ms=None)
        apart = sorted(map(abs, late))
        return Comparison(
            decided=decided,
            compared=len(late),
            median_ms=round(median(late)),
            p99_ms=apart[min(len(apart) - 1, len(apart) * 99 // 100)],
        )

    async def _look_up(self, table: LeadTable, ids: Sequence[str]) -> None:
        found = await table.find(ids)
        called = {
            row_id: standing.since_at
            for row_id, standing in found.items()
            if standing.since_at is not None
            and standing.status != table.settings.statuses["pending"]
        }
        if not called:
            return
        async with self._directory.change() as session:
            for row_id, at in called.items():
                await session.execute(
                    update(SHADOW).where(SHADOW.c.row_id == row_id).values(theirs_at=at)
                )


def _after(place: tuple[int, str]):  # noqa: ANN202  (a condition whose type SQLAlchemy keeps to itself)
    at, row_id = place
    return (SHADOW.c.decided_at > at) | ((SHADOW.c.decided_at == at) & (SHADOW.c.row_id > row_id))


LANE = "calls.shadow"
KIND = "lead_shadow"
PREFIX = "shadow."


class ShadowGates:
    """The gates of real calls under names of their own, declared when they are first needed."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._declared: dict[str, GateSpec] = {}

    async def like(self, specs: Sequence[GateSpec]) -> list[GateSpec]:
        """Gates that limit as these do, and share nothing with them.

        Raises:
            StoreError: the store cannot declare them now.
        """
        like = [replace(spec, name=f"{PREFIX}{spec.name}") for spec in specs]
        new = [spec for spec in like if self._declared.get(spec.name) != spec]
        if new:
            await self._app.declare_gates(*new)
            self._declared |= {spec.name: spec for spec in new}
        return like


def declare_shadow(
    app: App, recipe: Recipe, table: LeadTable, migration: Migration, book: ShadowBook
) -> None:
    """Add to an app what shadows an older system.

    Args:
        app: whose worker runs the leads.
        recipe: how a row becomes a job.
    """
    gates = ShadowGates(app)
    app.lane(LANE, fair="tenant")

    @app.job(
        name=KIND,
        lane=LANE,
        stages={"gates": (), "decide": ()},
        tenant="{reseller}",
        subject="{phone}",
        key="shadow:{row}",
        keep="1d",
        key_for="1d",
    )
    async def shadow(_: Job, row: str, phone: str, tz: str, reseller: str, template: str) -> Next:
        lead = LeadRow(id=row, phone=phone, tz=tz, reseller=reseller, template=template, due_at=0)
        return Next("decide", gates=await gates.like(await recipe.dial_gates(lead)))

    @shadow.stage("decide")
    async def decide(job: Job, row: str, reseller: str) -> None:
        at = migration.timing.wall_at()
        decision = Decision(
            row_id=row,
            reseller=reseller,
            due_at=int(job.due_at.timestamp() * 1000),
            decided_at=at,
            number=next(iter(job.permits.values()), None),
            why=_why(at - int(job.due_at.timestamp() * 1000)),
        )
        await book.note(decision)
        # The line is taken for as long as a call would last.
        await job.hand_over(timeout=f"{migration.settings.talk}ms")

    @shadow.reconcile
    async def over(_: Awaited) -> Ended:
        return Ended("succeeded")

    async def renew(rows: Sequence[LeadRow]) -> None:
        # Numbers that have come or gone hold for those that wait already.
        for row in {(row.reseller, row.template): row for row in rows}.values():
            with suppress(UnknownRecord):
                await gates.like(await recipe.dial_gates(row))

    _declare_watching(app, shadow, table, migration, book, renew)


def _declare_watching(
    app: App,
    shadow: Kind,
    table: LeadTable,
    migration: Migration,
    book: ShadowBook,
    renew: Callable[[Sequence[LeadRow]], Awaitable[None]],
) -> None:
    @app.source(name=LANE, every=migration.settings.every, rate=100_000)
    async def theirs() -> AsyncGenerator[NewJob]:
        chosen = (await migration.choice()).chosen
        if chosen.mode is not Mode.SHADOW:
            return
        await book.look_up(table)
        async for page in table.pending(ours=False):
            known = await book.known([row.id for row in page])
            wanted = [row for row in page if row.id not in known and chosen.has(row)]
            await renew(wanted)
            for row in wanted:
                yield _job(shadow, row)


def _job(shadow: Kind, row: LeadRow) -> NewJob:
    made = shadow.make(
        row=row.id, phone=row.phone, tz=row.tz, reseller=row.reseller, template=row.template
    )
    return replace(made, due_at=row.due_at)


def _why(waited_ms: int) -> str:
    return f"every gate was open {max(0, waited_ms)} ms after it was due"
