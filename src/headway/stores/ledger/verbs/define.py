"""Define: declare, change or reset gates, lanes, entries, closings and tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from headway.contract.definitions import (
    OVERLAPS,
    CloseGate,
    DeclareEntry,
    DeclareGate,
    DeclareLane,
    DefineRequest,
    EnableEntry,
    EntrySpec,
    Item,
    NoteUse,
    OpenGate,
    RemoveEntry,
    ResetGate,
    ResetLane,
    RevokeToken,
    SetGate,
    SetLane,
    SetToken,
)
from headway.core.check import check_contents
from headway.core.errors import RevisionConflict, UnknownEntry
from headway.core.gates.pool import member_gate
from headway.core.gates.spec import STRATEGIES
from headway.core.job import NewJob
from headway.core.naming import check_choice, check_name, check_note
from headway.core.state import State
from headway.core.timetable.fires import DROPPED
from headway.stores.ledger.gatechanges import (
    check_set,
    declare_gate,
    open_gate,
    reset_gate,
    set_gate,
    track_implicit,
)
from headway.stores.ledger.gaterows import FOREVER, TemplateRow
from headway.stores.ledger.insert import check_declared, check_turns
from headway.stores.ledger.ledger import Ledger, ReadAhead
from headway.stores.ledger.rows import EntryRow, LaneRow, TrailRow
from headway.stores.ledger.step import Step
from headway.stores.ledger.tokenchanges import (
    check_number,
    check_token,
    check_uses,
    note_use,
    revoke_token,
    set_token,
)


def define(ledger: Ledger, request: DefineRequest) -> int:
    """See `Store.define`.

    Raises:
        RevisionConflict: the definitions have changed in the meantime; nothing was written.
    """
    check_name("author", request.author)
    check_note("reason", request.reason)
    texts = [check_item(item) for item in request.items]
    revision = ledger.facts.revision()
    if request.revision is not None and request.revision != revision:
        message = f"the definitions are at revision {revision}, not {request.revision}"
        raise RevisionConflict(message, hint="read them again, then repeat the change")
    gates = [item.name for item in request.items if isinstance(item, _GATE_ITEMS)]
    ledger.read_ahead(ReadAhead(gates=gates, refits=gates))
    changed: set[type[Item]] = set()
    # Read once: a store's cache of them is valid only until the first item that changes one.
    templates = ledger.gates.templates()
    for item, text in zip(request.items, texts, strict=True):
        step = Step(ledger, templates)
        entry = _HANDLERS[type(item)](step, item, request)
        step.flush()
        templates = step.cache.templates
        if entry is None:
            continue
        changed.add(type(item))
        verb, target, detail = entry
        detail = text or detail
        ledger.trail.add(
            [TrailRow(0, ledger.now, request.author, request.reason, verb, target, detail)]
        )
    if not changed:
        return revision
    if SetToken in changed:
        check_number(ledger)
    if changed - _TOKEN_ITEMS:
        ledger.wake(None)
    return ledger.facts.bump_revision()


def check_item(item: Item) -> str:
    """Validate an item, independently of the store's content.

    Returns:
        Its values as text, for the trail; empty if its handler writes the detail.
    """
    _check_choices(item)
    match item:
        case SetGate():
            return check_set(item)
        case SetToken():
            return check_token(item.spec)
        case DeclareLane() | SetLane():
            check_name("lane", item.spec.name)
        case ResetLane():
            check_name("lane", item.name)
        case DeclareEntry():
            check_name("entry", item.spec.name)
            # The step that creates a fire would fail, and with it all else that has become due.
            check_contents([item.spec.job])
        case RevokeToken():
            check_name("token", item.id)
        case NoteUse():
            check_uses(item)
        case CloseGate():
            check_name("gate", item.name)
            check_note("reason", item.reason)
        case OpenGate() | ResetGate():
            check_name("gate", item.name)
        case _:
            pass
    return ""


def _check_choices(item: Item) -> None:
    match item:
        case DeclareGate():
            check_choice("the strategy", item.spec.strategy, STRATEGIES)
        case DeclareLane() | SetLane():
            check_choice("fair", item.spec.fair or "tenant", ("tenant",))
        case DeclareEntry():
            check_choice("overlap", item.spec.overlap, OVERLAPS)
        case _:
            pass


_GATE_ITEMS = SetGate | ResetGate | OpenGate
"""Items after which a gate may have room for jobs that wait there."""
_TOKEN_ITEMS: frozenset[type[Item]] = frozenset({SetToken, RevokeToken})
"""Items that cannot make a job startable, so no waiter is woken."""

TrailEntry = tuple[str, str, str] | None
"""Verb, target and detail for the trail; text from `check_item` replaces the detail. None if
nothing changed."""


def _declare_gate(step: Step, item: DeclareGate, _request: DefineRequest) -> TrailEntry:
    changed = declare_gate(step, item.spec)
    return ("declare gate", item.spec.name, str(item.spec.kind)) if changed else None


def _set_gate(step: Step, item: SetGate, _request: DefineRequest) -> TrailEntry:
    before = _values(step, item.name)
    set_gate(step, item)
    return None if _values(step, item.name) == before else ("set gate", item.name, "")


def _reset_gate(step: Step, item: ResetGate, _request: DefineRequest) -> TrailEntry:
    before = _values(step, item.name)
    reset_gate(step, item.name)
    return None if _values(step, item.name) == before else ("reset gate", item.name, "")


@dataclass(slots=True)
class _Values:
    """All values of a gate, to compare before and after a change."""

    declared: TemplateRow | None
    capacities: dict[str, int]


def _values(step: Step, name: str) -> _Values:
    values = _Values(step.cache.template(name), {})
    names = [name]
    if values.declared is not None:
        members = values.declared.spec.members
        names = [name, *(member_gate(name, member) for member, _ in members)]
    for one in names:
        row = step.cache.find(one)
        if row is not None and row.capacity is not None:
            values.capacities[one] = row.capacity
    return values


def _close(step: Step, item: CloseGate, request: DefineRequest) -> TrailEntry:
    row = step.cache.find(item.name)
    until = FOREVER if item.until_at is None else item.until_at
    author, reason = request.author, item.reason or request.reason
    if row is not None:
        same = row.closed_by == author and row.closed_reason == reason
        if same and row.closed_until == until:
            return None
        # An operator's closing replaces the former one, whether it is shorter or longer.
        step.cache.change(item.name, row.template, row.pool).closed_until = None
    step.close_gate(item.name, until, author, reason)
    return "close", item.name, "" if item.until_at is None else str(item.until_at)


def _open(step: Step, item: OpenGate, _request: DefineRequest) -> TrailEntry:
    return ("open", item.name, "") if open_gate(step, item.name) else None


def _declare_lane(step: Step, item: DeclareLane, _request: DefineRequest) -> TrailEntry:
    row = _lane(step, item.spec.name)
    if row.spec == item.spec:
        return None
    row.spec = item.spec
    _save_lane(step, row)
    return "declare lane", item.spec.name, ""


def _set_lane(step: Step, item: SetLane, _request: DefineRequest) -> TrailEntry:
    row = _lane(step, item.spec.name)
    if row.override == item.spec:
        return None
    row.override = item.spec
    _save_lane(step, row)
    return "set lane", item.spec.name, ""


def _reset_lane(step: Step, item: ResetLane, _request: DefineRequest) -> TrailEntry:
    row = step.ledger.lanes.load([item.name]).get(item.name)
    if row is None or row.override is None:
        return None
    row.override = None
    _save_lane(step, row)
    return "reset lane", item.name, ""


def _lane(step: Step, name: str) -> LaneRow:
    lanes = step.ledger.lanes
    lanes.ensure([name])
    return lanes.load([name])[name]


def _save_lane(step: Step, row: LaneRow) -> None:
    if row.current.concurrency is not None:
        track_implicit(step, f"lane:{row.name}")
    step.ledger.lanes.save(row)


def _declare_entry(step: Step, item: DeclareEntry, _request: DefineRequest) -> TrailEntry:
    spec = item.spec
    row = step.ledger.entries.load(spec.name)
    if row is None:
        _check_gates(step, spec.job)
        row = EntryRow(name=spec.name, spec=spec, revision=1, first_seen_at=step.ledger.now)
        step.ledger.entries.save(row)
        return "declare entry", spec.name, ""
    if row.spec is not None:
        # Only the first declaration sets `enabled`; after that the operator decides.
        job = _with_id(spec.job, row.spec.job.id)
        spec = replace(spec, enabled=row.spec.enabled, job=job)
        if spec == row.spec:
            return None
    _check_gates(step, spec.job)
    _drop_fires(step, row)
    # A new schedule has missed no fires; the same one still makes up for an outage.
    same = row.spec is not None and _same_schedule(row.spec, spec)
    row.ahead_until = None if same else step.ledger.now
    if not same and row.last_fired is not None:
        # The new schedule may fire before the next fire of the former one.
        row.last_fired = min(row.last_fired, step.ledger.now)
    row.spec = spec
    row.revision += 1
    step.ledger.entries.save(row)
    return "declare entry", spec.name, f"revision {row.revision}"


def _check_gates(step: Step, job: NewJob) -> None:
    """Refuse a job whose gates each fire would be refused for."""
    check_declared(step.cache, job.kind, job.gates)
    if job.policy.cascade:
        check_turns(step.cache, job.kind, job.gates, job.candidates)


def _with_id(job: NewJob, id_: str) -> NewJob:
    return job.changed(id=id_)


def _same_schedule(one: EntrySpec, other: EntrySpec) -> bool:
    return one.schedule == other.schedule


def _enable_entry(step: Step, item: EnableEntry, _request: DefineRequest) -> TrailEntry:
    row = _entry(step, item.name)
    assert row.spec is not None  # noqa: S101  (checked by _entry)
    if row.spec.enabled == item.enabled:
        return None
    if not item.enabled:
        _drop_fires(step, row)
    row.spec = replace(row.spec, enabled=item.enabled)
    row.revision += 1
    row.ahead_until = None
    # Fires from the time it was disabled do not count as missed.
    row.last_fired = max(row.last_fired or 0, step.ledger.now)
    step.ledger.entries.save(row)
    return "enable" if item.enabled else "disable", item.name, ""


def _remove_entry(step: Step, item: RemoveEntry, _request: DefineRequest) -> TrailEntry:
    row = _entry(step, item.name)
    _drop_fires(step, row)
    row.spec, row.ahead_until = None, None
    row.revision += 1
    step.ledger.entries.save(row)
    return "remove entry", item.name, ""


def _entry(step: Step, name: str) -> EntryRow:
    row = step.ledger.entries.load(name)
    if row is None or row.spec is None:
        message = f"no timetable entry {name!r}"
        raise UnknownEntry(message, hint="`headway timetable` lists them")
    return row


def _drop_fires(step: Step, row: EntryRow) -> None:
    """Cancel the scheduled fires of an entry, those due but not promoted yet among them.

    The next revision inserts them again if the schedule is the same.
    """
    for job in step.ledger.jobs.of_entry(row.name):
        # A job that has run waits for its retry: its fire has happened.
        if job.state is State.SCHEDULED and not job.run:
            # Not counted as folded: no earlier fire replaces it.
            step.end(job, State.CANCELLED, "", reason=DROPPED)
            if row.last_fired is not None:
                row.last_fired = min(row.last_fired, (job.fired_at or 0) - 1)


def _set_token(step: Step, item: SetToken, request: DefineRequest) -> TrailEntry:
    changed = set_token(step.ledger, item.spec, request.author)
    return ("set token", item.spec.id, "") if changed else None


def _revoke_token(step: Step, item: RevokeToken, _request: DefineRequest) -> TrailEntry:
    name = revoke_token(step.ledger, item.id)
    return None if name is None else ("revoke token", item.id, name)


def _note_use(step: Step, item: NoteUse, _request: DefineRequest) -> TrailEntry:
    note_use(step.ledger, item)


_HANDLERS: dict[type[Item], Callable[..., TrailEntry]] = {
    DeclareGate: _declare_gate,
    SetGate: _set_gate,
    ResetGate: _reset_gate,
    CloseGate: _close,
    OpenGate: _open,
    DeclareLane: _declare_lane,
    SetLane: _set_lane,
    ResetLane: _reset_lane,
    DeclareEntry: _declare_entry,
    EnableEntry: _enable_entry,
    RemoveEntry: _remove_entry,
    SetToken: _set_token,
    RevokeToken: _revoke_token,
    NoteUse: _note_use,
}
