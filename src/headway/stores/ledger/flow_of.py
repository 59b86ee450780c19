"""The flow in which a job waits, from the gates that it asks for."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.check import check_gates
from headway.core.errors import InvalidValue, UnknownGate
from headway.core.gates.spec import GateUse
from headway.stores.ledger.gatebook import GateBook
from headway.stores.ledger.horizon import ensure_hours
from headway.stores.ledger.rows import FlowKey


def flow_of(
    book: GateBook, lane: str, tenant: str, kind: str, gates: Sequence[GateUse]
) -> tuple[int, tuple[GateUse, ...]]:
    """Find or make the flow of a job.

    Args:
        book: the step's gates; hours that are new are added to it.

    Returns:
        The flow's number, and those of the gates that are keyed.

    Raises:
        UnknownGate: a gate is not declared; the step must be rolled back.
        InvalidValue: the gates cannot be asked for together, or one is declared as a shared gate
            and asked for as a keyed one or the reverse; the step must be rolled back.
    """
    make_ready(book, kind, gates)
    keyed = tuple(use for use in gates if not use.shared)
    return book.ledger.jobs.flow_number(flow_key(lane, tenant, kind, gates)), keyed


def flow_key(lane: str, tenant: str, kind: str, gates: Sequence[GateUse]) -> FlowKey:
    """Return the flow of a job that asks for these gates."""
    return FlowKey(lane, tenant, kind, tuple(use for use in gates if use.shared))


def make_ready(book: GateBook, kind: str, gates: Sequence[GateUse]) -> None:
    """Check that a job can ask for these gates, and compute hours that are new.

    Args:
        book: the step's gates; hours that are new are added to it.

    Raises:
        UnknownGate: as `flow_of`.
        InvalidValue: as `flow_of`.
    """
    check_gates(kind, gates)
    for use in gates:
        spec = book.spec(use.template)
        if spec is None:
            message = f"a job of kind {kind!r} needs the gate {use.template!r}"
            raise UnknownGate(message, hint="it is not declared; declare it before you enqueue")
        if spec.shared != use.shared:
            one, other = ("shared", "keyed") if spec.shared else ("keyed", "shared")
            message = f"the gate {use.template!r} is {one}, and is asked for as {other}"
            raise InvalidValue(message, hint="ask for it as it is declared")
        if use.zone is not None:
            ensure_hours(book, use)
