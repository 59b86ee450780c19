"""Every page for users of screen readers and keyboards, and with hostile text in every field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headway as hw
from headway.bridges.cassandra.reader import Reader
from headway.bridges.kafka.monitoring import kafka_page
from headway.contract.definitions import CloseGate, DeclareGate, DefineRequest, Role
from headway.contract.outcomes import Died, Failed, HandedOver
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.timetable.schedule import At, Every
from headway.runtime.timing import REAL
from headway.systems.lanes import make as make_lanes
from headway.systems.notifications.notification import Channel
from tests.bridges.cassandra.fake_link import FakeLink
from tests.bridges.cassandra.world import SETTINGS
from tests.bridges.kafka import test_page as kafka_test_page
from tests.server.rig import Rig
from tests.servers.browser import browsing
from tests.systems.automations import test_automations_page as automations_page
from tests.systems.automations.sessions_rig import new_repository
from tests.systems.automations.test_dispatching import entry
from tests.systems.calls.calls_rig import NUMBER, calling
from tests.systems.field_service.field_rig import a_field
from tests.systems.lanes.queue import Queue
from tests.systems.notifications import test_notifications_page as notifications_page
from tests.web.driving import look_at, opened
from tests.web.rig import HOSTILE, dashboard
from tests.web.test_web_cascades import decline, offer, turn
from tests.web.test_web_jobs import Worker
from tests.web.test_web_timetable import declare as declare_entry

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

LONG = "longwithoutanyplacetobreak" * 18
EVIL = (*HOSTILE, LONG, "\N{HEBREW LETTER ALEF}\N{RIGHT-TO-LEFT EMBEDDING}x" * 20, "nul\0nul")
"""Text that users may write; where NUL cannot be stored it is refused earlier."""


async def scene(rig: Rig) -> list[str]:
    """Fill a store with everything that pages show, including hostile text from users.

    Returns:
        The paths of the pages.
    """
    await rig.store.define(
        DefineRequest(
            items=(
                DeclareGate(spec=Slots("lines", 1)),
                DeclareGate(spec=Rate("sends", 5, "1h")),
                DeclareGate(spec=Pool("numbers", {"a": 1, "b": 2})),
                DeclareGate(spec=hw.Hours("day", "09:00-09:01", days="sun", tz="Asia/Tokyo")),
                DeclareGate(spec=Slots("phone:{phone}", 1)),
                CloseGate(name="sends", reason=EVIL[0] + LONG),
            ),
            author="a test",
        )
    )
    made = [
        await rig.send(None, lane="calls", kind="call", gates=["lines"], tenant="acme")
        for _ in range(3)
    ]
    worker = Worker(rig, "hand")
    await worker.take("calls", 3)
    for lane, gate in (("sending", "sends"), ("office", "day")):
        await rig.send(None, lane=lane, gates=[gate])
    for phone in ("1", "2"):
        for _ in range(2):
            await rig.send(None, lane="dial", gates=["phone:{phone}"], args={"phone": phone})
    await worker.take("dial", 4)
    told = dict.fromkeys(
        f" lanes lanes?lane=calls gates gates?gate=lines gates?gate=numbers gates?gate=sends"
        f" gates?gate=day gates?only=shut jobs jobs/{made[0]} jobs/{made[1]} jobs?state=cancelled"
        " dead timetable timetable?view=day timetable?entry=nightly cascades cascades?kind=offer"
        " workers trail".split(" ")
    )
    for i, evil in enumerate(EVIL):
        told |= dict.fromkeys(await _evil(rig, i, evil))
    await declare_entry(rig, "nightly", At("03:00"))
    await declare_entry(rig, "often", Every(60_000))
    job = await offer(rig, "boiler", "ada", LONG[:200], *(one[:200] for one in EVIL[:3]))
    for _ in range(2):
        await decline(rig, job)
        await turn(rig, job)
    return [f"/ui/{one}".removesuffix("/") for one in told]


async def _evil(rig: Rig, i: int, evil: str) -> list[str]:
    """Create jobs in several states with hostile text in each field; return the pages of some."""
    name = evil.replace("{", "(").replace("}", ")").replace("\0", "")
    lane = f"l{i} {name}"[:512]
    worker = Worker(rig, f"w{i} {name}"[:200])
    job = {
        "lane": lane,
        "kind": f"k{i} {name}"[:512],
        "tenant": f"t{i} {name}"[:512],
        "subject": f"s{i} {name}"[:512],
    }
    args = {name: [evil], "deep": {"text": evil}}
    error = f"Traceback\n  {evil}\nError: {evil}"
    ids = [await rig.send(None, **job, key=f"{i}{n} {name}"[:512], args=args) for n in range(4)]
    held = await worker.take(lane, 3)
    await worker.say(
        Died(held[0].id, held[0].run, reason=name[:1000], error=error),
        Failed(held[1].id, held[1].run, error=error),
        HandedOver(job=held[2].id, run=held[2].run, key=held[2].id, timeout_ms=3_600_000),
    )
    gate = f"g{i} {name}"[:512]
    await rig.store.define(DefineRequest(items=(DeclareGate(spec=Slots(gate, 0)),), author=name))
    close = CloseGate(name=gate, reason=name[:1000])
    await rig.store.define(DefineRequest(items=(close,), author=name[:200]))
    await rig.send(None, lane=lane, gates=[gate], key=f"x{i}")
    await declare_entry(rig, f"e{i} {name}"[:300], At(f"{i % 24:02}:00"), **job)
    path = f"/v1/jobs/{ids[3]}/cancel"
    await rig.call(None, "POST", path, {"reason": name[:1000]})
    return [f"jobs/{one.id}" for one in held[: 1 + (i == 0)]]


async def test_pages_of_the_engine_are_complete():
    async with dashboard(tokens=False) as rig, browsing() as browser:
        paths = await scene(rig)
        async with opened(browser, rig) as page:
            await look_at(page, rig, paths)


async def whole(rig: Rig, *paths: str) -> None:
    """Check pages of a system as an administrator."""
    async with browsing() as browser, opened(browser, rig, token=rig.tokens[Role.ADMIN]) as page:
        await look_at(page, rig, paths)


async def test_page_of_the_http_queue_is_complete():
    async with dashboard(systems=[make_lanes({})]) as rig:
        makes = Queue(rig.http, rig.tokens[Role.PRODUCER])
        works = Queue(rig.http, rig.tokens[Role.WORKER])
        for i, evil in enumerate(EVIL):
            lane = f"l{i} {evil}".replace("\0", "")[:200]
            for n in range(2):
                job = {"type": f"t {lane}"[:200], "job_id": f"{n} {lane}"[:200]}
                await makes.enqueue(lane, **job)
            pulled = await works.pull(lane, worker=f"w {lane}"[:100])
            # A pull takes a name with brackets as a pattern, which may match nothing.
            for job in pulled[:1]:
                await works.say("/fail", job, worker=f"w {lane}"[:100], error=evil, dead=True)
        await whole(rig, "/ui/queue")


async def test_pages_of_the_bridges_are_complete(tmp_path: Path):
    lag = {(evil, n): 10 * n for n, evil in enumerate(EVIL)}
    watch = kafka_test_page.Answers(lag=lag, missing=EVIL, away=EVIL[0] + LONG)
    async with dashboard(pages=[kafka_page(watch, kafka_test_page.settings())]) as rig:
        await whole(rig, "/ui/kafka")
    link = FakeLink(SETTINGS)
    async with notifications_page.operating(tmp_path, cassandra=link) as (notify, http):
        await Reader(link, notify.store, REAL).round()
        assert "Read ahead" in await notifications_page.text_of(http, "/ui/calendar")
        await whole(notify.rig, "/ui/calendar")


async def test_pages_of_calls_are_complete(tmp_path: Path):
    async with calling(tmp_path, work=False) as one:
        await one.number(NUMBER, 2)
        await one.lead()
        for i, evil in enumerate(EVIL):
            body = {"number": f"+155500020{i:02}", "provider": "twilio", "maximum_channels": 1}
            reseller = {"reseller": evil.replace("\0", "")[:200]}
            await one.call("POST", "/numbers", {**body, **reseller})
            lead = {"phone": f"+141555502{i:02}", "tz": "UTC", **reseller}
            await one.call("POST", "/leads", lead)
        await one.close(f"calls.numbers/{NUMBER}", LONG)
        await whole(one.rig, "/ui/calls", "/ui/calls/campaigns")


async def test_pages_of_field_service_are_complete(tmp_path: Path):
    settings: dict[str, Any] = {"tokens": True, "offer_timeout": "1h", "lines": {}}
    async with a_field(tmp_path, **settings) as one:
        for i, name in enumerate(("ada", "bob", "cid")):
            await one.technician(name, km=1 + i, on_duty=name != "cid")
            await one.change(name, name=LONG[:100], skills=[EVIL[i][:60]])
        for i, evil in enumerate(EVIL):
            text = evil.replace("\0", "")
            customer = {"name": f"{i} {text}"[:100], "phone": "+14155550100"}
            asked = {"customer": customer, "address": text[:200], "description": text[:2000]}
            sent = (await one.ask(**asked))["id"]
            if i == 0:
                await one.asks(sent, "ada")
            elif i == 1:
                await one.move(sent, "assign", technician="bob")
            elif i == 2:
                await one.withdraw(sent)
        await whole(one.rig, "/ui/field-service", "/ui/field-service/technicians")


async def test_pages_of_notifications_are_complete(tmp_path: Path):
    async with notifications_page.operating(tmp_path, work=False) as (one, _):
        await one.ada(name=LONG[:100])
        for i, evil in enumerate(EVIL):
            text = evil.replace("\0", "")
            source = "{% raw %}" + text.replace("{%", "(").replace("%}", ")") + "{% endraw %}"
            body = {"id": f"t{i}", "name": text[:100], "channels": {"default": {"text": source}}}
            await one.ok("POST", "/message-templates", body, 201)
            await one.send(text=text, title=text[:200])
        closing = {"gate": Channel.EMAIL.slots, "reason": LONG}
        await one.rig.call(Role.OPERATOR, "POST", "/v1/closures", closing)
        first = "/ui/notifications"
        templates = f"{first}/templates"
        previews = [f"{templates}?template=t{i}&channel=sms" for i in (0, 7, 9)]
        await whole(one.rig, first, f"{first}?recipient=ada", templates, *previews)


async def test_pages_of_automations_are_complete(tmp_path: Path):
    where = new_repository(tmp_path / "repository")
    listed = [
        entry(f"e{i}", Path(f"/srv/{one.replace(chr(39), '')}"), schedule="at 09:00", window=one)
        for i, one in enumerate(HOSTILE)
    ]
    listed += [
        entry("good", where, f"echo '{LONG}'; echo '{HOSTILE[0]}'"),
        entry("later", where, schedule="at 09:00"),
        entry(LONG[:100], where, schedule="at 09:00"),
    ]
    async with automations_page.operating(tmp_path, *listed, work=True) as (rig, http):
        await automations_page.shown(http, "succeeded")
        (job, *_) = await automations_page.jobs(rig)
        for path in ("later", LONG[:100]):
            await rig.call(Role.ADMIN, "POST", f"/api/automations/automations/{path}/run")
        paths = ["", "?entry=good", "?entry=e0", f"?session={job.id}"]
        await whole(rig, *(f"/ui/automations{one}" for one in paths))
