"""Jobs, runs and gates as name-value pairs and table rows."""

from __future__ import annotations

from headway.cli.terminal import LocalClock, rounded_duration
from headway.contract.views import GateState, JobView, RunView, WhyView
from headway.core.duration import format_duration
from headway.core.local_time import MAX_AT

GATE_COLUMNS = (
    "GATE", "KIND", "STATE", "USED", "OF", "PARKED", "OPENS", "CLOSED BY", "REASON", "",
)  # fmt: skip


def gate_state(gate: GateState) -> str:
    """Return "open", "full", "closed", or "unused" for hours that no job has needed yet."""
    if gate.closed_until is not None:
        return "closed"
    if gate.open:
        return "open"
    if gate.traits.counts:
        return "full"
    known = gate.horizon_at is not None or gate.opens_at is not None
    return "closed" if known else "unused"


def capacity_text(gate: GateState) -> str:
    """Return a gate's capacity, such as "4" or "7 per 1h"; "" if it has none."""
    if gate.capacity is None:
        return ""
    per = "" if gate.per_ms is None else f" per {format_duration(gate.per_ms)}"
    return f"{gate.capacity}{per}"


def _opens(clock: LocalClock, gate: GateState, now: int) -> str:
    opens_at = gate.opens_at if gate.opens_at is not None else gate.closed_until
    if opens_at is not None and opens_at > MAX_AT:
        return "when resumed"
    return clock.around(opens_at, now)


def gate_row(clock: LocalClock, gate: GateState, now: int) -> list[str]:
    """Return a gate as a row of `GATE_COLUMNS`."""
    return [
        gate.name,
        gate.kind,
        gate_state(gate),
        str(gate.used) if gate.traits.counts else "",
        capacity_text(gate),
        str(gate.parked) if gate.parked else "",
        _opens(clock, gate, now),
        gate.closed_by,
        gate.closed_reason,
        "set by an operator" if gate.overridden else "",
    ]


def gate_facts(clock: LocalClock, gate: GateState, now: int) -> list[tuple[str, str]]:
    """Return all fields of a gate except its members and holders; "" for unknown values."""
    return [
        ("gate", gate.name),
        ("kind", gate.kind),
        ("declared as", gate.template if gate.template and gate.template != gate.name else ""),
        ("shared", "yes" if gate.shared else "no, keyed"),
        ("state", gate_state(gate)),
        ("used", str(gate.used) if gate.traits.counts else ""),
        ("limit" if gate.per_ms else "capacity", capacity_text(gate)),
        ("free", "" if gate.free is None else str(gate.free)),
        ("reserved", f"{gate.reserved} for {gate.reserved_for}" if gate.reserved_for else ""),
        ("parked", str(gate.parked) if gate.parked else ""),
        ("opens", _opens(clock, gate, now)),
        ("closed by", gate.closed_by),
        ("reason", gate.closed_reason),
        ("hours known until", clock.around(gate.horizon_at, now)),
        ("set by an operator", "yes" if gate.overridden else ""),
    ]


UNBOUNDED = 1_000
"""From this many allowed attempts on, the number is not shown: the handler decides when to stop."""

RUN_COLUMNS = (
    "RUN", "TRY", "STAGE", "STARTED", "HANDED OVER", "ENDED", "OUTCOME", "PERMITS", "ERROR",
)  # fmt: skip

WHY_COLUMNS = ("IN ITS WAY", "KIND", "USED", "OF", "OPENS", "CLOSED BY", "REASON", "HELD BY")


def job_facts(clock: LocalClock, job: JobView) -> list[tuple[str, str]]:
    """Return all fields of a job except its runs and trail; "" for unknown values."""
    at = clock.at
    gates = ", ".join(
        use.name if use.amount == 1 else f"{use.name} ({use.amount})" for use in job.gates
    )
    asked = ", cancel requested" if job.cancel_requested else ""
    doubt = ", in doubt" if job.in_doubt else ""
    return [
        ("id", job.id),
        ("kind", job.kind),
        ("state", f"{job.shown}{asked}{doubt}"),
        ("reason", job.reason),
        ("last error", _first_line(job.error)),
        ("lane", job.lane),
        ("tenant", job.tenant),
        ("subject", job.subject or ""),
        ("stage", job.stage),
        ("priority", str(job.priority)),
        ("due", at(job.due_at)),
        ("created", at(job.created_at)),
        ("expires", at(job.expires_at)),
        ("deadline", at(job.deadline_at)),
        ("finished", at(job.finished_at)),
        ("gates", gates),
        ("parked at", job.parked_at or ""),
        ("key", job.key or ""),
        ("timetable", job.entry or ""),
        ("attempt", _attempt(job)),
        ("life", str(job.life) if job.life > 1 else ""),
        ("worker", job.worker or ""),
        ("arguments", job.args.decode(errors="replace")),
        ("progress", (job.progress or b"").decode(errors="replace")),
        ("result", (job.result or b"").decode(errors="replace")),
        *_cascade(job),
    ]


def _attempt(job: JobView) -> str:
    bound = job.policy.retry.attempts
    return str(job.attempt) if bound >= UNBOUNDED else f"{job.attempt} of {bound}"


def _cascade(job: JobView) -> list[tuple[str, str]]:
    if job.cascade is None:
        return []
    return [
        ("whose turn", job.cascade.turn),
        ("to be asked", ", ".join(job.cascade.left)),
        ("asked", ", ".join(f"{one.candidate}: {one.answer}" for one in job.cascade.asked)),
    ]


def run_row(clock: LocalClock, run: RunView) -> list[str]:
    """Return a run as a row of `RUN_COLUMNS`."""
    permits = ", ".join(f"{gate}={who}" if who else gate for gate, who in run.permits.items())
    ended = clock.at(run.ended_at, exact=True)
    if run.ended_at is not None:
        ended = f"{ended} (after {rounded_duration(run.ended_at - run.claimed_at)})"
    return [
        str(run.run),
        str(run.attempt),
        run.stage,
        clock.at(run.claimed_at, exact=True),
        clock.at(run.handed_at, exact=True),
        ended,
        run.outcome,
        permits,
        _first_line(run.error),
    ]


def _first_line(error: str) -> str:
    return next(iter(error.splitlines()), "")[:200]


def why_facts(clock: LocalClock, found: WhyView) -> list[tuple[str, str]]:
    """Return the facts behind the sentence; "" for unknown values."""
    place = "" if found.place is None else str(found.place) if found.place <= 1000 else "1000+"
    return [
        ("job", found.id),
        ("state", found.shown),
        ("place in its flow", place),
        ("live workers", str(found.workers)),
        ("next", clock.around(found.next_at, found.now)),
        ("never fits", ", ".join(found.never_fits)),
    ]


def why_gate(clock: LocalClock, gate: GateState, now: int) -> list[str]:
    """Return a gate that blocks the job as a row of `WHY_COLUMNS`."""
    holders = ", ".join(f"{one.job}:{one.run}" for one in gate.holders[:3])
    more = gate.holder_count - min(len(gate.holders), 3)
    return [
        gate.name,
        gate.kind,
        str(gate.used) if gate.traits.counts else "",
        "" if gate.capacity is None else str(gate.capacity),
        _opens(clock, gate, now),
        gate.closed_by,
        gate.closed_reason,
        f"{holders} and {more} more" if more > 0 else holders,
    ]
