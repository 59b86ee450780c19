"""Gates as rows and facts of text output."""

from __future__ import annotations

from headway.cli.local_clock import LocalClock
from headway.contract.views import GateState
from headway.core.duration import format_duration

GATE_COLUMNS = (
    "GATE", "KIND", "STATE", "USED", "OF", "PARKED", "OPENS", "CLOSED BY", "REASON", "",
)  # fmt: skip


def gate_state(gate: GateState) -> str:
    """Return "open", "full" or "closed"; "unused" for hours that no job has asked for yet."""
    if gate.closed_by or gate.closed_until is not None:
        return "closed"
    if gate.open:
        return "open"
    if gate.kind != "hours":
        return "full"
    return "unused" if gate.horizon_at is None else "closed"


def capacity_text(gate: GateState) -> str:
    """What it has, as "4" or "7 per 1h"; empty where it has no number."""
    if gate.capacity is None:
        return ""
    per = "" if gate.per_ms is None else f" per {format_duration(gate.per_ms)}"
    return f"{gate.capacity}{per}"


def _opens(clock: LocalClock, gate: GateState, now: int) -> str:
    return clock.around(gate.opens_at if gate.opens_at is not None else gate.closed_until, now)


def gate_row(clock: LocalClock, gate: GateState, now: int) -> list[str]:
    """A gate under `GATE_COLUMNS`."""
    return [
        gate.name,
        gate.kind,
        gate_state(gate),
        "" if gate.kind == "hours" else str(gate.used),
        capacity_text(gate),
        str(gate.parked) if gate.parked else "",
        _opens(clock, gate, now),
        gate.closed_by,
        gate.closed_reason,
        "set by an operator" if gate.overridden else "",
    ]


def gate_facts(clock: LocalClock, gate: GateState, now: int) -> list[tuple[str, str]]:
    """All that is known of a gate but its members and holders."""
    return [
        ("gate", gate.name),
        ("kind", gate.kind),
        ("declared as", gate.template if gate.template and gate.template != gate.name else ""),
        ("shared", "yes" if gate.shared else "no, keyed"),
        ("state", gate_state(gate)),
        ("used", "" if gate.kind == "hours" else str(gate.used)),
        ("of", capacity_text(gate)),
        ("free", "" if gate.free is None else str(gate.free)),
        ("reserved", f"{gate.reserved} for {gate.reserved_for}" if gate.reserved_for else ""),
        ("parked", str(gate.parked) if gate.parked else ""),
        ("opens", _opens(clock, gate, now)),
        ("closed by", gate.closed_by),
        ("reason", gate.closed_reason),
        ("hours known until", clock.around(gate.horizon_at, now)),
        ("set by an operator", "yes" if gate.overridden else ""),
    ]
