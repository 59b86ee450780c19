"""A week of thirty automations on virtual time, checked by an oracle that shares no code.

Everything is real except the processes of a session: file, timetable, worker, gates and leases.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import AsyncMock
from zoneinfo import ZoneInfo

import pytest

from headway.lab.virtual_time import VirtualLoop, VirtualTiming, run_virtually
from headway.runtime.app import App
from headway.runtime.timing import Timing
from headway.stores import open_store
from headway.stores.memory import MemoryStore
from headway.systems.automations.dispatcher import Dispatcher
from headway.systems.automations.folders import Folders
from headway.systems.automations.session import AutomationSession, End, Renew

START = datetime(2026, 3, 26, 10, 7, tzinfo=UTC)
"""A Thursday; Berlin changes its clocks on the Sunday."""
START_AT = int(START.timestamp() * 1000)
WEEK, MINUTE_MS, LIMIT = 7 * 24 * 60, 60_000, 3
BERLIN = ZoneInfo("Europe/Berlin")
FREE_MS = 500
"""A session that may start does so within this virtual time."""

Fires = Callable[[int, datetime], bool]
"""Whether an entry fires in a minute, counted from the start, given the wall-clock time."""


def every(minutes: int) -> tuple[str, Fires]:
    return f"{minutes}m", lambda minute, _: minute % minutes == 0


def daily(hour: int, minute: int, days: set[int]) -> tuple[str, Fires]:
    names = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
    text = f"at {hour:02}:{minute:02} " + ",".join(names[day] for day in sorted(days))
    return text, lambda _, at: (at.hour, at.minute) == (hour, minute) and at.weekday() in days


def cron(text: str, fires: Callable[[datetime], bool]) -> tuple[str, Fires]:
    return text, lambda _, at: fires(at)


SCHEDULES = [
    *(every(minutes) for minutes in (30, 45, 50, 60, 60, 75, 90, 95, 120, 180, 240, 1440)),
    *(daily(hour, 10 * hour % 60, set(range(7))) for hour in (0, 5, 9, 12, 18, 23)),
    daily(9, 0, {0, 1, 2, 3, 4}),
    daily(9, 0, {5, 6}),
    cron("0 * * * *", lambda at: at.minute == 0),
    cron("20 * * * *", lambda at: at.minute == 20),
    cron("*/40 8-17 * * *", lambda at: at.minute in {0, 40} and 8 <= at.hour <= 17),
    cron("15 6,18 * * *", lambda at: at.minute == 15 and at.hour in {6, 18}),
    cron("0 12 * * 1-5", lambda at: (at.hour, at.minute) == (12, 0) and at.weekday() < 5),
    cron("30 4 1 * *", lambda at: (at.day, at.hour, at.minute) == (1, 4, 30)),
    cron("0 0 * * 0", lambda at: (at.weekday(), at.hour, at.minute) == (6, 0, 0)),
    cron("@daily", lambda at: (at.hour, at.minute) == (0, 0)),
    cron("59 23 * * 3", lambda at: (at.weekday(), at.hour, at.minute) == (2, 23, 59)),
    cron("0 3 * 4 *", lambda at: (at.month, at.hour, at.minute) == (4, 3, 0)),
]


def expected(fires: Fires) -> set[int]:
    """Return the week's due times, minute by minute; cron and `at` fires are after the start."""
    found: set[int] = set()
    for minute in range(WEEK):
        at = START + timedelta(minutes=minute)
        if fires(minute, at.astimezone(BERLIN)):
            found.add(START_AT + minute * MINUTE_MS)
    return found


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A session as recorded by the stub; times in ms UTC."""

    entry: str
    repository: str
    due_at: int
    begin_at: int
    end_at: int


@pytest.mark.slow
def test_for_a_week_each_fires_on_time_alone_in_its_repository_within_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(SCHEDULES) == 30
    entries = [
        f"[[automation]]\nid = 'e{n}'\nrepository = 'r{n % 10}'\nschedule = '{text}'\n"
        f"tz = 'Europe/Berlin'\ncommand = 'true'\noverlap = 'all'\n"
        for n, (text, _) in enumerate(SCHEDULES)
    ]
    (tmp_path / "automations.toml").write_text("\n".join(entries))
    ran = run_virtually(lambda loop: live_a_week(loop, tmp_path, monkeypatch), START_AT)
    due = defaultdict[str, list[int]](list)
    for one in ran:
        if one.due_at < START_AT + WEEK * MINUTE_MS:
            due[one.entry].append(one.due_at)
    for number, (text, fires) in enumerate(SCHEDULES):
        assert sorted(due[f"e{number}"]) == sorted(expected(fires)), text
    for one in ran:
        others = [each for each in ran if each is not one and each.begin_at <= one.end_at]
        here = [each for each in others if each.begin_at <= one.begin_at < each.end_at]
        assert one.repository not in {each.repository for each in here}
        assert len(here) < LIMIT
        assert one.begin_at >= one.due_at
        if one.begin_at - one.due_at >= FREE_MS:
            before_at = one.begin_at - FREE_MS
            then = [each for each in others if each.begin_at <= before_at < each.end_at]
            busy = one.repository in {each.repository for each in then} or len(then) == LIMIT
            assert busy, one
    late = sum(one.begin_at - one.due_at >= FREE_MS for one in ran)
    assert late > 10, "repositories and the limit were never in the way"


async def live_a_week(
    loop: VirtualLoop, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> list[Ran]:
    timing, store = VirtualTiming(loop), MemoryStore(loop.clock)
    app = App(opener=open_store, store=store, timing=timing)
    folders = Folders(root=folder / "state")
    dispatcher = Dispatcher(
        file=folder / "automations.toml", folders=folders, lease_ms=600_000, timing=timing
    )
    dispatcher.open()
    dispatcher.declare(app)
    ran: list[Ran] = []
    due: dict[str, int] = {}
    original = dispatcher.runner._started
    monkeypatch.setattr(
        dispatcher.runner,
        "_started",
        lambda job, session: (
            due.update({session.id: job.claimed.due_at}),
            original(job, session),
        ),
    )

    async def work(
        session: AutomationSession,
        folders: Folders,
        timing: Timing,
        until: float,
        renew: Renew,
        every_s: float,
    ) -> End:
        """Run for one to nine minutes, derived from the session's due time."""
        del folders, until
        begin_at = loop.clock()
        left_s = 60.0 * (1 + (due[session.id] // MINUTE_MS) % 9)
        while left_s > 0:
            assert await renew(session.facts) is not None
            await timing.pause(min(every_s, left_s))
            left_s -= every_s
        one = session.automation
        ran.append(
            Ran(
                entry=one.id,
                repository=one.repository.key,
                due_at=due[session.id],
                begin_at=begin_at,
                end_at=loop.clock(),
            )
        )
        return End(reason="exit", status=0)

    monkeypatch.setattr(AutomationSession, "run_to_end", work)
    # There are no folders, and threads know no virtual time.
    monkeypatch.setattr(AutomationSession, "prune", AsyncMock())
    await app.declare()
    await dispatcher.sync(store)
    worker = app.worker(
        lanes="automations", concurrency=50, prefetch=0, heartbeat="task", timing=timing, grace="1h"
    )
    working = asyncio.create_task(worker.run())
    # Sessions due within the week that are still waiting run in the hour after it.
    await timing.pause(WEEK * 60 + 3600)
    worker.stop()
    await working
    return ran
