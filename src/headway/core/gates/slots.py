"""Slots: a counting semaphore. A lock is a Slots of one permit."""

from __future__ import annotations

from headway.core.gates.spec import GateKind, GateSpec, check_count, check_gate_name


def Slots(name: str, capacity: int, *, shared: bool | None = None) -> GateSpec:  # noqa: N802  (reads as the record that it builds)
    """Declare a gate that at most `capacity` permits are out of.

    Args:
        name: fixed, or a template over arguments such as `repo:{url}`.
        capacity: permits, from 0 (nothing passes).
        shared: True where an argument in the name has few values.

    Returns:
        The gate.

    Raises:
        InvalidValue: the name or the capacity is unusable.
    """
    text, common = check_gate_name(name, shared=shared)
    return GateSpec(
        name=text,
        kind=GateKind.SLOTS,
        shared=common,
        capacity=check_count(f"capacity of {text!r}", capacity, least=0),
    )


def room(capacity: int | None, used: int) -> int:
    """Permits that are free; none, never a negative number, above the capacity.

    Args:
        capacity: None for unlimited.
    """
    return UNLIMITED if capacity is None else max(0, capacity - used)


UNLIMITED = 2**62
"""More permits than a job can ask for."""
