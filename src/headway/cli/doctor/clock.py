"""The store's time against the clock of this machine."""

from __future__ import annotations

from headway.cli.doctor.finding import Finding, problem, warning, well
from headway.contract.store import Store
from headway.contract.views import StatsQuery
from headway.core.duration import format_duration

TOLERATED_MS = 1_000
LONG_MS = 60_000


async def look_at_clock(store: Store) -> list[Finding]:
    """Whether the store's time runs ahead of its clock, so that nothing falls due meanwhile."""
    ahead_ms = (await store.read(StatsQuery())).clock_ahead_ms
    if ahead_ms <= TOLERATED_MS:
        return [well("clock", "the store's time is its clock's")]
    found = f"the store's time is {format_duration(ahead_ms)} ahead of its clock and stands still"
    hint = "check the machine's clock; if it is right now: headway doctor --reset-clock"
    return [(problem if ahead_ms > LONG_MS else warning)("clock", found, hint)]
