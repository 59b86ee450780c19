"""Checks of a store's content: lanes, jobs, gates, permits, clock, signal URLs."""

from __future__ import annotations

from collections.abc import Mapping

from headway.cli.doctor import LONG_MS, TOLERATED_MS, Finding, ok, problem, warning
from headway.cli.progress import Meter, silent
from headway.cli.settings import Settings
from headway.contract.store import Store, read_pages
from headway.contract.views import (
    AuditQuery,
    AuditView,
    Difference,
    GatesQuery,
    GateState,
    JobsQuery,
    LanesQuery,
    StatsQuery,
    TokensQuery,
    WhyQuery,
)
from headway.core.duration import format_duration
from headway.core.local_time import DAY_MS
from headway.core.naming import counted
from headway.core.state import State
from headway.server.finding import underway_jobs


async def whole_audit(store: Store, meter: Meter = silent) -> AuditView:
    """Return the audit of all gates."""
    differences: list[Difference] = []
    gates = permits = held = 0
    async for page in read_pages(store, AuditQuery()):
        differences += page.differences
        gates, permits, held = gates + page.gates, permits + page.permits, held + page.held
        meter(gates)
    return AuditView(differences=tuple(differences), gates=gates, permits=permits, held=held)


async def check_signal_urls(store: Store, settings: Settings) -> list[Finding]:
    """Check that signal URLs are public and signed, so that they need no token.

    Nothing is checked while the store has no token.
    """
    if not await store.read(TokensQuery()):
        return []
    found: list[Finding] = []
    if settings.public_url is None:
        hint = 'set public_url = "https://…" in headway.toml, or HEADWAY_PUBLIC_URL'
        found.append(
            warning("public URL", "not set: signal URLs are not reachable from outside", hint)
        )
    if not settings.signing_keys:
        hint = "set signing_key, or HEADWAY_SIGNING_KEY, for both workers and servers"
        found.append(warning("signing key", "not set: signal URLs require a token", hint))
    return found or [ok("signal URLs", f"signed, under {settings.public_url}")]


MORE = "headway gates set {} --capacity N"
SYSTEM_LANES: Mapping[str, str] = {
    "automations": "automations",
    "calls": "calls",
    "calls.after": "calls",
    "offers": "field_service",
    "offers.after": "field_service",
    "rings": "field_service",
    "notify.push": "notifications",
    "notify.sms": "notifications",
    "notify.email": "notifications",
    "notify.webhook": "notifications",
    "notify.apprise": "notifications",
    "notify.history": "notifications",
}
"""Lanes of the built-in systems, with the system's name. An App may have lanes of these names."""
MOST_LANES = 20
"""Maximum lanes without a worker that are listed, so that they do not hide the other findings."""
SAMPLE = 100
"""Maximum waiting jobs, and as many parked ones, that are checked."""


async def check_lanes(store: Store) -> list[Finding]:
    """Check that each lane with unfinished jobs has a live worker."""
    findings: list[Finding] = []
    lanes = await store.read(LanesQuery())
    unserved = [lane for lane in lanes if lane.unfinished and not lane.workers]
    for lane in unserved[:MOST_LANES]:
        found = f"the lane {lane.name} has {counted(lane.unfinished, 'job')} but no live worker"
        findings.append(warning("lanes", found, _worker_for(lane.name)))
    if more := len(unserved) - len(findings):
        lines = counted(more, "more lane has", "more lanes have")
        found = f"{lines} jobs but no live worker"
        findings.append(warning("lanes", found, "headway lanes shows the workers of each"))
    number = counted(len(lanes), "lane")
    return findings or [ok("lanes", f"{number}; every lane with jobs has a worker")]


def _worker_for(lane: str) -> str:
    if lane.startswith("dispenserd/"):
        return "headway dispenserd"
    command = f"headway worker APP --lanes {lane}"
    system = SYSTEM_LANES.get(lane)
    return f"{command}, or headway worker --system {system}" if system else command


async def check_jobs(store: Store) -> list[Finding]:
    """Check a sample of waiting jobs for those that need more than a gate could ever give."""
    stuck: dict[str, list[str]] = {}
    pools: set[str] = set()
    asked = 0
    for state in (State.WAITING, State.PARKED):
        for job in await underway_jobs(store, JobsQuery(states=(state,), limit=SAMPLE)):
            why = await store.read(WhyQuery(id=job.id))
            asked += why is not None
            for gate in why.never_fits if why else ():
                stuck.setdefault(gate, []).append(job.id)
            closed = why.closed if why else ()
            pools |= {gate.name for gate in closed if gate.traits.chooses_member}
    if not stuck:
        return [ok("jobs", f"{asked} waiting jobs checked; all fit the capacity of their gates")]
    return [
        problem(
            "never fits",
            f"{len(jobs)} of {asked} waiting jobs need more of {gate} than it has (as {jobs[0]})",
            f"{ADD_MEMBERS if gate in pools else MORE.format(gate)}, or cancel them",
        )
        for gate, jobs in stuck.items()
    ]


async def check_clock(store: Store) -> list[Finding]:
    """Check that the store's time is not ahead of its clock: until then, nothing falls due."""
    ahead_ms = (await store.read(StatsQuery())).clock_ahead_ms
    if ahead_ms <= TOLERATED_MS:
        return [ok("clock", "the store's time agrees with its clock")]
    found = f"the store's time is {format_duration(ahead_ms)} ahead of its clock, and waits for it"
    hint = "check the machine's clock; if it is correct now, run headway doctor --reset-clock"
    return [(problem if ahead_ms > LONG_MS else warning)("clock", found, hint)]


HORIZON_MS = 7 * DAY_MS
"""A chore computes 14 days ahead; less than half of that is left only if no chore runs."""
ADD_MEMBERS = "add members to the pool, or raise the capacity of one"
"""The hint for a full pool: a pool has no capacity of its own to raise."""
_LISTED = 5


async def check_gates(store: Store) -> list[Finding]:
    """Check that opening hours are computed ahead, and list gates that no job can pass."""
    now = (await store.read(StatsQuery())).now
    findings: list[Finding] = []
    closed: list[str] = []
    zero: list[str] = []
    empty: list[str] = []
    pages = read_pages(store, GatesQuery(limit=1000))
    count = 0
    async for gate in (gate async for page in pages for gate in page.rows):
        count += 1
        if gate.horizon_at is not None and gate.horizon_at - now < HORIZON_MS:
            findings.append(_short(gate, gate.horizon_at - now))
        if gate.closed_until is not None and not gate.open:
            closed.append(gate.name)
        elif gate.capacity == 0:
            (empty if gate.traits.chooses_member else zero).append(gate.name)
        elif not gate.open:
            closed += [one.name for one in gate.members if one.closed_until is not None]
    if closed:
        hint = "headway gates shows who closed them and why"
        findings.append(warning("closed", f"{_number(closed)} closed: {_some(closed)}", hint))
    if zero:
        hint = "no job can pass; headway gates set or reset restores its capacity"
        findings.append(warning("zero", f"{_number(zero)} at capacity 0: {_some(zero)}", hint))
    if empty:
        found = f"{_number(empty)} without a member of any capacity: {_some(empty)}"
        findings.append(warning("empty", found, f"no job can pass; {ADD_MEMBERS}"))
    number = counted(count, "gate")
    return findings or [
        ok("gates", f"{number}, none closed by hand or by a job, opening hours computed ahead")
    ]


def _number(gates: list[str]) -> str:
    return counted(len(gates), "gate is", "gates are")


def _some(gates: list[str]) -> str:
    return ", ".join(gates[:_LISTED]) + (", …" if len(gates) > _LISTED else "")


def _short(gate: GateState, left_ms: int) -> Finding:
    hint = "run a worker: its maintenance extends it"
    if left_ms <= 0:
        found = f"the opening hours of {gate.name} are not computed, so it is closed"
        return problem("hours", found, hint)
    found = f"the opening hours of {gate.name} are computed only {format_duration(left_ms)} ahead"
    return warning("hours", found, hint)


async def check_permits(store: Store) -> list[Finding]:
    """Check that permits match their holders, and counts match permits."""
    found = await whole_audit(store)
    if not found.differences:
        permits = counted(found.permits, "permit")
        return [ok("permits", f"{permits} of {counted(found.gates, 'gate')} add up")]
    hint = "this is a bug in Headway: please report it with the output of headway audit"
    return [problem("permits", f"{one.where}: {one.what}", hint) for one in found.differences][
        :_LISTED
    ]
