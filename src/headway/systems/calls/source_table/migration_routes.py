"""Routes of a migration from an older system: its plan, and the decisions of the shadow."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import Field

from headway.core.errors import InvalidValue
from headway.server.access import Definer, Observer
from headway.server.bodies.base import Body, TenantName
from headway.server.paging import WhichPage, decode_cursor, encode_cursor
from headway.server.replies import answer, reply, reply_model
from headway.server.routing import router
from headway.systems.calls.source_table.migration import CurrentPlan, Migration
from headway.systems.calls.source_table.settings import MigrationMode, MigrationPlan
from headway.systems.calls.source_table.shadow import Comparison, ShadowDecision, ShadowDecisions

PLAN = reply(
    "CallsMigration",
    "How an older system's rows are migrated.",
    mode=(MigrationMode, 'Mode: "off", "shadow", "adopt" or "release".'),
    percent=(float, "Percentage of the rows, chosen by a hash of each row's id."),
    resellers=(list[str], "Only rows of these resellers; empty for all."),
    changed_at=(
        int | None,
        "When it was changed at run time, ms UTC; null while the settings apply.",
    ),
    changed_by=(str, "Who changed it."),
    rows=(dict[str, int], "Number of rows that are pending and running, ours and theirs."),
)
SHADOW = reply(
    "CallsShadow",
    "Decisions, compared with what the older system did.",
    comparison=(reply_model(Comparison), "Comparison of all decisions, regardless of the page."),
    rows=(list[reply_model(ShadowDecision)], "Decisions, in order."),
    cursor=(str | None, "Cursor for the next request; null at the end."),
)


class MigrationBody(Body):
    """How to migrate an older system's rows."""

    mode: Annotated[MigrationMode, Field(strict=False)] = Field(
        description='Mode: "off", "shadow", "adopt" or "release".'
    )
    percent: float = Field(default=100.0, ge=0, le=100, description="Percentage of the rows.")
    resellers: list[TenantName] = Field(
        default=[], max_length=1_000, description="Only rows of these resellers; empty for all."
    )


def migration_routes(migration: Migration, decisions: ShadowDecisions) -> APIRouter:
    """Return the routes of a migration."""
    routes = router("system: calls", operations="calls_", prefix="/calls/migration")

    @routes.get(
        "",
        operation_id="calls_migration",
        summary="Get how an older system's rows are migrated",
        response_model=PLAN,
    )
    async def shown(caller: Observer) -> Response:
        """Return the current choice, and how many rows belong to which system."""
        caller.whole()
        return await _reply(migration, await migration.current_plan())

    @routes.put(
        "",
        operation_id="calls_migrate",
        summary="Choose how an older system's rows are migrated",
        response_model=PLAN,
    )
    async def choose(body: MigrationBody, caller: Definer) -> Response:
        """Choose how the rows are migrated from now on, including after restarts.

        Raises:
            InvalidValue: the table has no column for the owner of its rows.
        """
        caller.whole()
        plan = MigrationPlan(mode=body.mode, percent=body.percent, resellers=tuple(body.resellers))
        return await _reply(migration, await migration.set_plan(plan, caller.name))

    @routes.get(
        "/shadow",
        operation_id="calls_shadow",
        summary="Compare decisions with actual calls",
        response_model=SHADOW,
    )
    async def shadow(asked: WhichPage, caller: Observer) -> Response:
        """List decisions, and compare them with when the older system called."""
        caller.whole()
        rows = await decisions.page(_place(decode_cursor(asked.cursor)), asked.limit + 1)
        cut = rows[: asked.limit]
        cursor = f"{cut[-1].decided_at} {cut[-1].row_id}" if len(rows) > len(cut) else None
        found = {
            "comparison": await decisions.compare(),
            "rows": cut,
            "cursor": encode_cursor(cursor),
        }
        return answer(found)

    return routes


async def _reply(migration: Migration, current: CurrentPlan) -> Response:
    return answer(
        {
            "mode": str(current.plan.mode),
            "percent": current.plan.percent,
            "resellers": list(current.plan.resellers),
            "changed_at": current.changed_at,
            "changed_by": current.changed_by,
            "rows": await migration.table.counts(),
        }
    )


def _place(cursor: str | None) -> tuple[int, str]:
    if cursor is None:
        return 0, ""
    at, blank, row_id = cursor.partition(" ")
    if not blank or not at.isascii() or not at.isdigit() or len(at) > 18:
        message = "the cursor does not belong to this listing"
        raise InvalidValue(message, hint="pass the cursor from the previous page")
    return int(at), row_id
