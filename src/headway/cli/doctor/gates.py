"""Gates that will not open: hours whose horizon ends, closings that somebody forgot."""

from __future__ import annotations

from collections.abc import AsyncIterator

from headway.cli.doctor.finding import Finding, problem, warning, well
from headway.contract.store import Store
from headway.contract.views import GatesQuery, GateState, StatsQuery
from headway.core.duration import format_duration
from headway.core.zone import DAY_MS

HORIZON_MS = 7 * DAY_MS
"""A chore keeps 14 days; half of that is left only if no chore runs."""
POOL = "pool"
ADD_MEMBERS = "add members to the pool, or give one of them room"
"""How a pool comes to room: it has none of its own that could be set."""
_LISTED = 5


async def look_at_gates(store: Store) -> list[Finding]:
    """Whether hours are known far enough ahead, and what is closed for good."""
    now = (await store.read(StatsQuery())).now
    findings: list[Finding] = []
    closed: list[str] = []
    zero: list[str] = []
    empty: list[str] = []
    count = 0
    async for gate in _gates(store):
        count += 1
        if gate.horizon_at is not None and gate.horizon_at - now < HORIZON_MS:
            findings.append(_short(gate, gate.horizon_at - now))
        if gate.closed_until is not None and not gate.open:
            closed.append(gate.name)
        elif gate.capacity == 0:
            (empty if gate.kind == POOL else zero).append(gate.name)
        elif not gate.open:
            closed += [one.name for one in gate.members if one.closed_until is not None]
    if closed:
        hint = "headway gates tells who closed each and why"
        findings.append(warning("closed", f"{_number(closed)} closed: {_some(closed)}", hint))
    if zero:
        hint = "nothing passes there; headway gates set or reset gives it a capacity again"
        findings.append(warning("zero", f"{_number(zero)} of no capacity: {_some(zero)}", hint))
    if empty:
        found = f"{_number(empty)} without a member that has room: {_some(empty)}"
        findings.append(warning("empty", found, f"nothing passes there; {ADD_MEMBERS}"))
    return findings or [well("gates", f"{count} gates, none closed, hours known ahead")]


def _number(gates: list[str]) -> str:
    return "1 gate is" if len(gates) == 1 else f"{len(gates)} gates are"


def _some(gates: list[str]) -> str:
    return ", ".join(gates[:_LISTED]) + (", …" if len(gates) > _LISTED else "")


def _short(gate: GateState, left_ms: int) -> Finding:
    hint = "let a worker run: its chores extend it"
    if left_ms <= 0:
        found = f"{gate.name} is past its horizon, and so closed"
        return problem("hours", found, hint)
    found = f"{gate.name} is known for {format_duration(left_ms)} ahead only"
    return warning("hours", found, hint)


async def _gates(store: Store) -> AsyncIterator[GateState]:
    cursor: str | None = None
    while True:
        page = await store.read(GatesQuery(cursor=cursor, limit=1000))
        for gate in page.rows:
            yield gate
        cursor = page.cursor
        if cursor is None:
            return
