"""Reports on automations, read from the store each time."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from headway.contract.definitions import DefineRequest, ResetGate, SetGate
from headway.contract.operate import Acted, Verb
from headway.contract.store import Store
from headway.contract.views import GatesQuery, JobQuery, JobsQuery, JobView, StatsQuery
from headway.core.errors import InvalidValue, StoreError, UnknownJob
from headway.core.state import State
from headway.core.timetable.plan import make_plan, next_fire
from headway.core.timetable.schedule import format_schedule
from headway.systems.automations.config import MOST_SESSIONS, Automation
from headway.systems.automations.dispatcher import (
    KIND,
    LANE,
    LIMIT,
    LIVE,
    Dispatcher,
    anchored,
    entries_of,
)
from headway.systems.automations.repository import read_repository
from headway.systems.automations.runner import FORCE_RELEASED
from headway.systems.automations.session import session_id
from headway.systems.jobs import act

MOST = 1_000
"""Most jobs that a listing reads."""
_DUE = tuple(state for state in State if state not in {State.SCHEDULED, State.CANCELLED})
"""States of jobs that have fallen due; excludes those of fires created ahead of time."""

HealthStatus = Literal["healthy", "degraded", "unhealthy"]


@dataclass(kw_only=True, slots=True)
class DispatchResult:
    """What one dispatch did.

    Attributes:
        not_due: enabled entries that were not due, or outside their window.
        dispatched: sessions that it started.
        locked: due entries whose repository is in use, whose previous session is still running, or
            that a concurrent dispatch has started.
        concurrency_limit: due entries beyond the limit of sessions.
        disabled: entries that are disabled, or have failed permanently.
        errors: `automation_id` and `error` of invalid entries, and of sessions that could not be
            started.
    """

    dispatched: int = 0
    not_due: int = 0
    locked: int = 0
    concurrency_limit: int = 0
    disabled: int = 0
    errors: list[dict[str, str | None]] = field(default_factory=list[dict[str, str | None]])

    def document(self, *, camel: bool = False) -> dict[str, Any]:
        """Return the result as JSON values.

        Args:
            camel: whether keys are in camel case.
        """
        names = ("not_due", "locked", "concurrency_limit", "disabled")
        skipped = {_camel(one) if camel else one: getattr(self, one) for one in names}
        errors = [
            {_camel(key) if camel else key: text for key, text in one.items()}
            for one in self.errors
        ]
        return {"dispatched": self.dispatched, "skipped": skipped, "errors": errors}


@dataclass(frozen=True, kw_only=True, slots=True)
class Lock:
    """A repository in use by a session.

    Attributes:
        repo_url: normalised URL of the repository.
        acquired_at: when the session got it, ms UTC.
        pid: process id of the command; None while the repository is being prepared.
    """

    repo_url: str
    automation_id: str
    session_id: str
    acquired_at: int
    pid: int | None
    hostname: str | None
    job: str


Marker = tuple[int, Mapping[str, int]]
"""The start of a dispatch in ms UTC, and the number of folded fires of each entry at that time."""


async def start_marker(store: Store) -> Marker:
    """Record the start of a dispatch."""
    folded = {name: one.folded for name, one in (await entries_of(store)).items()}
    return (await store.read(StatsQuery())).now, folded


async def remaining_work(store: Store) -> Literal["due", "starting", ""]:
    """Return "due" if a due session may start now, "starting" if one is starting, "" otherwise."""
    now = (await store.read(StatsQuery())).now
    states = (State.SCHEDULED, State.WAITING, State.RUNNING, State.AWAITING)
    starting = False
    for job in await jobs_of(store, states):
        starting |= job.state is State.RUNNING
        starting |= job.state is State.AWAITING and job.progress is None
        if job.state is State.SCHEDULED and job.due_at <= now:
            return "due"
        if job.state is State.WAITING and await _may_start(store, job):
            return "due"
    return "starting" if starting else ""


async def dispatch_result(
    store: Store, dispatcher: Dispatcher, start: Marker, workers: Collection[str] | None = None
) -> DispatchResult:
    """Return what a dispatch did since its start; called once nothing is due or starting.

    Args:
        workers: ids of the workers that the dispatch ran; None on a server, to count all sessions.
    """
    entries = await entries_of(store)
    failed = dispatcher.failed_permanently(entries.values())
    result = DispatchResult(errors=_errors(dispatcher, failed))
    enabled = {one.id for one in dispatcher.enabled()} - failed.keys()
    seen: set[str] = set()
    limit = await concurrency(store)
    full = limit["max"] is not None and limit["used"] >= limit["max"]
    for job in await sessions(store):
        name = _args(job).get("automation", "")
        run = job.runs[-1] if job.runs else None
        started = run is not None and run.claimed_at >= start[0]
        if run and started and workers is not None and run.worker not in workers:
            # A concurrent dispatch has started it.
            result.locked += name in enabled - seen and run.handed_at is not None
            seen.add(name)
        elif started:
            seen.add(name)
            setup = job.state is State.DEAD and job.reason.startswith("setup failed")
            result.dispatched += not setup
            if setup:
                result.errors.append({"automation_id": name, "error": job.reason})
        elif job.state is State.WAITING and full:
            seen.add(name)
            result.concurrency_limit += 1
        elif job.state is State.PARKED or await _may_start(store, job):
            # A session that may start now was locked until the dispatch had started the others.
            seen.add(name)
            result.locked += 1
    for name, entry in entries.items():
        if entry.folded > start[1].get(name, 0) and name in enabled - seen:
            seen.add(name)
            result.locked += 1
    result.disabled = len(dispatcher.config.automations) - len(enabled)
    result.not_due = len(enabled - seen)
    return result


async def sessions(store: Store, entries: Iterable[Automation] = ()) -> list[JobView]:
    """List sessions that run, ran or wait, with their runs, newest first.

    Fires that were folded, or were cancelled by an edit of their entry, never became sessions.

    Args:
        entries: their sessions among the last thousand of their repository are included, however
            many there were in other repositories since.
    """
    # Read separately, so that folded fires, however many, do not crowd the others out of the page.
    ended = await jobs_of(store, (State.CANCELLED,), newest=True, runs=True)
    due = await jobs_of(store, _DUE, newest=True, runs=True)
    found = [*due, *(one for one in ended if one.runs)]
    if len(due) == MOST:
        seen = {_args(job).get("automation") for job in found}
        others = [one for one in entries if one.id not in seen]
        names = {one.id for one in others}
        # Each repository once, however many entries it has.
        for key in {one.repository.key for one in others}:
            here = await jobs_of(store, _DUE, newest=True, runs=True, repository=key)
            found += [job for job in here if _args(job).get("automation") in names]
    # Not by creation: a fire is created ahead of time, before a session that is made due now.
    return sorted(
        found,
        key=lambda job: job.created_at if job.fired_at is None else job.fired_at,
        reverse=True,
    )


async def locks(store: Store) -> list[Lock]:
    """List the repositories in use, the longest held first."""
    found: list[Lock] = []
    for job in await jobs_of(store, LIVE, runs=True):
        arguments, facts = _args(job), document_of(job.progress)
        found.append(
            Lock(
                repo_url=arguments.get("repository", ""),
                automation_id=arguments.get("automation", ""),
                session_id=session_id(arguments.get("automation", ""), job.id),
                acquired_at=job.runs[-1].claimed_at if job.runs else job.due_at,
                pid=facts.get("pid"),
                hostname=facts.get("hostname"),
                job=job.id,
            )
        )
    return sorted(found, key=lambda one: one.acquired_at)


async def release(
    store: Store, dispatcher: Dispatcher, repo: str, *, author: str, force: bool
) -> Lock:
    """Release a repository: end its session first, then the lock.

    Args:
        dispatcher: a relative path starts in the folder of its file.
        repo: in any form that git accepts, or as listed.
        force: release the lock at once. The owner ends the session within a third of its lease, or
            at the end of the lease; until then, another session may run next to it.

    Returns:
        The lock that was released, or will be once its session is gone.

    Raises:
        UnknownJob: no session uses the repository.
    """
    keys = {repo}
    with suppress(InvalidValue):
        keys.add(read_repository(repo, folder=dispatcher.file.parent.absolute()).key)
    lock = next((one for one in await locks(store) if one.repo_url in keys), None)
    if lock is None:
        message = "no session has this repository"
        raise UnknownJob(message, hint="headway automations locks")
    verb = Verb.KILL if force else Verb.CANCEL
    reason = FORCE_RELEASED if force else "released"
    # Not if its session has ended since, and the job waits for its retry.
    (reply,) = await act(store, verb, lock.job, author=author, reason=reason, states=LIVE)
    if reply.answer in {Acted.REFUSED, Acted.UNKNOWN}:
        message = "the session has just ended"
        raise UnknownJob(message)
    return lock


async def concurrency(store: Store) -> dict[str, Any]:
    """Return the number of running sessions, and the maximum."""
    page = await store.read(GatesQuery(names=(LIMIT,)))
    if not page.rows:
        return {"used": 0, "max": None}
    return {"used": page.rows[0].used, "max": page.rows[0].capacity}


async def set_concurrency(store: Store, most: int | None, *, author: str) -> dict[str, Any]:
    """Change the maximum number of sessions; None for the value in the file.

    Raises:
        InvalidValue: `most` is below 0 or above `MOST_SESSIONS`.
    """
    if most is not None and not 0 <= most <= MOST_SESSIONS:
        message = f"{most} is not a valid number of sessions at once"
        raise InvalidValue(message, hint=f"use 0 to {MOST_SESSIONS}")
    item = ResetGate(name=LIMIT) if most is None else SetGate(name=LIMIT, capacity=most)
    await store.define(DefineRequest(items=(item,), author=author))
    return await concurrency(store)


async def listing(store: Store, dispatcher: Dispatcher) -> list[dict[str, Any]]:
    """List the entries of the file, with their next fire and their newest session."""
    entries = await entries_of(store)
    now = (await store.read(StatsQuery())).now
    newest: dict[str, JobView] = {}
    for job in await sessions(store, dispatcher.config.automations.values()):
        newest.setdefault(_args(job).get("automation", ""), job)
    failed = dispatcher.failed_permanently(entries.values())
    enabled = {one.id for one in dispatcher.enabled()} - failed.keys()
    rows: list[dict[str, Any]] = []
    for one in dispatcher.config.automations.values():
        entry, job = entries.get(one.id), newest.get(one.id)
        schedule = entry.spec.schedule if entry else one.schedule
        known = schedule if entry else anchored(one, None)
        rows.append(
            {
                "id": one.id,
                "repository": one.repository.key,
                "schedule": format_schedule(schedule),
                "enabled": one.id in enabled,
                "next": next_fire([known], now) if known and one.id in enabled else None,
                "folded": entry.folded if entry else 0,
                "session_id": session_id(one.id, job.id) if job else None,
                "status": "skipped" if one.id in failed else status(job) if job else None,
                "reason": failed.get(one.id) or (job.reason if job else ""),
            }
        )
    return rows


def status(job: JobView) -> str:
    """Return the status of a session, in one word."""
    words = {
        State.PARKED: "locked",
        State.SCHEDULED: "waiting",
        State.AWAITING: "running",
        State.DEAD: "failed",
    }
    return words.get(job.state, job.state.value)


async def health(store: Store, dispatcher: Dispatcher) -> dict[str, Any]:
    """Return the dispatcher's health.

    `degraded`: an entry is invalid or has failed permanently, a fire is late by more than a tick,
    or a mirror or worktree was recreated and no session has succeeded in that repository since.
    `unhealthy`: the store is unreachable, or a fire is late by more than three ticks.
    """
    counts = dispatcher.runner.counts
    unhealthy: dict[str, Any] = {
        "status": "unhealthy",
        "uptime": int(dispatcher.timing.monotonic() - dispatcher.started_at),
        "lastDispatchTime": counts.last_at,
        "activeLocks": None,
        "concurrencyUsage": {"used": None, "max": None},
        "nextDispatchTime": None,
    }
    try:
        async with dispatcher.timing.limit(5):
            known = (await entries_of(store)).values()
            now = (await store.read(StatsQuery())).now
            usage, held = await concurrency(store), await locks(store)
            due = await jobs_of(store, (State.SCHEDULED,))
    except (StoreError, TimeoutError):
        return unhealthy
    entries = [one for one in known if one.spec.enabled]
    schedules = {one.spec.name: one.spec.schedule for one in entries}
    tick = make_plan(schedules, now, fires=0).tick_ms
    # A session that waits for a lock or a place is not late; a fire not yet promoted or created is.
    late_ms = max([now - one.due_at for one in due if not one.run] or [0])
    late_ms = max([late_ms, *(now - one.ahead_until for one in entries if one.ahead_until)])
    wrong = bool(dispatcher.faults or dispatcher.failed_permanently(known))
    broken = wrong or bool(dispatcher.runner.remade) or late_ms > tick
    found: HealthStatus = "unhealthy" if late_ms > 3 * tick else "degraded" if broken else "healthy"
    return unhealthy | {
        "status": found,
        "activeLocks": len(held),
        "concurrencyUsage": usage,
        "nextDispatchTime": next_fire(schedules.values(), now),
    }


async def metrics(store: Store, dispatcher: Dispatcher) -> dict[str, Any]:
    """Return what the dispatcher has done since it started, and its current state."""
    counts, usage = dispatcher.runner.counts, await concurrency(store)
    entries = await entries_of(store)
    queued = await jobs_of(store, (State.WAITING, State.PARKED))
    failed = dispatcher.failed_permanently(entries.values())
    enabled = len({one.id for one in dispatcher.enabled()} - failed.keys())
    result = DispatchResult(
        dispatched=counts.last_started,
        locked=sum(one.state is State.PARKED for one in queued),
        concurrency_limit=sum(one.state is State.WAITING for one in queued),
        disabled=len(dispatcher.config.automations) - enabled,
        errors=_errors(dispatcher, failed),
    )
    result.not_due = max(enabled - result.dispatched - len(queued), 0)
    held = await locks(store)
    free = None if usage["max"] is None else max(usage["max"] - usage["used"], 0)
    return {
        "lastDispatchTime": counts.last_at,
        "lastDispatchDuration": counts.last_ms,
        "lastDispatchResult": result.document(camel=True) if counts.last_at else None,
        "totalDispatches": counts.dispatches,
        "totalAutomationsSpawned": counts.spawned,
        "totalSkips": sum(one.folded for one in entries.values()),
        "totalErrors": counts.errors,
        "activeAutomations": len(held),
        "lockedRepositories": [one.repo_url for one in held],
        "availableConcurrencySlots": free,
    }


async def session_of(
    store: Store, dispatcher: Dispatcher, given: str
) -> tuple[str, JobView | None]:
    """Find a session by its id or its job's, or the newest session of an automation.

    Returns:
        The id of the session, and its job if the store still has it.

    Raises:
        UnknownJob: there is no such session.
    """
    if given.startswith("cron:"):
        return given, await store.read(JobQuery(id=given.rpartition(":")[2]))
    every = dispatcher.config.automations
    # For an automation, only its own are looked for among old ones.
    wanted = [every[given]] if given in every else every.values()
    for job in await sessions(store, wanted):
        name = _args(job).get("automation", "")
        if given == job.id or (given == name and job.runs):
            return session_id(name, job.id), job
    message = f"there is no session of {given[:80]!r}"
    raise UnknownJob(message, hint="headway automations list")


async def _may_start(store: Store, job: JobView) -> bool:
    shown = await store.read(JobQuery(id=job.id)) if job.state is State.WAITING else None
    return shown is not None and shown.shown != "blocked"


def _errors(dispatcher: Dispatcher, failed: Mapping[str, str]) -> list[dict[str, str | None]]:
    """Return the errors of invalid and of permanently failed entries."""
    skipped = {name: f"skipped until its entry is edited: {why}" for name, why in failed.items()}
    found = [*((one.automation_id, str(one)) for one in dispatcher.faults), *skipped.items()]
    return [{"automation_id": name, "error": error} for name, error in found]


async def jobs_of(
    store: Store,
    states: Sequence[State],
    *,
    newest: bool = False,
    runs: bool = False,
    most: int = MOST,
    repository: str | None = None,
) -> list[JobView]:
    """List the jobs of sessions in these states."""
    query = JobsQuery(
        lane=LANE,
        tenant=None if repository is None else "",
        subject=repository,
        states=tuple(states),
        newest=newest,
        runs=runs,
        limit=most,
    )
    return [job for job in (await store.read(query)).rows if is_session(job)]


def is_session(job: JobView) -> bool:
    """Return whether a job is a session; callers can create others in any lane."""
    return job.kind == KIND and job.lane == LANE


def document_of(text: bytes | None) -> dict[str, Any]:
    """Parse a job's arguments, progress or result as an object; empty if it is anything else.

    Callers who may signal the run can write any progress.
    """
    with suppress(ValueError):
        found: object = json.loads(text or b"{}")
        if isinstance(found, dict):
            return cast("dict[str, Any]", found)
    return {}


def _args(job: JobView) -> dict[str, str]:
    """Return the arguments that are text: other programs can create sessions with any arguments."""
    return {name: one for name, one in document_of(job.args).items() if isinstance(one, str)}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(one.title() for one in others)
