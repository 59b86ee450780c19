"""Slots: a counting semaphore. A lock is a Slots of one permit."""

from __future__ import annotations

from headway.core.gates.spec import GateKind, GateSpec, GateTraits, check_count, check_gate_name


def Slots(name: str, capacity: int, *, shared: bool | None = None) -> GateSpec:  # noqa: N802  (reads as the record that it builds)
    """Declare a gate with a limited number of permits.

    Args:
        name: a fixed name, or a template over arguments such as `repo:{url}`.
        capacity: number of permits; with 0 no job passes.
        shared: True if an argument in the name has only few values.

    Raises:
        InvalidValue: the name or the capacity is not valid.
    """
    text, common = check_gate_name(name, shared=shared)
    return GateSpec(
        name=text,
        kind=GateKind.SLOTS,
        shared=common,
        capacity=check_count(f"capacity of {text!r}", capacity, least=0),
    )


SLOTS = GateTraits(
    declared=lambda spec: {"capacity": spec.capacity, "shared": spec.shared},
    takes_permits=True,
    settable=frozenset({"capacity"}),
    has_own_limit=True,
)


def room(capacity: int | None, used: int) -> int:
    """Return the number of free permits; 0 if more than the capacity are used.

    Args:
        capacity: number of permits; None for unlimited.
    """
    return UNLIMITED if capacity is None else max(0, capacity - used)


UNLIMITED = 2**62
"""More permits than a job can request."""
