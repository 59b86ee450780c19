"""The shadow: it is decided when an older system's leads would be called, and nobody is called.

Decisions go through the same engine and the same gates under names of their own, so that neither
system takes a line from the other.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from headway.core.errors import UnknownRecord
from headway.core.gates.spec import GateSpec
from headway.core.job import NewJob
from headway.runtime.answers import Ended, Next
from headway.runtime.app import App
from headway.runtime.awaited import Awaited
from headway.runtime.job import Job
from headway.runtime.kind import Kind
from headway.systems.calls.truth.chosen import Mode
from headway.systems.calls.truth.lead_table import LeadTable
from headway.systems.calls.truth.migration import Migration
from headway.systems.calls.truth.recipe import Recipe
from headway.systems.calls.truth.row import LeadRow
from headway.systems.calls.truth.shadow_book import Decision, ShadowBook

LANE = "calls.shadow"
KIND = "lead_shadow"
PREFIX = "shadow."


class ShadowGates:
    """The gates of real calls under names of their own, declared when they are first needed.

    Args:
        app: that declares them.
    """

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
    """Adds to an app what shadows an older system.

    Args:
        app: whose worker runs the leads.
        recipe: how a row becomes a job.
        table: the older system's.
        migration: says which rows.
        book: where decisions are kept.
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
        await job.hand_over(timeout=f"{migration.settings.talk_ms}ms")

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
