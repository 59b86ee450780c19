"""The source of the table: what is pending, and what is in flight with the lines it holds."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from headway.contract.enqueue import InFlight
from headway.core.errors import CallerError
from headway.core.gates.spec import GateKind, GateSpec
from headway.core.job import NewJob
from headway.runtime.app import App
from headway.runtime.kind import Kind
from headway.runtime.sources.under_way import in_flight
from headway.systems.calls.truth.following import Following
from headway.systems.calls.truth.lead_table import LeadTable
from headway.systems.calls.truth.recipe import Recipe
from headway.systems.calls.truth.row import Standing

NAME = "calls.table"

_log = logging.getLogger("headway.calls")


def declare_source(
    app: App, lead: Kind, recipe: Recipe, table: LeadTable, following: Following
) -> None:
    """Adds to an app the source that its table is.

    Args:
        app: whose worker runs the leads.
        lead: the kind of leads.
        recipe: how a row becomes a job.
        table: that is the truth.
        following: makes the jobs of rows.
    """

    @app.source(name=NAME, every=table.settings.every, rate=table.settings.rate)
    async def pending() -> AsyncGenerator[NewJob]:
        async for page in table.pending(ours=True):
            for job in await following.missing(page):
                yield job

    @pending.in_flight
    async def calls() -> AsyncGenerator[InFlight]:
        async for page in table.running():
            for standing in page:
                try:
                    yield await _in_flight(lead, recipe, standing)
                except CallerError as error:
                    _log.error("the row %s is no lead: %s", standing.row.id, error)


async def _in_flight(lead: Kind, recipe: Recipe, standing: Standing) -> InFlight:
    made = recipe.job(standing.row)
    specs = await recipe.dial_gates(standing.row)
    gates = lead.uses("dial", made.lane, made.tenant, made.args, specs)
    members = _members(specs, standing.number)
    if not members:
        _log.warning("the row %s calls from %s, which is in no pool now", made.key, standing.number)
    return in_flight(
        replace(made, stage="dial", gates=gates, due_at=None),
        known_as=standing.ref or f"{made.id}:1",
        since=datetime.fromtimestamp((standing.since_at or 0) / 1000, UTC),
        timeout=f"{recipe.deadline_ms}ms",
        members=members,
    )


def _members(specs: Sequence[GateSpec], number: str | None) -> dict[str, str]:
    pools = [one for one in specs if one.kind is GateKind.POOL]
    return {
        pool.name: number for pool in pools if number is not None and number in dict(pool.members)
    }
