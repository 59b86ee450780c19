"""The page of cascades: who was asked, their answers, who is being asked now and for how long."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any
from unittest.mock import patch

import httpx

from headway import App
from headway.contract.claims import ClaimRequest
from headway.contract.definitions import Role
from headway.contract.outcomes import HandedOver, SettleRequest
from headway.contract.signals import Decided, Signal
from headway.contract.views import JobQuery, JobsQuery
from headway.core.job import JobPolicy, NewJob, derived_id
from headway.stores import open_store
from headway.testing.clock import START_AT, FakeClock
from tests.server.rig import Rig
from tests.web.rig import HOSTILE, dashboard, do, signed_in
from tests.web.test_web_live import LIVE, messages, until
from tests.web.test_web_pages import Tags, plain

REQUESTS = count(1)
HOUR = 3_600_000


@asynccontextmanager
async def offering(who: Role = Role.OPERATOR) -> AsyncIterator[tuple[Rig, httpx.AsyncClient]]:
    app = App(store=open_store("memory://", clock=FakeClock(START_AT)))
    async with dashboard(app=app) as rig, signed_in(rig, who) as http:
        yield rig, http


async def offer(rig: Rig, name: str, *candidates: str, **more: Any) -> str:
    """Create a job with candidates, offer it to the first, and return its id."""
    job = NewJob(
        id=derived_id("test", name),
        **{"kind": "offer", "lane": f"lane {name}", "subject": name, **more},
        candidates=candidates,
        policy=JobPolicy(cascade=True),
    )
    await rig.store.enqueue([job])
    await turn(rig, job)
    return job.id


async def turn(rig: Rig, job: NewJob | str, timeout_ms: int = HOUR) -> None:
    """Start the next turn of a job."""
    if isinstance(job, str):
        found = await rig.store.read(JobQuery(id=job))
        assert found is not None
        lane = found.lane
    else:
        lane = job.lane
    request = ClaimRequest(
        worker="w", request=next(REQUESTS), lanes=((lane, 1),), n=1, free=1, lease_ms=HOUR
    )
    (held,) = (await rig.store.claim(request)).jobs
    outcome = HandedOver(job=held.id, run=held.run, key=held.id, timeout_ms=timeout_ms)
    await rig.store.settle(SettleRequest(worker="w", outcomes=(outcome,)))


async def decline(rig: Rig, job: str) -> None:
    event = f"no {next(REQUESTS)}"
    await rig.store.signal(Signal(key=job, event=event, decided=Decided.DECLINED, reason="busy"))


async def test_asked_candidates_are_shown_with_their_answers_and_the_current_one():
    async with offering() as (rig, http):
        job = await offer(rig, "boiler", "ada", "bob", "cid", "dee", "eve", "flo")
        await decline(rig, job)
        await turn(rig, job)
        later = await offer(rig, "sink", "gus", "hal")
        await decline(rig, later)
        await turn(rig, later, HOUR // 2)
        text = plain((await http.get("/ui/cascades")).text)
        assert "ada declined (busy)" in text
        assert "bob is asked, 1h left" in text
        assert "next: cid, dee, eve and 1 more" in text
        # The one whose turn ends first comes first.
        assert 0 < text.index(later[-8:]) < text.index(job[-8:])


async def test_open_page_receives_each_turn():
    async with offering() as (rig, http):
        job = await offer(rig, "boiler", "ada", "bob")
        async with http.stream("GET", "/ui/cascades", headers=LIVE) as reply:
            found = messages(reply)
            assert await until(found, "ada") == "change"
            await decline(rig, job)
            await turn(rig, job)
            assert await until(found, "the last candidate") == "change"


async def test_cascade_is_cancelled_from_its_card():
    async with offering() as (rig, http):
        job = await offer(rig, "boiler", "ada")
        assert f"/ui/-/do/cancel-job?job={job}" in (await http.get("/ui/cascades")).text
        assert (await do(http, f"/ui/-/do/cancel-job?job={job}")).status_code == 303
        found = await rig.store.read(JobQuery(id=job))
        assert found is not None
        assert found.cancel_requested


async def test_viewer_sees_no_button_and_a_tenants_token_only_its_own_cascades():
    async with offering(Role.VIEWER) as (rig, http):
        await offer(rig, "ours", "ada", tenant="acme", lane="l1")
        await offer(rig, "others", "bob", tenant="globex", lane="l2")
        page = (await http.get("/ui/cascades")).text
        assert "ours" in page
        assert "others" in page
        assert "/ui/-/do/" not in page
        for scope in ({"tenants": ["acme"]}, {"lanes": ["l1"]}):
            async with signed_in(rig, await rig.token(Role.VIEWER, **scope)) as own:
                page = (await own.get("/ui/cascades")).text
                assert "ours" in page
                assert "others" not in page
                assert "globex" not in page


async def test_hostile_candidates_and_reasons_are_shown_as_text():
    async with offering() as (rig, http):
        for i, evil in enumerate(HOSTILE):
            await offer(rig, f"s{i} {evil}"[:200], f"c {evil}"[:200], kind=f"k{i} {evil}"[:200])
        for query in ({}, *({"kind": one} for one in HOSTILE)):
            reply = await http.get("/ui/cascades", params=query)
            assert reply.status_code == 200
            seen = Tags(reply.text)
            assert seen.scripts == 1
            assert "img" not in seen.names
            assert not [one for one in seen.attributes if one.startswith("on")]
            assert not [one for one in seen.links if one.startswith("javascript")]
            for sign in ("\x1b", "\x07", "\N{RIGHT-TO-LEFT OVERRIDE}"):
                assert sign not in seen.text + seen.labels


async def test_page_reads_a_bounded_number_of_live_jobs():
    async with offering() as (rig, http):
        await offer(rig, "boiler", "ada")
        asked: list[JobsQuery] = []
        read = rig.store.read

        async def counted(query: Any) -> Any:
            if isinstance(query, JobsQuery):
                asked.append(query)
            return await read(query)

        with patch.object(rig.store, "read", counted):
            await http.get("/ui/cascades")
        assert asked
        assert sum(one.limit for one in asked) <= 100
        assert all(one.states for one in asked)


async def test_cascade_with_a_running_handler_is_shown_behind_many_waiting_ones():
    async with offering() as (rig, http):
        policy = JobPolicy(cascade=True)
        who = ("ada", "bob")
        runs, *waiting = (
            NewJob(
                id=derived_id("test", f"boiler {n}"),
                kind="offer",
                lane="idle" if n else "run",
                subject=f"boiler {n}",
                candidates=who,
                policy=policy,
            )
            for n in range(102)
        )
        await rig.store.enqueue([runs])
        await rig.store.claim(
            ClaimRequest(worker="w", request=next(REQUESTS), lanes=(("run", 1),), lease_ms=HOUR)
        )
        await rig.store.enqueue(waiting)
        # Once for all kinds, including one the App does not know, and once filtered by its kind.
        for asked in ({}, {"kind": "offer"}):
            assert "boiler 0" in plain((await http.get("/ui/cascades", params=asked)).text)
