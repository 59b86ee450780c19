"""Opening: Hours as a gate, which lets jobs start only at certain local times."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from headway.core.errors import InvalidValue
from headway.core.gates.hours import format_spans, hours_spec
from headway.core.gates.spec import GateKind, GateSpec, GateTraits, check_gate_name
from headway.core.local_time import format_days
from headway.core.naming import placeholders


def Hours(  # noqa: N802  (reads as the record that it builds)
    name: str,
    spans: str,
    *,
    days: str = "daily",
    tz: str = "UTC",
    exceptions: Mapping[str, str | None] | Mapping[date, str | None] | None = None,
) -> GateSpec:
    """Declare a gate that is open only at these local times. It is always shared.

    Args:
        name: a fixed name, or a template over arguments such as `hours:{tz}`.
        spans: "09:00-18:00", or several spans separated by commas; a span whose end is not after
            its start ends on the next day.
        days: weekdays on which the spans start: "mon-fri", "mon,wed,sat-sun" or "daily".
        tz: an IANA time zone, or a template such as "{tz}" whose placeholders are also in the name.
        exceptions: spans for individual dates ("2026-12-25"); None for closed all day.

    Raises:
        InvalidValue: an argument is not valid, or jobs in two zones would share one gate.
    """
    text, _ = check_gate_name(name, shared=True)
    spec = hours_spec(spans, days=days, tz=tz, exceptions=exceptions)
    for field in placeholders(tz):
        if field not in placeholders(text):
            message = f"the hours {text!r} depend on {field!r}, but their name does not"
            raise InvalidValue(message, hint=f"name them {text}:{{{field}}}")
    return GateSpec(name=text, kind=GateKind.HOURS, shared=True, hours=spec)


def _declared(spec: GateSpec) -> dict[str, object]:
    if spec.hours is None:
        return {}
    exceptions = {
        day.isoformat(): format_spans(spans) if spans else None
        for day, spans in spec.hours.exceptions
    }
    return {
        "hours": format_spans(spec.hours.spans),
        "days": format_days(spec.hours.days),
        "tz": spec.hours.tz,
        "exceptions": exceptions,
    }


HOURS = GateTraits(declared=_declared)
