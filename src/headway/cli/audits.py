"""An audit of a whole store, page after page."""

from __future__ import annotations

from headway.cli.progress import Meter, silent
from headway.contract.store import Store
from headway.contract.views import AuditQuery, AuditView, Difference


async def whole_audit(store: Store, meter: Meter = silent) -> AuditView:
    """Audits everything.

    Args:
        meter: shows how many gates were examined.

    Returns:
        All differences, and the sums of what was looked at.
    """
    differences: list[Difference] = []
    gates = permits = held = 0
    cursor: str | None = None
    while True:
        page = await store.read(AuditQuery(cursor=cursor))
        differences += page.differences
        gates, permits, held = gates + page.gates, permits + page.permits, held + page.held
        meter(gates)
        cursor = page.cursor
        if cursor is None:
            break
    return AuditView(differences=tuple(differences), gates=gates, permits=permits, held=held)
