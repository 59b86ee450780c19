"""Changes of gates: declarations by code; values and openings set by operators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headway.contract.definitions import SetGate
from headway.core.errors import InvalidValue
from headway.core.gates.pool import member_gate
from headway.core.gates.spec import GateSpec, check_count, is_implicit
from headway.core.naming import check_name
from headway.core.state import State
from headway.stores.ledger.feeding import feed_gate, refit
from headway.stores.ledger.gate_cache import extend
from headway.stores.ledger.gatekinds import rules_of
from headway.stores.ledger.gaterows import (
    GateTemplates,
    PermitRow,
    TemplateRow,
    implicit_hold,
)
from headway.stores.ledger.step import Step

PAGE = 1_000


def declare_gate(step: Step, spec: GateSpec) -> bool:
    """Declare a gate, and return whether anything changed.

    Raises:
        InvalidValue: it is declared as another kind, or has the name of a pool's member; nothing
            was written.
    """
    known = step.cache.template(spec.name)
    if known is not None and known.spec == spec:
        return False
    if known is not None and (known.spec.kind != spec.kind or known.spec.shared != spec.shared):
        old = f"{'shared' if known.spec.shared else 'keyed'} {known.spec.kind}"
        new = f"{'shared' if spec.shared else 'keyed'} {spec.kind}"
        message = f"the gate {spec.name!r} is declared as a {old}, not a {new}"
        raise InvalidValue(
            message, hint="give the new gate another name; jobs are waiting at the old one"
        )
    step.cache.refuse_members_name(spec)
    save_template(step, TemplateRow(spec=spec, override=known.override if known else None))
    return True


def save_template(step: Step, row: TemplateRow) -> None:
    """Write a declared gate, and apply it to all its instances."""
    step.ledger.gates.save_template(row)
    step.cache.templates = GateTemplates({**step.cache.templates, row.spec.name: row})
    step.cache.views.clear()
    name = row.spec.name
    if row.spec.hours is not None:
        _recompute_hours(step, name)
    elif not row.spec.shared:
        _recheck_keyed(step, name)


def _recompute_hours(step: Step, template: str) -> None:
    after = ""
    while rows := step.ledger.gates.page(after, PAGE):
        for row in rows:
            if row.template == template:
                extend(step.cache, row.name, template, row.zone or "UTC")
        after = rows[-1].name


def _recheck_keyed(step: Step, template: str) -> None:
    """Make the timers of a template's keyed gates with parked jobs due now."""
    after = ""
    jobs = step.ledger.jobs
    while names := jobs.parked_gates(after, PAGE):
        for name in names:
            if step.cache.place_of(name).template == template:
                row = step.cache.change(name, template)
                row.timer_at = step.ledger.now
        after = names[-1]


def check_set(item: SetGate) -> str:
    """Validate the values to set on a gate, and return them as text for the trail.

    Raises:
        InvalidValue: there is no value, or one is out of its range.
    """
    check_name("gate", item.name)
    for what, value in (("capacity", item.capacity), ("limit", item.limit)):
        if value is not None:
            check_count(f"{what} of {item.name!r}", value, least=0)
    if item.per_ms is not None and item.per_ms < 1:
        message = f"{item.per_ms} ms is not a valid window of the gate {item.name!r}"
        raise InvalidValue(message, hint="it must be at least 1 ms")
    for member, capacity in item.members or ():
        check_name(f"member of {item.name!r}", member)
        check_count(f"capacity of {member!r}", capacity, least=0)
    values = ", ".join(f"{what} {value}" for what, value in _values_of(item).items())
    if not values:
        message = f"nothing to set on the gate {item.name!r}"
        raise InvalidValue(message, hint="pass a capacity, a limit and window, or members")
    return values


def _values_of(item: SetGate) -> dict[str, Any]:
    values = ("capacity", "limit", "per_ms", "members")
    return {what: value for what in values if (value := getattr(item, what)) is not None}


def set_gate(step: Step, item: SetGate) -> None:
    """Set an operator's values on a gate.

    Raises:
        UnknownGate: the gate is not declared; nothing was written.
        InvalidValue: this kind of gate has no such value, or a member has the name of a declared
            gate; nothing was written.
    """
    declared = step.cache.template(item.name)
    if declared is not None:
        override = _with_values(step, declared, item)
        save_template(step, TemplateRow(spec=declared.spec, override=override))
        return
    _set_instance(step, item)


def _with_values(step: Step, declared: TemplateRow, item: SetGate) -> GateSpec:
    spec = declared.current
    values = _values_of(item)
    settable = rules_of(spec.kind).settable
    wrong = next((what for what in values if what not in settable), None)
    if wrong is not None:
        message = f"the gate {item.name!r} is of kind '{spec.kind}', which has no {wrong!r}"
        raise InvalidValue(message, hint="Slots has a capacity, Rate a limit and per, Pool members")
    changed = replace(spec, **values)
    step.cache.refuse_members_name(changed)
    return changed


def _set_instance(step: Step, item: SetGate) -> None:
    if item.members is not None or item.per_ms is not None:
        message = f"{item.name!r} is one instance of a gate"
        raise InvalidValue(message, hint="set members and windows on the declared gate")
    value = item.capacity if item.capacity is not None else item.limit
    if is_implicit(item.name):
        if item.limit is not None:
            message = f"the gate {item.name!r} has a capacity, but no limit of starts"
            raise InvalidValue(message, hint="pass a capacity; to limit starts, declare a Rate")
        track_implicit(step, item.name)
        step.cache.change(item.name, "").capacity = value
        return
    place = step.cache.place_of(item.name)
    spec = step.cache.spec(place.template)
    if not place.pool and (spec is None or not rules_of(spec.kind).has_own_limit):
        kind = spec.kind if spec else "gate"
        message = f"{item.name!r} is of kind '{kind}', which has no limit of its own"
        hint = "set a pool's members, or the capacity of `pool/member`; change hours in the code"
        raise InvalidValue(message, hint=hint)
    step.cache.change(item.name, place.template, place.pool).capacity = value
    _after_change(step, item.name)


def _after_change(step: Step, name: str) -> None:
    row = step.cache.find(name)
    step.cache.forget_view(name)
    refit(step.cache, name)
    feed_gate(step.cache, name)
    if row is not None and row.pool and row.pool != name:
        refit(step.cache, row.pool)
        feed_gate(step.cache, row.pool)


def track_implicit(step: Step, gate: str) -> None:
    """Count permits of an implicit gate from now on, including those of jobs already running.

    Args:
        gate: `all`, `lane:…`, `tenant:…` or `kind:…`, which is about to get a limit.
    """
    what, _, name = gate.partition(":")
    hold = implicit_hold(gate)
    ledger = step.ledger
    after = ""
    while held := ledger.jobs.held(after, PAGE):
        after = held[-1].id
        ours = [
            row
            for row in held
            if (row.state is State.RUNNING or hold == "settled")
            and (gate == "all" or getattr(row, what) == name)
        ]
        have = {
            one.job for one in ledger.permits.of_jobs(row.id for row in ours) if one.gate == gate
        }
        new = [
            PermitRow(gate, row.id, row.run, "", 1, row.claimed_at or ledger.now, hold)
            for row in ours
            if row.id not in have
        ]
        if new:
            ledger.permits.add(new)
            step.cache.count_taken(gate, "", len(new))
            for row in ours:
                if row.id not in have:
                    row.care = row.gated = True
                    row.members = {**row.members, gate: ""}
            ledger.jobs.save(ours)


def reset_gate(step: Step, name: str) -> None:
    """Remove an operator's values, so that the declared ones apply again.

    Raises:
        UnknownGate: the gate is not declared; nothing was written.
    """
    declared = step.cache.template(name)
    if declared is not None:
        save_template(step, TemplateRow(spec=declared.spec))
        for member, _ in declared.spec.members:
            _reset_instance(step, member_gate(name, member))
    row = step.cache.find(name)
    if row is None and declared is None:
        step.cache.place_of(name)
    _reset_instance(step, name)


def _reset_instance(step: Step, name: str) -> None:
    row = step.cache.find(name)
    if row is not None and row.capacity is not None:
        step.cache.change(name, row.template, row.pool).capacity = None
        _after_change(step, name)


def open_gate(step: Step, name: str) -> bool:
    """Open a gate, and return whether it was closed.

    Raises:
        UnknownGate: the gate is not declared; nothing was written.
    """
    row = step.cache.find(name)
    if row is None:
        step.cache.place_of(name)
        return False
    if row.closed_until is None:
        return False
    row = step.cache.change(name, row.template, row.pool)
    row.closed_until, row.closed_by, row.closed_reason = None, "", ""
    _after_change(step, name)
    return True
