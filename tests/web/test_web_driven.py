"""Every page and every action of the engine in a real browser, on each store."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from headway.contract.definitions import DeclareGate, DefineRequest
from headway.contract.views import GatesQuery, GateState, JobsQuery, TrailQuery, WorkersQuery
from headway.core.gates.rate import Rate
from headway.core.state import State
from headway.core.timetable.schedule import At
from headway.web.pages import PAGES
from tests.server.rig import Rig
from tests.servers.browser import browsing
from tests.web.driving import act, button, fill_in, is_live, opened, show, tab_to
from tests.web.rig import dashboard
from tests.web.test_web_access import declare
from tests.web.test_web_browser import store_url  # noqa: F401  (a fixture)
from tests.web.test_web_cascades import decline, offer
from tests.web.test_web_jobs import Worker, job_of
from tests.web.test_web_timetable import declare as declare_entry
from tests.web.test_web_timetable import entry_of

slow = pytest.mark.slow


@asynccontextmanager
async def driving(url: str, path: str = "/ui") -> AsyncIterator[tuple[Rig, Page]]:
    async with (
        dashboard(url, tokens=False, events_each_s=0.05) as rig,
        browsing() as browser,
        opened(browser, rig, path) as page,
    ):
        yield rig, page


async def gate_of(rig: Rig, name: str) -> GateState:
    (gate,) = (await rig.store.read(GatesQuery(names=(name,)))).rows
    return gate


def test_every_action_of_the_engine_is_driven_here():
    text = Path(__file__).read_text()
    for page in PAGES:
        for action in page.actions:
            assert f'"{action.name}"' in text, action.name


@slow
async def test_now_stops_everything_and_starts_it_again(store_url: str):  # noqa: F811
    async with driving(store_url) as (rig, page):
        await declare(rig, "lines", 1)
        for _ in range(3):
            await rig.send(None, lane="calls", gates=["lines"])
        await Worker(rig).take("calls", 3)
        await expect(page.locator(".cause")).to_contain_text("slots lines is full (1 of 1)")
        await act(page, "stop-everything", "Everything is paused.", reason="a fire", until="2h")
        gate = await gate_of(rig, "all")
        assert gate.closed_reason == "a fire"
        await expect(page.locator("#stopped")).to_contain_text("a fire")
        await expect(button(page, "stop-everything")).to_have_count(0)
        await act(page, "start-everything", "Jobs start again.")
        assert (await gate_of(rig, "all")).closed_until is None
        await expect(page.locator("#stopped .banner")).to_have_count(0)


@slow
async def test_lane_is_paused_resumed_and_limited(store_url: str):  # noqa: F811
    async with driving(store_url) as (rig, page):
        for lane in ("mail", "sms"):
            await rig.send(None, lane=lane)
        await show(page, rig, "/ui/lanes")
        row = "tr[data-key='mail']"
        await act(page, "pause-lane", "mail is paused.", within=row, reason="a bug")
        assert (await gate_of(rig, "lane:mail")).closed_reason == "a bug"
        await expect(page.locator(row)).to_contain_text("paused")
        await expect(page.locator("tr[data-key='sms']")).not_to_contain_text("paused")
        await page.locator(f"{row} th a").press("Enter")
        await is_live(page)
        await expect(page.locator(".banner")).to_contain_text("a bug")
        await act(
            page,
            "set-lane-concurrency",
            "mail runs at most 3 jobs at once.",
            capacity="3",
            reason="x",
        )
        assert (await gate_of(rig, "lane:mail")).capacity == 3
        await expect(page.locator("#lanes")).to_contain_text("0 of 3")
        await act(page, "resume-lane", "mail is no longer paused.")
        assert (await gate_of(rig, "lane:mail")).closed_until is None
        await expect(page.locator(".banner")).to_have_count(0)


@slow
async def test_gate_is_closed_opened_set_reset_and_a_permit_released(store_url: str):  # noqa: F811
    async with driving(store_url, "/ui/gates") as (rig, page):
        await declare(rig, "lines", 1)
        rate = DeclareGate(spec=Rate("sends", 5, "1h"))
        await rig.store.define(DefineRequest(items=(rate,), author="a test"))
        for _ in range(2):
            await rig.send(None, lane="calls", gates=["lines"])
        await Worker(rig).take("calls", 2)
        row = "tr[data-key='lines']"
        await act(page, "close-gate", "lines is closed.", within=row, reason="noon", until="1h")
        assert (await gate_of(rig, "lines")).closed_reason == "noon"
        await expect(page.locator(row)).to_contain_text("closed until")
        await act(page, "open-gate", "lines is no longer closed.", within=row)
        assert (await gate_of(rig, "lines")).closed_until is None
        await expect(page.locator(row)).to_contain_text("1 of 1")
        await page.locator(f"{row} th a").press("Enter")
        await is_live(page)
        await expect(page.locator("#gates")).to_contain_text("Held by 1")
        await act(page, "release-permit", "The permit of lines is free.", reason="its call is over")
        assert (await gate_of(rig, "lines")).used == 0
        await expect(page.locator("#gates")).to_contain_text("Held by 0")
        await act(page, "set-gate-capacity", "lines has a capacity of 7.", capacity="7")
        assert (await gate_of(rig, "lines")).capacity == 7
        await expect(page.locator("#gates")).to_contain_text("0 of 7")
        await act(page, "reset-gate", "lines has its declared numbers again.")
        assert (await gate_of(rig, "lines")).capacity == 1
        await expect(page.locator("#gates")).to_contain_text("0 of 1")
        await show(page, rig, "/ui/gates?gate=sends")
        await act(page, "set-gate-limit", "sends has a limit of 9.", capacity="9")
        assert (await gate_of(rig, "sends")).capacity == 9
        await expect(page.locator("#gates")).to_contain_text("of 9 in 1h")


@slow
async def test_job_is_found_made_due_edited_cancelled_and_retried(store_url: str):  # noqa: F811
    async with driving(store_url, "/ui/jobs") as (rig, page):
        await rig.send(None, lane="sms", kind="text")
        made = await rig.send(None, lane="mail", kind="send_mail", due="2h", args={"n": 1})
        await expect(page.locator("#jobs tbody tr")).to_have_count(2)
        await page.locator("[name=lane]").fill("mail")
        await page.keyboard.press("Enter")
        await is_live(page)
        await expect(page.locator("#jobs tbody tr")).to_have_count(1)
        await page.locator("#jobs a.id").press("Enter")
        await is_live(page)
        await act(
            page,
            "edit-job",
            "The job was changed: it is scheduled.",
            args='{"n": 2}',
            priority="7",
        )
        job = await job_of(rig, made)
        assert (json.loads(job.args), job.priority) == ({"n": 2}, 7)
        await expect(page.locator("#facts")).to_contain_text('"n": 2')
        await act(page, "run-job-now", "The job is due now: it is waiting.", reason="hurry")
        assert (await job_of(rig, made)).state is State.WAITING
        await expect(page.locator("#why")).to_contain_text("no live worker")
        await expect(page.locator("#facts")).to_contain_text("hurry")
        await act(page, "cancel-job", "Cancel: done. The job is cancelled.", reason="no more")
        assert (await job_of(rig, made)).state is State.CANCELLED
        await expect(page.locator("#why .state")).to_have_text("cancelled")
        said = "Retried: the job is waiting."
        await act(page, "edit-and-retry-job", said, args='{"n": 3}')
        job = await job_of(rig, made)
        assert (job.state, job.life, json.loads(job.args)) == (State.WAITING, 2, {"n": 3})
        await expect(page.locator("#facts")).to_contain_text("life 2")
        await Worker(rig).kill("mail")
        await expect(page.locator("#why .state")).to_have_text("dead")
        await expect(page.locator("#timeline summary")).to_contain_text("TimeoutError: 7 s")
        await act(page, "retry-job", said, reason="the server is back")
        assert (await job_of(rig, made)).life == 3


@slow
async def test_dead_jobs_are_retried_one_ticked_grouped_and_all(store_url: str):  # noqa: F811
    async with driving(store_url, "/ui/dead") as (rig, page):
        worker = Worker(rig)

        async def dead() -> int:
            return len((await rig.store.read(JobsQuery(states=(State.DEAD,)))).rows)

        for lane, error, n in (("mail", "boom", 4), ("sms", "lonely", 1), ("push", "crash", 3)):
            for _ in range(n):
                await rig.send(None, lane=lane)
            await worker.kill(lane, error, n=n)
        await expect(page.locator(".cause")).to_have_count(3)
        lonely = page.locator(".cause", has_text="lonely")
        await lonely.locator("[data-ask]").focus()
        await page.keyboard.press("Enter")
        await fill_in(page, "Retried: the job is waiting.")
        assert await dead() == 7
        await expect(lonely).to_have_count(0)
        await page.locator(".cause", has_text="boom").locator(".sentence a").press("Enter")
        await is_live(page)
        for box in (0, 1):
            place = page.locator("[name=ids]").nth(box)
            await tab_to(page, place)
            await page.keyboard.press("Space")
        await page.locator("button", has_text="Retry selected").press("Enter")
        await fill_in(page, "2 retried, 0 no longer dead, 0 not found.")
        assert await dead() == 5
        await expect(page.locator("#dead tbody tr")).to_have_count(2)
        said = "2 retried, 0 no longer dead, 0 not found."
        await act(page, "retry-jobs", said, reason="all of it")
        assert await dead() == 3
        await show(page, rig, "/ui/dead?lane=push")
        said = "3 retried, 0 no longer dead."
        await act(page, "retry-all-dead", said, limit="3")
        assert await dead() == 0
        await expect(page.locator("#dead")).to_contain_text("No job is dead that matches")


@slow
async def test_entry_is_disabled_enabled_and_fired(store_url: str):  # noqa: F811
    async with driving(store_url) as (rig, page):
        for name in ("nightly", "weekly"):
            await declare_entry(rig, name, At("03:00"))
        await show(page, rig, "/ui/timetable")
        row = "tr[data-key='nightly']"
        await act(page, "disable-entry", "nightly is disabled.", within=row)
        assert not (await entry_of(rig, "nightly")).spec.enabled
        await expect(page.locator(row)).to_contain_text("disabled")
        await page.locator(f"{row} th a").press("Enter")
        await is_live(page)
        await expect(page.locator(".banner")).to_contain_text("It does not fire.")
        await act(page, "enable-entry", "nightly fires again.")
        assert (await entry_of(rig, "nightly")).spec.enabled
        await expect(page.locator(".banner")).to_have_count(0)
        await act(page, "fire-entry", "A job of nightly was created.")
        rows = (await rig.store.read(JobsQuery(lane="nightly"))).rows
        (job,) = (one for one in rows if one.entry is None)
        assert job.state is State.WAITING
        # The timetable's fires were created when it was switched on.
        assert {one.state for one in rows if one.entry == "nightly"} == {State.SCHEDULED}
        await show(page, rig, "/ui/trail")
        await expect(page.locator("#trail")).to_contain_text("fired the entry nightly")


@slow
async def test_cascade_continues_and_is_cancelled(store_url: str):  # noqa: F811
    async with driving(store_url) as (rig, page):
        job = await offer(rig, "boiler", "ada", "bob", "cid")
        await show(page, rig, "/ui/cascades?kind=offer")
        card = page.locator(".card")
        await expect(card.locator(".turn.open")).to_contain_text("ada is asked")
        await decline(rig, job)
        await expect(card.locator(".turn.declined")).to_contain_text("ada")
        await act(page, "cancel-job", "Cancel: done. The job is cancelled.", reason="no more")
        assert (await job_of(rig, job)).state is State.CANCELLED
        await expect(page.locator("#cascades")).to_contain_text("No job is being offered")


@slow
async def test_workers_and_the_trail_follow_the_actions(store_url: str):  # noqa: F811
    async with driving(store_url, "/ui/workers") as (rig, page):
        made = await rig.send(None, lane="mail", kind="send_mail")
        (held,) = await Worker(rig, "the-worker").take("mail")
        row = page.locator("#workers tbody tr")
        await expect(row).to_contain_text(f"…{made[-8:]} send_mail")
        assert [one.running for one in await rig.store.read(WorkersQuery())] == [1]
        await row.locator("a.id").press("Enter")
        await is_live(page)
        await act(
            page,
            "cancel-job",
            "Cancel: asked. The job is running.",
            reason="a mistake",
        )
        assert (await job_of(rig, held.id)).cancel_requested
        await expect(page.locator("#why")).to_contain_text("cancel requested")
        (line,) = (await rig.store.read(TrailQuery(target=made))).rows
        await show(page, rig, "/ui/trail")
        await expect(page.locator(f"tr[data-key='{line.seq}']")).to_contain_text("a mistake")
        await page.locator("[name=target]").fill("no such thing")
        await page.keyboard.press("Enter")
        await expect(page.locator("#trail")).to_contain_text("No line matches.")
