"""Every page and every action of the systems in a real browser, on each store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from headway.contract.definitions import Role
from headway.contract.views import GatesQuery, JobsQuery
from headway.core.state import State
from headway.systems.automations import pages as automations
from headway.systems.calls import pages as calls
from headway.systems.field_service import pages as field
from headway.systems.lanes import make as make_lanes
from headway.systems.lanes import pages as lanes
from headway.systems.notifications import pages as notifications
from headway.systems.notifications.notification import Channel
from headway.web.page import Action
from tests.server.rig import Rig
from tests.servers.browser import browsing
from tests.systems.automations import test_automations_page as automations_page
from tests.systems.automations.sessions_rig import new_repository
from tests.systems.automations.test_dispatching import entry, holding
from tests.systems.calls.calls_rig import NUMBER, calling
from tests.systems.field_service.field_rig import a_field
from tests.systems.lanes.queue import Queue
from tests.systems.notifications import test_notifications_page as notifications_page
from tests.web.driving import act, is_live, opened, show
from tests.web.rig import dashboard
from tests.web.test_web_browser import store_url  # noqa: F401  (a fixture)

slow = pytest.mark.slow


@asynccontextmanager
async def shown(rig: Rig, path: str, role: Role = Role.ADMIN) -> AsyncIterator[Page]:
    """Open a page of a browser with a token of this role."""
    async with (
        browsing() as browser,
        opened(browser, rig, path, token=rig.tokens.get(role)) as page,
    ):
        await is_live(page)
        yield page


def test_every_action_of_the_systems_is_driven_here():
    text = Path(__file__).read_text()
    for module in (automations, calls, field, lanes, notifications):
        for one in vars(module).values():
            if isinstance(one, Action):
                assert f'"{one.name}"' in text, one.name


@slow
async def test_dead_jobs_of_the_http_queue_are_retried_and_a_lane_paused(store_url: str):  # noqa: F811
    async with dashboard(store_url, systems=[make_lanes({})], events_each_s=0.05) as rig:
        makes = Queue(rig.http, rig.tokens[Role.PRODUCER])
        works = Queue(rig.http, rig.tokens[Role.WORKER])
        made = await makes.enqueue("mail")
        (job,) = await works.pull("mail")
        async with shown(rig, "/ui/queue") as page:
            await expect(page.locator("#queue")).to_contain_text(f"…{job['job_id'][-8:]}")
            await works.said("/fail", job, error="no route", dead=True)
            await expect(page.locator("#queue")).to_contain_text("No worker holds a job.")
            await act(page, "queue-retry", "Dead jobs of mail wait again.", reason="fixed")
            assert await makes.status(made) == "queued"
            await expect(page.locator("[href*='queue-retry']")).to_have_count(0)
            await act(page, "pause-lane", "mail is paused.", reason="wait")
            await expect(page.locator("tr[data-key='mail']")).to_contain_text("paused")
            await act(page, "resume-lane", "mail is no longer paused.")
            (gate,) = (await rig.store.read(GatesQuery(names=("lane:mail",)))).rows
            assert gate.closed_until is None


@slow
async def test_number_is_disabled_enabled_changed_and_closed(store_url: str, tmp_path: Path):  # noqa: F811
    async with calling(tmp_path, store=store_url, work=False) as one:
        await one.number(NUMBER, 2)
        await one.lead()

        async def number() -> Any:
            return (await one.ask("/numbers"))["rows"][0]

        async with shown(one.rig, "/ui/calls") as page:
            row = page.locator("#numbers tbody tr", has_text=NUMBER)
            await act(page, "calls-disable-number", f"{NUMBER} is disabled.")
            assert (await number())["status"] == "DISABLED"
            await expect(row).to_contain_text("disabled")
            await act(page, "calls-enable-number", f"{NUMBER} is enabled.")
            assert (await number())["status"] == "AVAILABLE"
            await expect(row).not_to_contain_text("disabled")
            said = f"{NUMBER} has 7 channels."
            await act(page, "calls-set-channels", said, channels="7")
            assert (await number())["maximum_channels"] == 7
            await expect(row).to_contain_text("of 7")
            gate = f"calls.numbers/{NUMBER}"
            line = f"tr[data-key='{NUMBER}']"
            said = f"{gate} is closed."
            await act(page, "close-gate", said, within=line, reason="a complaint")
            (state,) = (await one.store.read(GatesQuery(names=(gate,)))).rows
            assert state.closed_reason == "a complaint"
            await expect(row).to_contain_text("a complaint")
            await act(page, "open-gate", f"{gate} is no longer closed.")
            await expect(row).not_to_contain_text("a complaint")
            await show(page, one.rig, "/ui/calls/campaigns")
            await expect(page.locator("#campaigns tbody tr")).to_contain_text("acme")


@slow
async def test_request_is_assigned_completed_withdrawn_and_offered_again(
    store_url: str,  # noqa: F811
    tmp_path: Path,
):
    settings: dict[str, Any] = {"tokens": True, "offer_timeout": "1h", "lines": {}}
    async with a_field(tmp_path, store_url, **settings) as one:
        for name in ("ada", "bob"):
            await one.technician(name, km=1)
        sent = (await one.ask())["id"]
        await one.asks(sent, "ada")
        async with shown(one.rig, "/ui/field-service") as page:
            card = page.locator(f"#r-{sent}")
            await expect(card).to_contain_text("is asked")
            said = "bob has the request."
            await act(page, "field-assign", said, technician="bob", wait="no")
            assert (await one.becomes(sent, "assigned"))["technician"] == "bob"
            await expect(card).to_contain_text("Bob has it")
            await act(page, "field-complete", "The request is completed.")
            await one.becomes(sent, "completed")
            await expect(card).to_contain_text("ended")
            other = (await one.ask())["id"]
            card = page.locator(f"#r-{other}")
            await expect(card.locator("[href*='field-withdraw']")).to_have_count(1)
            await act(page, "field-withdraw", "The request is withdrawn.", within=f"#r-{other}")
            await one.becomes(other, "cancelled")
            await expect(card.locator("[href*='field-redispatch']")).to_have_count(1)
            said = "The request is offered again."
            await act(page, "field-redispatch", said, within=f"#r-{other}")
            assert (await one.get(other))["status"] == "dispatching"
            await show(page, one.rig, "/ui/field-service/technicians")
            row = "tr[data-key='bob']"
            await act(page, "field-off-duty", "bob goes off duty.", within=row)
            assert not (await one.rig.ask(Role.ADMIN, "/technicians/bob"))["on_duty"]
            await expect(page.locator(row)).to_contain_text("off duty")
            await act(page, "field-on-duty", "bob comes on duty.", within=row)
            assert (await one.rig.ask(Role.ADMIN, "/technicians/bob"))["on_duty"]
            await expect(page.locator(row)).to_contain_text("on duty")


@slow
async def test_notification_is_cancelled_a_channel_opened_and_a_template_previewed(
    store_url: str,  # noqa: F811
    tmp_path: Path,
):
    async with notifications_page.operating(tmp_path, store_url, work=False) as (one, _):
        await one.ada()
        id_ = await one.send()
        template = {"id": "welcome", "channels": {"sms": {"text": "Hello {{ name }}"}}}
        await one.ok("POST", "/message-templates", template, 201)
        async with shown(one.rig, "/ui/notifications?recipient=ada") as page:
            await act(page, "notification-cancel", "The notification is cancelled.")
            assert (await one.get(id_))["status"] == "CANCELLED"
            await expect(page.locator("#notifications")).to_contain_text("cancelled")
            gate = Channel.EMAIL.slots
            await one.ok("POST", "/v1/closures", {"gate": gate, "reason": "429"})
            await show(page, one.rig, "/ui/notifications")
            await act(page, "open-gate", f"{gate} is no longer closed.")
            (state,) = (await one.store.read(GatesQuery(names=(gate,)))).rows
            assert state.closed_until is None
            await show(page, one.rig, "/ui/notifications/templates?template=welcome")
            await page.locator("[name=channel]").select_option("sms")
            await page.locator("[name=data]").fill('{"name": "Ada"}')
            await page.get_by_role("button", name="Preview").press("Enter")
            await expect(page.locator("main")).to_contain_text("Hello Ada")


@slow
async def test_session_is_dispatched_run_and_released_and_the_limit_set(
    store_url: str,  # noqa: F811
    tmp_path: Path,
):
    where = new_repository(tmp_path / "repository")
    hold = entry("hold", where, holding(tmp_path), schedule="at 09:00")
    async with (
        automations_page.operating(tmp_path, hold, work=True, url=store_url) as (rig, _),
        shown(rig, "/ui/automations") as page,
    ):
        file = tmp_path / "automations.toml"
        later = entry("later", where, "echo two", schedule="at 09:00")
        file.write_text("\n".join([hold, later]))
        await act(page, "automations-dispatch", "What was due has started.")
        await expect(page.locator("tr[data-key='later']")).to_be_visible()
        await act(page, "automations-limit", "The limit was set.", max="3")
        (gate,) = (await rig.store.read(GatesQuery(names=(automations.LIMIT,)))).rows
        assert gate.capacity == 3
        await expect(page.locator("main")).to_contain_text("of 3 run")
        row = "tr[data-key='hold']"
        await act(page, "automations-run", "A session of hold is due.", within=row)
        running = page.locator("#sessions tr", has_text="running")
        await expect(running).to_contain_text("hold")
        said = f"{where} is being released."
        await act(page, "automations-release", said, force="false")
        await expect(running).to_have_count(0)
        page_of = await rig.store.read(JobsQuery(lane="automations", newest=True))
        assert State.CANCELLED in {one.state for one in page_of.rows}
