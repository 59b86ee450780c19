"""Rate: at most n starts in any window, exactly."""

from __future__ import annotations

from headway.core.duration import Duration, check_duration
from headway.core.gates.spec import GateKind, GateSpec, GateTraits, check_count, check_gate_name


def Rate(name: str, limit: int, per: Duration, *, shared: bool | None = None) -> GateSpec:  # noqa: N802  (reads as the record that it builds)
    """Declare a gate that allows at most `limit` starts in any window of length `per`.

    The window is half-open and may start anywhere: two starts exactly `per` apart share none.

    Args:
        name: a fixed name, or a template over arguments such as `customer:{phone}`.
        limit: number of starts; with 0 no job passes.
        per: length of the window, as "1h" or a timedelta; at least 1 ms.
        shared: True if an argument in the name has only few values.

    Raises:
        InvalidValue: an argument is not valid.
    """
    text, common = check_gate_name(name, shared=shared)
    return GateSpec(
        name=text,
        kind=GateKind.RATE,
        shared=common,
        limit=check_count(f"limit of {text!r}", limit, least=0),
        per_ms=check_duration(f"per of {text!r}", per, least=1),
    )


RATE = GateTraits(
    declared=lambda spec: {"limit": spec.limit, "per": spec.per_ms, "shared": spec.shared},
    counts_starts=True,
    settable=frozenset({"limit", "per_ms"}),
    has_own_limit=True,
)
