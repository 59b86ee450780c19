"""The dashboard's page of automations: faults, sessions, the next fires, and each entry."""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from markupsafe import Markup

from headway.contract.views import EntryView, GatesQuery, GateState, JobView
from headway.core.errors import UnknownRecord
from headway.core.local_time import DAY_MS
from headway.core.state import State
from headway.core.timetable.fires import fires_between, next_fires
from headway.core.timetable.schedule import Schedule, format_schedule
from headway.server.caller import Permission
from headway.systems.automations.config import Automation
from headway.systems.automations.dispatcher import LANE, LIMIT, LIVE, NAME, Dispatcher, entries_of
from headway.systems.automations.folders import Folders
from headway.systems.automations.reports import document_of, is_session, jobs_of, sessions, status
from headway.systems.automations.routes import (
    check_caller,
    dispatch,
    release_lock,
    run_automation,
    set_concurrency_route,
)
from headway.systems.automations.session import session_id
from headway.systems.jobs import find_lane, system_job
from headway.web.page import (
    Action,
    DashboardPage,
    Field,
    FormValues,
    PageView,
    RouteCall,
    TemplateContext,
    int_of,
    rows_of,
)
from headway.web.rendering import whole

ROWS = 50
"""Entries per page, and sessions per list."""
OUTCOMES = 10
"""Maximum sessions in an entry's row."""
PLANNED = 500
"""Enabled entries whose next fires are computed, in the order of the file."""
COMING = 8
"""Future times that are listed."""
AHEAD_MS = DAY_MS
"""Time that the strip of an entry covers."""
STEP_MS = 300_000
"""The strip advances in steps of this: unchanged parts of the page are not sent again."""
MOST_TICKS = 96
"""Maximum fires drawn as ticks; more are drawn as a bar."""
TAIL = 32_768
"""Bytes shown of the end of a log."""
LONGEST = 1_000
"""Characters shown of a fault, or of the reason why an entry is skipped."""
_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)")
_STRIP = Markup(
    '<svg class="chart strip" viewBox="0 0 240 12" preserveAspectRatio="none" role="img" '
    'aria-label="{}"><rect class="ground" x="0" y="0" width="240" height="12"/>{}</svg>'
)
_TICK = Markup('<rect class="{}" x="{}" y="0" width="{}" height="12"/>')
_CSS_CLASSES = {"failed": "dead", "locked": "parked", "skipped": "closed"}


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionView:
    """A session as the page shows it.

    Attributes:
        automation: id of its entry; "" if its arguments have none.
        repository: key, without user and token.
        began_at: when it started; None if it has not.
        facts: `hostname`, `pid` and exit `status`, if known.
    """

    job: JobView
    automation: str
    repository: str
    word: str
    began_at: int | None
    facts: Mapping[str, object]

    @property
    def css_class(self) -> str:
        """CSS class of its state."""
        return _CSS_CLASSES.get(self.word, self.word)

    def fact(self, name: str) -> str:
        """Return a fact; "" if it is not known."""
        found = self.facts.get(name)
        return "" if found is None else str(found)

    @property
    def is_live(self) -> bool:
        """Whether it holds the lock of its repository."""
        return self.job.state in LIVE


def pages_of(dispatcher: Dispatcher) -> Sequence[DashboardPage]:
    """Return the pages of a dispatcher."""
    page = DashboardPage(
        path=NAME,
        title="Automations",
        template="automations.html",
        fragments=("dispatch", "sessions", "entries"),
        read=partial(_read, dispatcher),
        permission=Permission.OBSERVE,
        reach=check_caller,
        params=("entry", "session", "q", "from"),
        actions=(DISPATCH, RUN, RELEASE, SET_LIMIT),
        package="headway.systems.automations",
    )
    return (page,)


async def _read(dispatcher: Dispatcher, view: PageView) -> TemplateContext:
    """Return the contents of the page: all entries, one entry, or one session with its output."""
    seen = await view.reads.overview()
    facts: dict[str, object] = {"now": seen.stats.now, "entry": None, "session": None}
    if job := view.values["session"]:
        return {**facts, **await _one_session(dispatcher, view, job)}
    entries = await view.reads.cached(
        "automations: entries", lambda: entries_of(view.service.store)
    )
    lane = find_lane(seen, LANE)
    counts = {} if lane is None else lane.counts
    newest = await _newest(dispatcher, view, counts)
    failed = dispatcher.failed_permanently(entries.values())
    enabled = {one.id for one in dispatcher.enabled()} - failed.keys()
    facts |= {
        "enabled": enabled,
        "failed": failed,
        "newest": newest,
        "views": entries,
        "schedule_of": partial(_schedule_of, entries),
        "written": format_schedule,
        "faults": dispatcher.faults,
        "dots": _dots,
        "clean": partial(printable, most=LONGEST),
    }
    if name := view.values["entry"]:
        return {**facts, **_one_entry(dispatcher, entries, name, seen.stats.now)}
    every = list(dispatcher.config.automations.values())
    sought = view.values["q"].casefold()
    found = [one for one in every if sought in one.id.casefold() + one.repository.key.casefold()]
    rows, place = rows_of(view.values, found)
    ends = Counter(one.word for some in newest.values() for one in some)
    return {
        **facts,
        "rows": rows,
        **place,
        "active": await _active(view),
        "limit": await _limit(view),
        "lowered": dispatcher.lowered,
        "ends": ends,
        "file": str(dispatcher.file),
        **await _ahead(dispatcher, view, entries, enabled, rows, seen.stats.now),
    }


def _schedule_of(entries: Mapping[str, EntryView], one: Automation) -> Schedule:
    known = entries.get(one.id)
    return one.schedule if known is None else known.spec.schedule


async def _newest(
    dispatcher: Dispatcher, view: PageView, counts: Mapping[str, int]
) -> Mapping[str, list[SessionView]]:
    """Return each entry's last sessions, newest first; cached until the lane's counts change."""

    async def read() -> dict[str, list[SessionView]]:
        found: dict[str, list[SessionView]] = {}
        every = dispatcher.config.automations.values()
        for job in map(session_view, await sessions(view.service.store, every)):
            some = found.setdefault(job.automation, [])
            if len(some) < ROWS:
                some.append(job)
        return found

    name = ("automations: newest", *sorted(counts.items()))
    return await view.reads.cached(name, read, 30.0)


async def _active(view: PageView) -> Sequence[SessionView]:
    """Return running and waiting sessions, the longest running first."""
    states = (*LIVE, State.PARKED, State.WAITING)
    found = await view.reads.cached(
        "automations: active",
        lambda: jobs_of(view.service.store, states, newest=True, runs=True, most=2 * ROWS),
    )
    shown = map(session_view, found)
    return sorted(shown, key=lambda one: (not one.is_live, one.began_at or 0, one.job.due_at))


def session_view(job: JobView) -> SessionView:
    """Return a session's job as the page shows it; the job may have any arguments."""
    given = document_of(job.args)
    return SessionView(
        job=job,
        automation=str(given.get("automation", "")),
        repository=str(given.get("repository", "")),
        word=status(job),
        began_at=job.runs[-1].claimed_at if job.runs else None,
        facts={**document_of(job.progress), **document_of(job.result)},
    )


async def _limit(view: PageView) -> GateState:
    (gate,) = (await view.service.store.read(GatesQuery(names=(LIMIT,)))).rows
    return gate


def _dots(sessions: Sequence[SessionView]) -> dict[str, object]:
    """Return the newest sessions, oldest first, and a label that counts them by status."""
    shown = list(reversed(sessions[:OUTCOMES]))
    words = Counter(one.word for one in shown)
    return {
        "shown": shown,
        "label": ", ".join(f"{n} {word}" for word, n in words.items()) or "no session yet",
    }


# ------------------------------------------------------------------------------------ the plan


async def _ahead(
    dispatcher: Dispatcher,
    view: PageView,
    entries: Mapping[str, EntryView],
    enabled: set[str],
    rows: Sequence[Automation],
    now: int,
) -> dict[str, object]:
    """Return when entries fire next: times for all, and a strip of a day for those shown."""
    fire = [one for one in dispatcher.config.automations.values() if one.id in enabled]
    begin = now - now % STEP_MS
    revisions = tuple((name, one.revision) for name, one in entries.items())
    names = frozenset(one.id for one in rows) & enabled

    async def read() -> dict[str, object]:
        schedules = {one.id: _schedule_of(entries, one) for one in fire[:PLANNED]}
        # Each fire of a cron schedule takes some time to compute.
        return await asyncio.to_thread(_plan, schedules, names, begin, now)

    key = ("automations: plan", begin, revisions, names, frozenset(enabled))
    plan = await view.reads.cached(key, read, STEP_MS / 1000)
    fires = cast("Mapping[str, list[int]]", plan["fires"])
    following: dict[str, int] = {}
    for one in fire[:PLANNED]:
        later = [at for at in fires.get(one.id, ()) if at > now]
        later = later or next_fires(_schedule_of(entries, one), now, 1)
        if later:
            following[one.id] = later[0]
    coming: dict[int, list[str]] = {}
    for name, at in sorted(following.items(), key=lambda each: each[1]):
        coming.setdefault(at, []).append(name)
    return {
        "next": following,
        "coming": list(coming.items())[:COMING],
        "strips": plan["strips"],
        "unplanned": max(0, len(fire) - PLANNED),
    }


def _plan(
    schedules: Mapping[str, Schedule], shown: frozenset[str], begin: int, now: int
) -> dict[str, object]:
    return {
        "fires": {name: next_fires(one, now, 3) for name, one in schedules.items()},
        "strips": {
            name: strip(one, begin, begin + AHEAD_MS)
            for name, one in schedules.items()
            if name in shown
        },
    }


def strip(schedule: Schedule, begin: int, end: int) -> Markup:
    """Draw the fires between two times as ticks; as a bar of another colour if there are many."""
    fires = fires_between(schedule, begin, end, MOST_TICKS + 1)
    if len(fires) > MOST_TICKS:
        return _STRIP.format(f"more than {MOST_TICKS} fires", _TICK.format("often", 0, 240))
    ticks = [_TICK.format("tick", round((at - begin) * 238 / (end - begin), 1), 2) for at in fires]
    label = "1 fire" if len(fires) == 1 else f"{len(fires)} fires"
    return _STRIP.format(label, Markup().join(ticks))


def _one_entry(
    dispatcher: Dispatcher, entries: Mapping[str, EntryView], name: str, now: int
) -> dict[str, object]:
    """Return one entry with its next fires.

    Raises:
        UnknownRecord: there is no entry of this name, valid or not.
    """
    one = dispatcher.config.automations.get(name)
    faults = [fault for fault in dispatcher.faults if fault.automation_id == name]
    if one is None and not faults:
        message = f"there is no automation {name[:80]!r}"
        raise UnknownRecord(message, hint="it may have been removed from the file")
    schedule = None if one is None else _schedule_of(entries, one)
    return {
        "entry": {"id": name, "one": one, "faults": faults, "view": entries.get(name)},
        "fires": [] if schedule is None else next_fires(schedule, now, 5),
        "week": None
        if schedule is None
        else strip(schedule, now - now % STEP_MS, now + 7 * DAY_MS),
    }


# ------------------------------------------------------------------------------------ a session


async def _one_session(dispatcher: Dispatcher, view: PageView, job: str) -> dict[str, object]:
    """Return one session with the end of its output.

    Raises:
        Forbidden: the caller may not read jobs.
        UnknownRecord: there is no such session, or the caller may not see it.
    """
    view.caller.check(Permission.READ)
    hint = "ended ones are kept for 30 days"
    found = await system_job(
        view.service.store, view.caller, is_session, job, noun="session", hint=hint
    )
    session = session_view(found)
    return {
        "session": session,
        "id": session_id(session.automation, found.id),
        "output": await asyncio.to_thread(read_tail, dispatcher.folders, session),
    }


def read_tail(folders: Folders, session: SessionView) -> tuple[str, bool] | None:
    """Read the end of a session's log.

    Returns:
        The last whole lines, at most 32 KiB, without unprintable characters; and whether there is
        more before them. None if the log is not on this machine.
    """
    path = folders.log(session_id(session.automation, session.job.id))
    if path.parent != folders.logs or "/" in session.automation:
        return None
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    try:
        size = os.fstat(file).st_size
        begin = max(0, size - TAIL)
        data = os.pread(file, TAIL, begin)
    finally:
        os.close(file)
    if begin:
        # The first line is most likely incomplete.
        data = data[data.find(b"\n") + 1 :]
    return printable(data.decode(errors="replace")), begin > 0


def printable(text: str, most: int = TAIL) -> str:
    """Return terminal output without escape sequences, as `whole` shows it."""
    return whole(_ANSI.sub("", text).replace("\r\n", "\n").replace("\r", "\n"), most)


# ------------------------------------------------------------------------------------ actions


DISPATCH = Action(
    name="automations-dispatch",
    label="Dispatch",
    title="Dispatch now",
    explains="Applies the file and starts everything that is due. The server does this by itself; "
    "here it does not wait to notice an edit. This takes until all due sessions have started.",
    endpoint=dispatch,
    call=lambda _: RouteCall(),
    done="What was due has started.",
)
RUN = Action(
    name="automations-run",
    label="Run now",
    title="Run {automation} now",
    explains="Makes a session due now, regardless of the schedule. It waits for its repository and "
    "a free place like any other.",
    endpoint=run_automation,
    call=lambda values: RouteCall(path={"automation_id": values["automation"]}),
    done="A session of {automation} is due.",
    of=("automation",),
)
RELEASE = Action(
    name="automations-release",
    label="Release",
    title="Release the lock of {repository}",
    explains="Ends the session that uses this repository; the lock is free once its processes are "
    "gone. At once, another session may run next to the old one for a third of the lease: use "
    "this only if its machine is gone permanently.",
    endpoint=release_lock,
    call=lambda values: RouteCall(
        path={"repo": values["repository"]},
        query={"force": "true"} if values.get("force") == "true" else {},
    ),
    done="{repository} is being released.",
    of=("repository",),
    fields=(
        Field(
            name="force",
            label="When",
            kind="select",
            choices=(("false", "when its session is gone"), ("true", "at once, by force")),
        ),
    ),
    danger=True,
)


async def _most(view: PageView) -> FormValues:
    gate = await _limit(view)
    return {"max": "" if gate.capacity is None or not gate.overridden else str(gate.capacity)}


SET_LIMIT = Action(
    name="automations-limit",
    label="Set limit",
    title="Set how many sessions may run at once",
    explains="Running sessions continue. This overrides the file and the load until it is reset.",
    endpoint=set_concurrency_route,
    call=lambda values: RouteCall(
        body={"max": int_of(values, "max") if values.get("max", "").strip() else None}
    ),
    done="The limit was set.",
    fields=(
        Field(
            name="max",
            label="At most",
            kind="number",
            hint="Leave empty for the value in the file.",
        ),
    ),
    prefill=_most,
)
