"""From which values on it is alerted: the table [calls.alerts] of headway.toml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from headway.core.duration import parse_duration
from headway.core.errors import HeadwayError, InvalidValue
from headway.core.naming import did_you_mean

_MS = "_ms"
WHERE = "calls.alerts"


@dataclass(frozen=True, kw_only=True, slots=True)
class Thresholds:
    """From which values on each rule speaks; spans are in ms, shares from 0 to 1.

    Attributes:
        runbooks: what stands before `#` and the rule's name in the link of an alert.
        dispatch_halted_more_than: so many overdue leads that could go are borne.
        dispatch_halted_for_ms: how long they must be there.
        orphan_webhook_more_than: so many new ones are borne.
        orphan_webhook_within_ms: how long one is new.
        no_number_for_ms: how long leads must wait for a pool of which no number can be used.
        intake_failing_above: a share of the requests that bring leads.
        intake_failing_least: so many must have failed.
        intake_failing_within_ms: how long a request counts.
        latency_high_above_ms: of due to dial, waits behind gates left out, by 99 of 100.
        latency_high_least: so many calls must have been dialled in the last five minutes.
        latency_high_for_ms: how long it must last.
        webhooks_lost_more_than: so many new ones of a number are borne.
        webhooks_lost_within_ms: how long one is new.
        workers_dying_above: a share of the workers.
        workers_dying_within_ms: how long one that was lost counts.
        depth_high_above: overdue leads.
        no_leader_for_ms: for how long ended leases may wait for who minds them.
        one_tenant_above: a share of the overdue leads.
        one_tenant_least: so many leads must be overdue.
    """

    runbooks: str = "docs/how-to/calls-runbooks.md"
    dispatch_halted_more_than: int = 100
    dispatch_halted_for_ms: int = 120_000
    orphan_webhook_more_than: int = 0
    orphan_webhook_within_ms: int = 300_000
    no_number_for_ms: int = 30_000
    intake_failing_above: float = 0.01
    intake_failing_least: int = 5
    intake_failing_within_ms: int = 300_000
    latency_high_above_ms: int = 5_000
    latency_high_least: int = 10
    latency_high_for_ms: int = 300_000
    webhooks_lost_more_than: int = 0
    webhooks_lost_within_ms: int = 900_000
    workers_dying_above: float = 0.5
    workers_dying_within_ms: int = 300_000
    depth_high_above: int = 50_000
    no_leader_for_ms: int = 30_000
    one_tenant_above: float = 0.8
    one_tenant_least: int = 100


def read_thresholds(given: Mapping[str, object]) -> Thresholds:
    """Reads the table.

    Args:
        given: as written: the names of `Thresholds` without `_ms`; spans as "2m".

    Returns:
        The values with their defaults.

    Raises:
        InvalidValue: there is no such key, or a value is unusable.
    """
    types = {field.name: field.type for field in fields(Thresholds)}
    known = {name.removesuffix(_MS): name for name in types}
    values: dict[str, object] = {}
    for key, value in given.items():
        if key not in known:
            message = f"{WHERE}: there is no setting {key!r:.80}"
            hint = did_you_mean(key, known, f"known: {', '.join(known)}")
            raise InvalidValue(message, hint=hint)
        name = known[key]
        values[name] = _read(key, value, span=name.endswith(_MS), sort=str(types[name]))
    return Thresholds(**values)  # type: ignore[arg-type]  (each was read by its field)


def _read(key: str, value: object, *, span: bool, sort: str) -> object:
    if span:
        try:
            return parse_duration(value)
        except HeadwayError as error:
            message = f"{WHERE}.{key}: {error.message}"
            raise InvalidValue(message, hint=error.hint) from None
    if sort == "str":
        if isinstance(value, str):
            return value
        hint = "the address of a page"
    elif sort == "float":
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
            return float(value)
        hint = "a share from 0 to 1, such as 0.01"
    else:
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        hint = "a whole number from 0"
    message = f"{WHERE}.{key} is {value!r:.40}"
    raise InvalidValue(message, hint=hint)
