"""Opening: Hours as a gate, which lets jobs start only at certain local times."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from headway.core.errors import InvalidValue
from headway.core.gates.hours import hours_spec
from headway.core.gates.spec import GateKind, GateSpec, check_gate_name
from headway.core.naming import placeholders


def Hours(  # noqa: N802  (reads as the record that it builds)
    name: str,
    spans: str,
    *,
    days: str = "daily",
    tz: str = "UTC",
    exceptions: Mapping[str, str | None] | Mapping[date, str | None] | None = None,
) -> GateSpec:
    """Declare a gate that is open at these local times only. It is always shared.

    Args:
        name: fixed, or a template over arguments such as `hours:{tz}`.
        spans: "09:00-18:00", or several with commas between; a closing that is not after its
            opening lies on the next day.
        days: the weekdays on which the spans begin: "mon-fri", "mon,wed,sat-sun" or "daily".
        tz: an IANA zone, or a template such as "{tz}", whose placeholders the name has too.
        exceptions: dates ("2026-12-25") with spans of their own; None for closed all day.

    Returns:
        The gate.

    Raises:
        InvalidValue: an argument is unusable, or jobs in two zones would share one gate.
    """
    text, _ = check_gate_name(name, shared=True)
    spec = hours_spec(spans, days=days, tz=tz, exceptions=exceptions)
    for field in placeholders(tz):
        if field not in placeholders(text):
            message = f"the hours {text!r} depend on {field!r}, but their name does not"
            raise InvalidValue(message, hint=f"name them {text}:{{{field}}}")
    return GateSpec(name=text, kind=GateKind.HOURS, shared=True, hours=spec)
