"""The shadow of an older system.

It decides when an older system's leads would be called, without placing calls. Decisions
pass through the same engine and through copies of the gates, so that neither system takes a line
from the other. They are stored beside when the older system called.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from statistics import median

from sqlalchemy import BigInteger, Column, Index, String, Table, Text, func, select, update

from headway.core.errors import UnknownRecord
from headway.core.gates.spec import GateSpec
from headway.core.job import NewJob
from headway.runtime.app import App
from headway.runtime.handler_results import Ended, Next
from headway.runtime.job import Job
from headway.runtime.kind import Kind
from headway.runtime.reconciliation import Awaited
from headway.systems.calls.catalogue import Base
from headway.systems.calls.source_table.lead_table import LeadTable, insert_into
from headway.systems.calls.source_table.migration import Migration
from headway.systems.calls.source_table.settings import LeadRow, MigrationMode, Recipe
from headway.systems.directory.database import Directory

SHADOW = Table(
    "calls_shadow",
    Base.metadata,
    Column("row_id", String(512), primary_key=True),
    Column("reseller", String(512), nullable=False),
    Column("due_at", BigInteger, nullable=False),
    Column("decided_at", BigInteger, nullable=False),
    Column("number", String(32)),
    Column("why", Text, nullable=False),
    Column("theirs_at", BigInteger),
    Index("ix_calls_shadow_decided_at", "decided_at", "row_id"),
    Index("ix_calls_shadow_theirs_at", "theirs_at", "decided_at"),
)
"""Decisions: when and why each lead would have been called, and when the older system called."""

LOOKED_UP = 1_000
"""Maximum number of decisions whose rows are read at once."""
COMPARED = 10_000
"""Number of newest decisions that are compared."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShadowDecision:
    """When a lead would have been called.

    Attributes:
        row_id: id of the older system's row.
        due_at: when it was due, ms UTC.
        decided_at: when it would have been called, ms UTC.
        number: number to call from; None if no pool is used.
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
    """Decisions, compared with what the older system did.

    Attributes:
        decided: how many leads would have been called.
        compared: how many of those the older system has called, among the newest 10,000.
        median_ms: median of how much later than the older system's our calls would have been;
            negative if earlier.
        p99_ms: 99th percentile of the same differences, without their sign.
    """

    decided: int
    compared: int
    median_ms: int | None
    p99_ms: int | None


class ShadowDecisions:
    """The shadow's decisions, stored in the directory."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    async def note(self, decision: ShadowDecision) -> None:
        """Store a decision, unless its row already has one.

        Raises:
            StoreUnavailable: the directory cannot be reached; nothing was written.
        """
        async with self._directory.change() as session:
            values = insert_into(session, SHADOW).values(asdict(decision))
            await session.execute(values.on_conflict_do_nothing())

    async def known(self, ids: Sequence[str]) -> set[str]:
        """Return the ids among these whose rows have a decision."""
        query = select(SHADOW.c.row_id).where(SHADOW.c.row_id.in_(ids))
        async with self._directory.read() as session:
            return set((await session.execute(query)).scalars())

    async def look_up(self, table: LeadTable) -> None:
        """Store when the older system called, for all decisions that lack it."""
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

    async def page(self, after: tuple[int, str], limit: int) -> list[ShadowDecision]:
        """Return the decisions after a place, oldest first."""
        query = select(SHADOW).where(_after(after))
        query = query.order_by(SHADOW.c.decided_at, SHADOW.c.row_id).limit(limit)
        async with self._directory.read() as session:
            rows = (await session.execute(query)).mappings()
            return [ShadowDecision(**row) for row in rows]

    async def compare(self) -> Comparison:
        """Compare the decisions with when the older system called."""
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
            row_id: state.since_at
            for row_id, state in found.items()
            if state.since_at is not None and state.status != table.settings.statuses["pending"]
        }
        if not called:
            return
        async with self._directory.change() as session:
            for row_id, at in called.items():
                await session.execute(
                    update(SHADOW).where(SHADOW.c.row_id == row_id).values(theirs_at=at)
                )


def _after(place: tuple[int, str]):  # noqa: ANN202  (the condition's type is private to SQLAlchemy)
    at, row_id = place
    return (SHADOW.c.decided_at > at) | ((SHADOW.c.decided_at == at) & (SHADOW.c.row_id > row_id))


LANE = "calls.shadow"
KIND = "lead_shadow"
PREFIX = "shadow."


class ShadowGates:
    """Copies of the gates of real calls, declared when they are first needed."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._declared: dict[str, GateSpec] = {}

    async def like(self, specs: Sequence[GateSpec]) -> list[GateSpec]:
        """Declare and return gates with the same limits that share no permits with these."""
        like = [replace(spec, name=f"{PREFIX}{spec.name}") for spec in specs]
        new = [spec for spec in like if self._declared.get(spec.name) != spec]
        if new:
            await self._app.declare_gates(*new)
            self._declared |= {spec.name: spec for spec in new}
        return like


def declare_shadow(
    app: App, recipe: Recipe, table: LeadTable, migration: Migration, decisions: ShadowDecisions
) -> None:
    """Declare the shadow of an older system."""
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
        known = (await table.find([row])).get(row)
        if known is None or not known.row.reseller == reseller == job.tenant:
            # Callers of other resellers can create jobs of any kind, with any row.
            return
        at, due_at = migration.timing.wall_at(), int(job.due_at.timestamp() * 1000)
        decision = ShadowDecision(
            row_id=row,
            reseller=reseller,
            due_at=due_at,
            decided_at=at,
            number=next(iter(job.permits.values()), None),
            why=f"every gate was open {max(0, at - due_at)} ms after it was due",
        )
        await decisions.note(decision)
        # The line stays occupied for as long as a call would last.
        await job.hand_over(timeout=f"{migration.settings.talk}ms")

    @shadow.reconcile
    async def over(_: Awaited) -> Ended:
        return Ended("succeeded")

    async def renew(rows: Sequence[LeadRow]) -> None:
        # Added and removed numbers also apply to jobs that already wait.
        for row in {(row.reseller, row.template): row for row in rows}.values():
            with suppress(UnknownRecord):
                await gates.like(await recipe.dial_gates(row))

    _declare_watching(app, shadow, table, migration, decisions, renew)


def _declare_watching(
    app: App,
    shadow: Kind,
    table: LeadTable,
    migration: Migration,
    decisions: ShadowDecisions,
    renew: Callable[[Sequence[LeadRow]], Awaitable[None]],
) -> None:
    @app.source(name=LANE, every=migration.settings.every, rate=100_000)
    async def theirs() -> AsyncGenerator[NewJob]:
        plan = (await migration.current_plan()).plan
        if plan.mode is not MigrationMode.SHADOW:
            return
        await decisions.look_up(table)
        async for page in table.pending(ours=False):
            known = await decisions.known([row.id for row in page])
            wanted = [row for row in page if row.id not in known and plan.has(row)]
            await renew(wanted)
            for row in wanted:
                yield _job(shadow, row)


def _job(shadow: Kind, row: LeadRow) -> NewJob:
    made = shadow.make(
        row=row.id, phone=row.phone, tz=row.tz, reseller=row.reseller, template=row.template
    )
    return made.changed(due_at=row.due_at)
