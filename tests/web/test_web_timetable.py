"""The timetable's pages: when each entry fires, the outcomes, and pausing and firing entries."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from unittest.mock import patch
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

from headway import App
from headway.contract.claims import ClaimRequest
from headway.contract.definitions import DeclareEntry, DefineRequest, EntrySpec, Role
from headway.contract.outcomes import Died, SettleRequest, Succeeded
from headway.contract.views import (
    EntryView,
    JobsQuery,
    JobView,
    StatsQuery,
    TimetableQuery,
    TrailQuery,
)
from headway.core.job import NewJob, derived_id
from headway.core.state import State
from headway.core.timetable.schedule import At, Cron, Every, Schedule
from headway.runtime.chores import TimetableChore
from headway.runtime.timing import REAL
from headway.stores import open_store
from headway.testing.clock import START_AT, FakeClock
from tests.server.rig import Rig
from tests.web.rig import HOSTILE, dashboard, do, form_of, signed_in
from tests.web.test_web_live import LIVE, messages, until
from tests.web.test_web_pages import Tags, plain

MINUTE, HOUR = 60_000, 3_600_000
REQUESTS = count(1)


@asynccontextmanager
async def calendar(
    who: Role = Role.OPERATOR,
) -> AsyncIterator[tuple[Rig, httpx.AsyncClient, FakeClock]]:
    """Run a dashboard over a store whose time is Thursday, 2026-01-01, 10:00 UTC."""
    clock = FakeClock(START_AT + 10 * HOUR)
    app = App(store=open_store("memory://", clock=clock))
    async with dashboard(app=app) as rig, signed_in(rig, who) as http:
        yield rig, http, clock


async def declare(rig: Rig, name: str, schedule: Schedule, **job: str) -> None:
    made = NewJob(id=derived_id("test", name), **{"kind": "tidy", "lane": "nightly", **job})
    spec = EntrySpec(name=name, schedule=schedule, job=made)
    await rig.store.define(DefineRequest(items=(DeclareEntry(spec=spec),), author="a test"))


async def entry_of(rig: Rig, name: str) -> EntryView:
    found = await rig.store.read(TimetableQuery())
    return next(one for one in found if one.spec.name == name)


async def jobs_of(rig: Rig, lane: str = "nightly") -> list[JobView]:
    return list((await rig.store.read(JobsQuery(lane=lane))).rows)


async def fire_due(rig: Rig, clock: FakeClock, ms: int) -> None:
    """Advance the clock, with fires created ahead and those that are due moved to waiting."""
    chore = TimetableChore(rig.store, REAL)
    await chore.create_fires()
    clock.advance(ms)
    await chore.create_fires()
    await rig.store.sweep(100)


async def run(rig: Rig, *, dies: bool = False, error: str = "") -> str:
    """Run the next job of the lane; return its id."""
    asked = ClaimRequest(
        worker="w", request=next(REQUESTS), lanes=(("nightly", 1),), n=1, free=1, lease_ms=HOUR
    )
    (job,) = (await rig.store.claim(asked)).jobs
    outcome = (
        Died(job=job.id, run=job.run, reason="broken", error=error)
        if dies
        else Succeeded(job=job.id, run=job.run, result=None)
    )
    await rig.store.settle(SettleRequest(worker="w", outcomes=(outcome,)))
    return job.id


async def test_week_shows_each_fire_on_its_day_and_frequent_entries_once():
    async with calendar() as (rig, http, _):
        await declare(rig, "nightly backup", At("03:30"))
        await declare(rig, "friday report", Cron("15 16 * * fri"))
        await declare(rig, "poll", Every(5 * MINUTE))
        text = plain((await http.get("/ui/timetable")).text)
        assert "1 Jan to 7 Jan 2026" in text
        week = text[text.index("Thu 1 Jan") : text.index("Entries")]
        # The first day's backup is in the past, and was due before the entry was created.
        assert week.count("03:30 nightly backup") == 6
        friday = week[week.index("Fri 2 Jan") : week.index("Sat 3 Jan")]
        assert "16:15 friday report" in friday
        assert week.count("16:15 friday report") == 1
        assert text.count("every 5m poll") == 1
        assert week.count("poll") == 0


async def test_day_shows_its_hours_and_a_zone_moves_all_to_its_local_time():
    async with calendar() as (rig, http, _):
        await declare(rig, "backup", At("23:30"))
        text = plain((await http.get("/ui/timetable?view=day")).text)
        assert "23:00 23:30 backup" in text
        text = plain(
            (await http.get("/ui/timetable?view=day&tz=Europe/Berlin&day=2026-01-02")).text
        )
        assert "00:00 00:30 backup" in text
        for wrong in ("tz=Mars/Base", "day=yesterday", "day=0001-01-01"):
            assert (await http.get(f"/ui/timetable?{wrong}")).status_code == 422


async def test_day_of_a_clock_change_has_each_existing_hour_once():
    async with calendar() as (rig, http, _):
        await declare(rig, "early", At("02:30", tz="Europe/Berlin"))
        page = await http.get("/ui/timetable?view=day&tz=Europe/Berlin&day=2026-03-29")
        # 02:30 is skipped by the clock change, so it fires at the end of the gap.
        assert plain(page.text).count("03:00 early") == 1


@pytest.mark.parametrize("first", ["9" * 5_000, "-1", "\u0663", "1.5", "x"])
async def test_page_without_a_start_starts_at_the_first_entry(first: str):
    async with dashboard() as rig, signed_in(rig, Role.VIEWER) as http:
        body = {"schedule": "every 1h", "job": {"kind": "noop"}}
        await rig.call(Role.ADMIN, "PUT", "/v1/timetable/hourly", body)
        reply = await http.get("/ui/timetable", params={"from": first})
        assert reply.status_code == 200
        assert "hourly" in reply.text


async def test_calendar_without_fires_says_so():
    for entries, said in (
        ((), "No entry fires in this period."),
        ((("often", Every(60_000)),), "No other entry fires in this period."),
        ((("daily", Cron("10 10 * * *")),), ""),
    ):
        async with calendar() as (rig, http, _):
            for name, schedule in entries:
                await declare(rig, name, schedule)
            text = plain((await http.get("/ui/timetable")).text)
            assert said in text
            assert bool(said) == ("fires in this period" in text)


async def test_past_fires_link_to_their_jobs_and_a_failed_entry_comes_first():
    async with calendar() as (rig, http, clock):
        await declare(rig, "a good one", Cron("10 10 * * *"))
        await declare(rig, "bad one", Cron("0 11 * * *"))
        await fire_due(rig, clock, HOUR)
        good, bad = await run(rig), await run(rig, dies=True)
        assert [one.entry for one in await jobs_of(rig) if one.id == bad] == ["bad one"]
        page = (await http.get("/ui/timetable")).text
        text = plain(page)
        assert "The last job of 1 entry failed: bad one" in text
        for job in (good, bad):
            # In the calendar, and in the list.
            assert page.count(f"/ui/jobs/{job}") == 2
        assert text.index("The last job of") < text.index("Thu 1 Jan")
        assert text.index("Entries, 2 in all") < text.rindex("bad one") < text.rindex("a good one")
        one = plain((await http.get("/ui/timetable", params={"entry": "bad one"})).text)
        assert "dead" in one
        assert "broken" in one


async def test_entrys_page_shows_the_last_line_of_an_error_with_its_secrets_masked():
    async with calendar() as (rig, http, clock):
        await declare(rig, "bad one", Cron("0 11 * * *"))
        await fire_due(rig, clock, HOUR)
        await run(rig, dies=True, error="Traceback:\n  in send\nError: password=hunter2")
        one = plain((await http.get("/ui/timetable", params={"entry": "bad one"})).text)
        assert "Error: password=[hidden]" in one
        assert "Traceback" not in one


async def test_due_fire_is_shown_once_it_has_happened():
    async with calendar() as (rig, http, clock):
        await declare(rig, "daily", Cron("10 10 * * *"))
        await TimetableChore(rig.store, REAL).create_fires()
        (job, *_) = await jobs_of(rig)
        clock.advance(HOUR)
        assert f"/ui/jobs/{job.id}" not in (await http.get("/ui/timetable?entry=daily")).text
        await rig.store.sweep(100)
        assert f"/ui/jobs/{job.id}" in (await http.get("/ui/timetable")).text


async def test_entry_is_disabled_and_enabled_and_its_outcomes_stay():
    async with calendar() as (rig, http, clock):
        await declare(rig, "night/ly", Every(HOUR))
        await fire_due(rig, clock, HOUR)
        job = await run(rig)
        path = "/ui/-/do/disable-entry?entry=night/ly"
        assert (await do(http, path)).status_code == 303
        assert not (await entry_of(rig, "night/ly")).spec.enabled
        text = plain((await http.get("/ui/timetable?entry=night/ly")).text)
        assert "Disabled. It does not fire." in text
        assert "disabled" in plain((await http.get("/ui/timetable")).text)
        assert (await do(http, "/ui/-/do/enable-entry?entry=night/ly")).status_code == 303
        assert (await entry_of(rig, "night/ly")).spec.enabled
        assert f"/ui/jobs/{job}" in (await http.get("/ui/timetable?entry=night/ly")).text


async def test_firing_now_creates_one_due_job_and_moves_no_fire():
    async with calendar() as (rig, http, _):
        await declare(rig, "nightly", At("03:00"), tenant="acme")
        before = await entry_of(rig, "nightly")
        reply = await do(http, "/ui/-/do/fire-entry?entry=nightly")
        assert "A job of nightly was created." in (await http.get(reply.headers["location"])).text
        (job,) = await jobs_of(rig)
        assert (job.kind, job.tenant, job.state, job.entry) == ("tidy", "acme", "waiting", None)
        assert await entry_of(rig, "nightly") == before


async def test_form_that_is_sent_twice_acts_once_and_another_form_acts_again():
    async with calendar() as (rig, http, _):
        await declare(rig, "nightly", At("03:00"))
        for _ in range(2):
            form = await form_of(http, "/ui/-/do/fire-entry?entry=nightly")
            for _ in range(2):
                reply = await http.post("/ui/-/do/fire-entry", data=form)
                assert reply.status_code == 303, reply.text
        assert len(await jobs_of(rig)) == 2


async def test_firing_now_is_in_the_trail_in_the_tokens_name():
    async with calendar() as (rig, http, _):
        await declare(rig, "nightly", At("03:00"))
        await do(http, "/ui/-/do/fire-entry?entry=nightly")
        (job,) = await jobs_of(rig)
        (line,) = (await rig.store.read(TrailQuery(target=job.id))).rows
        assert (line.author, line.reason) == ("operator", "fired the entry nightly")
        assert "fired the entry nightly" in plain((await http.get("/ui/trail")).text)
        assert job.due_at <= (await rig.store.read(StatsQuery())).now


async def test_viewer_sees_no_button_and_another_lanes_token_no_entry():
    async with calendar(Role.VIEWER) as (rig, http, _):
        await declare(rig, "mine", Every(HOUR), lane="mine")
        await declare(rig, "theirs", Every(HOUR), lane="theirs")
        for path in ("/ui/timetable", "/ui/timetable?entry=mine"):
            page = (await http.get(path)).text
            assert "mine" in page
            assert "/ui/-/do/" not in page
        for name in ("fire-entry", "enable-entry", "disable-entry"):
            assert (await http.get(f"/ui/-/do/{name}?entry=mine")).status_code == 403
        scoped = await rig.token(Role.OPERATOR, lanes=["mine"])
        async with signed_in(rig, scoped) as own:
            assert "theirs" not in (await own.get("/ui/timetable")).text
            assert (await own.get("/ui/timetable?entry=theirs")).status_code == 404
            for name in ("fire-entry", "disable-entry"):
                assert (await do(own, f"/ui/-/do/{name}?entry=theirs")).status_code == 404
            assert (await do(own, "/ui/-/do/fire-entry?entry=mine")).status_code == 303
        assert (await entry_of(rig, "theirs")).spec.enabled
        assert [one.lane for one in await jobs_of(rig, "mine")] == ["mine"]
        assert await jobs_of(rig, "theirs") == []
        tenant = await rig.token(Role.VIEWER, tenants=["acme"])
        async with signed_in(rig, tenant) as own:
            assert (await own.get("/ui/timetable")).status_code == 403
            assert "/ui/timetable" not in (await own.get("/ui")).text


async def test_hostile_names_are_shown_as_text():
    async with calendar() as (rig, http, clock):
        names = [f"e{i} {evil}"[:400] for i, evil in enumerate(HOSTILE)]
        for i, name in enumerate(names):
            schedule = Every(MINUTE) if i % 2 else Every(7 * HOUR)
            await declare(rig, name, schedule, kind=name, lane=name, tenant=name)
        await fire_due(rig, clock, 2 * MINUTE)
        for path, query in [
            ("/ui/timetable", {}),
            ("/ui/timetable", {"view": "day"}),
            *(("/ui/timetable", {"q": one}) for one in HOSTILE),
            *(("/ui/timetable", {"entry": one}) for one in names),
            *(("/ui/-/do/fire-entry", {"entry": one}) for one in names),
        ]:
            reply = await http.get(path, params=query)
            assert reply.status_code == 200, (path, query)
            seen = Tags(reply.text)
            assert seen.scripts == 1
            assert "img" not in seen.names
            assert not [one for one in seen.attributes if one.startswith("on")]
            assert not [one for one in seen.links if one.startswith("javascript")]
            for sign in ("\x1b", "\x07", "\N{RIGHT-TO-LEFT OVERRIDE}"):
                assert sign not in seen.text + seen.labels


async def test_open_calendar_reads_a_bounded_number_of_jobs():
    async with calendar() as (rig, http, clock):
        for n in range(120):
            await declare(rig, f"entry {n:03}", Every(HOUR, anchor_at=n * MINUTE % HOUR))
        await fire_due(rig, clock, 2 * HOUR)
        asked: list[JobsQuery] = []
        read = rig.store.read

        async def counted(query):
            if isinstance(query, JobsQuery):
                asked.append(query)
            return await read(query)

        with patch.object(rig.store, "read", counted):
            text = plain((await http.get("/ui/timetable?view=day")).text)
        assert all(one.ids is not None for one in asked)
        assert sum(len(one.ids or ()) for one in asked) <= 50 * 5 + 200
        assert "20 more are not" in text
        assert "1 to 50 of 120" in text


async def test_paging_keeps_the_calendars_day_zone_and_view_and_these_keep_the_page():
    async with calendar() as (rig, http, _):
        for n in range(60):
            await declare(rig, f"entry {n:03}", At("03:00"))
        shown = {"view": "day", "day": "2026-03-01", "tz": "Asia/Tokyo", "q": "entry"}
        page = Tags((await http.get("/ui/timetable", params={**shown, "from": "50"})).text)
        links = [dict(parse_qsl(urlsplit(one).query)) for one in page.links]
        assert shown in links
        assert {**shown, "day": "2026-02-28", "from": "50"} in links
        assert {**shown, "tz": "UTC", "from": "50"} in links


async def test_open_calendar_receives_its_contents_and_then_changes():
    async with calendar() as (rig, http, clock):
        await declare(rig, "nightly", At("11:00"))
        await fire_due(rig, clock, HOUR)
        dead = await run(rig, dies=True)
        async with http.stream("GET", "/ui/timetable", headers=LIVE) as reply:
            found = messages(reply)
            await until(found, 'class="fire dead"')
            await do(http, f"/ui/-/do/retry-job?job={dead}", script=True)
            await until(found, 'class="fire waiting"')
        for path in ("/ui/timetable", "/ui/timetable?view=day", "/ui/timetable?entry=nightly"):
            async with http.stream("GET", path, headers=LIVE) as reply:
                found = messages(reply)
                assert await until(found, "nightly") == "change"
                await do(http, "/ui/-/do/disable-entry?entry=nightly", script=True)
                assert await until(found, "disabled" if "entry=" not in path else "Disabled.")
            await do(http, "/ui/-/do/enable-entry?entry=nightly", script=True)


async def test_entrys_page_shows_no_job_of_another_lane_just_seen_by_another_viewer():
    async with calendar() as (rig, http, clock):
        await declare(rig, "report", Every(HOUR), lane="theirs")
        await fire_due(rig, clock, HOUR)
        fired = next(one for one in await jobs_of(rig, "theirs") if one.state is State.WAITING)
        await declare(rig, "report", Every(HOUR), lane="ours")
        page = "/ui/timetable?entry=report"
        assert fired.id in (await http.get(page)).text
        token = await rig.token(Role.VIEWER, lanes=["ours"])
        async with signed_in(rig, token) as other:
            shown = await other.get(page)
        assert shown.status_code == 200
        assert fired.id not in shown.text
