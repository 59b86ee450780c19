"""The kinds of gates, each with what it does: code that is the same for all kinds asks here."""

from __future__ import annotations

from collections.abc import Mapping

from headway.core.gates.opening import HOURS
from headway.core.gates.pool import POOL
from headway.core.gates.rate import RATE
from headway.core.gates.slots import SLOTS
from headway.core.gates.spec import GateKind, GateTraits

KINDS: Mapping[str, GateTraits] = {
    GateKind.SLOTS: SLOTS,
    GateKind.RATE: RATE,
    GateKind.HOURS: HOURS,
    GateKind.POOL: POOL,
}


def traits_of(kind: str) -> GateTraits:
    """Return the traits of a kind; an implicit gate is a Slots that no code declares."""
    return KINDS.get(kind, SLOTS)
