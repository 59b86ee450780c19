"""GET and PUT /calls/migration, and what the shadow decided."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import Field

from headway.core.errors import InvalidValue
from headway.server.access.policy import Definer, Observer
from headway.server.bodies.base import Body, TenantName
from headway.server.paging import WhichPage, decode_cursor, encode_cursor
from headway.server.replies.reply import answer, reply, reply_model
from headway.server.routes.router import router
from headway.systems.calls.truth.migration import Choice, Migration
from headway.systems.calls.truth.settings import Chosen, Mode
from headway.systems.calls.truth.shadow import Comparison, Decision, ShadowBook

CHOICE = reply(
    "CallsMigration",
    "How the older system's rows are migrated.",
    mode=(Mode, '"off", "shadow", "adopt" or "release".'),
    percent=(float, "Of the rows, by a hash of each row's id."),
    resellers=(list[str], "Only theirs; empty for all."),
    changed_at=(int | None, "When it was chosen at run time, ms UTC; null while settings hold."),
    changed_by=(str, "Who did."),
    rows=(dict[str, int], "How many rows are pending and running, ours and theirs."),
)
SHADOW = reply(
    "CallsShadow",
    "What was decided, beside what the older system did.",
    comparison=(reply_model(Comparison), "Of all of it, whatever the page."),
    rows=(list[reply_model(Decision)], "In the order in which they were decided."),
    cursor=(str | None, "Give it to the next call; null at the end."),
)


class MigrationBody(Body):
    """How the older system's rows are to be migrated."""

    mode: Annotated[Mode, Field(strict=False)] = Field(
        description='"off", "shadow", "adopt" or "release".'
    )
    percent: float = Field(default=100.0, ge=0, le=100, description="Of the rows.")
    resellers: list[TenantName] = Field(
        default=[], max_length=1_000, description="Only theirs; empty for all."
    )


def migration_routes(migration: Migration, book: ShadowBook) -> APIRouter:
    """The routes of a migration.

    Args:
        migration: that they show and change.
    """
    routes = router("system: calls", prefix="/calls/migration")

    @routes.get(
        "",
        operation_id="calls_migration",
        summary="Show how an older system's rows are migrated",
        response_model=CHOICE,
    )
    async def shown(caller: Observer) -> Response:
        """Show what is chosen, and whose rows there are."""
        caller.whole()
        return await _reply(migration, await migration.choice())

    @routes.put(
        "",
        operation_id="calls_migrate",
        summary="Choose how an older system's rows are migrated",
        response_model=CHOICE,
    )
    async def choose(body: MigrationBody, caller: Definer) -> Response:
        """Choose how the rows are migrated from now on; it holds after restarts too.

        Raises:
            InvalidValue: the table does not say whose its rows are.
        """
        caller.whole()
        chosen = Chosen(mode=body.mode, percent=body.percent, resellers=tuple(body.resellers))
        return await _reply(migration, await migration.choose(chosen, caller.name))

    @routes.get(
        "/shadow",
        operation_id="calls_shadow",
        summary="What would have been called, beside what was",
        response_model=SHADOW,
    )
    async def shadow(asked: WhichPage, caller: Observer) -> Response:
        """List decisions, and compare them with when the older system called."""
        caller.whole()
        rows = await book.page(_place(decode_cursor(asked.cursor)), asked.limit + 1)
        cut = rows[: asked.limit]
        cursor = f"{cut[-1].decided_at} {cut[-1].row_id}" if len(rows) > len(cut) else None
        found = {"comparison": await book.compare(), "rows": cut, "cursor": encode_cursor(cursor)}
        return answer(found)

    return routes


async def _reply(migration: Migration, choice: Choice) -> Response:
    return answer(
        {
            "mode": str(choice.chosen.mode),
            "percent": choice.chosen.percent,
            "resellers": list(choice.chosen.resellers),
            "changed_at": choice.changed_at,
            "changed_by": choice.changed_by,
            "rows": await migration.table.counts(),
        }
    )


def _place(cursor: str | None) -> tuple[int, str]:
    if cursor is None:
        return 0, ""
    at, blank, row_id = cursor.partition(" ")
    if not blank or not at.isascii() or not at.isdigit() or len(at) > 18:
        message = "the cursor is not one of this listing"
        raise InvalidValue(message, hint="pass the cursor of the page before")
    return int(at), row_id
