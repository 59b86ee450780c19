"""Gates and retry policies of the engine, made from the tables of a scenario."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_never

from headway.core.gates.hours import hours_spec
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateKind, GateSpec, check_gate_name
from headway.core.retry import Backoff, RetryPolicy
from headway.lab.scenario_gates import GateTable, HoursTable, PoolTable, RateTable, SlotsTable
from headway.lab.scenario_kinds import RetryTable


def gate_spec(name: str, table: GateTable) -> GateSpec:
    """The gate that a table declares.

    Args:
        table: what the scenario says of it.

    Returns:
        The gate.

    Raises:
        InvalidValue: a value is unusable.
    """
    match table:
        case SlotsTable():
            return Slots(name, table.capacity, shared=table.shared)
        case RateTable():
            return Rate(name, table.limit, timedelta(milliseconds=table.per), shared=table.shared)
        case PoolTable():
            return Pool(name, table.members, strategy=table.strategy, shared=table.shared)
        case HoursTable():
            exceptions = {
                day: None if spans == "closed" else spans for day, spans in table.exceptions.items()
            }
            spec = hours_spec(table.open, days=table.days, tz=table.tz, exceptions=exceptions)
            text, _ = check_gate_name(name, shared=True)
            return GateSpec(name=text, kind=GateKind.HOURS, shared=True, hours=spec)
        case _:
            assert_never(table)


def backoff(table: RetryTable) -> RetryPolicy:
    """The policy that a table asks for.

    Raises:
        InvalidValue: a value is out of its range.
    """
    return Backoff(
        attempts=table.attempts,
        base=timedelta(milliseconds=table.base),
        factor=table.factor,
        cap=timedelta(milliseconds=table.cap),
        jitter=table.jitter,
    )
