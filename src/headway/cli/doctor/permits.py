"""Permits and their holders, by the store's own audit."""

from __future__ import annotations

from headway.cli.audits import whole_audit
from headway.cli.doctor.finding import Finding, problem, well
from headway.contract.store import Store

_LISTED = 5


async def look_at_permits(store: Store) -> list[Finding]:
    """Whether what is counted is what is there."""
    found = await whole_audit(store)
    if not found.differences:
        return [well("permits", f"{found.permits} permits of {found.gates} gates add up")]
    hint = "a bug in Headway: please report it with what headway audit prints"
    return [problem("permits", f"{one.where}: {one.what}", hint) for one in found.differences][
        :_LISTED
    ]
