"""A job whose arguments no system can read disturbs no other: any program may write to the store.

`headway retry --args` is one that does.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast
from unittest.mock import AsyncMock
from uuid import uuid4

import pytest

from headway.contract.definitions import Role
from headway.contract.operate import Acted, Edit, Verb
from headway.contract.store import Store
from headway.contract.views import JobsQuery
from headway.core.job import JobPolicy, NewJob
from headway.core.retry import Backoff
from headway.core.state import State
from headway.runtime.timing import REAL
from headway.systems.automations.dispatcher import KIND, LANE, Dispatcher
from headway.systems.automations.reports import session_of
from headway.systems.calls import requeueing
from headway.systems.calls.lead import DIAL
from headway.systems.calls.requeueing import requeue
from headway.systems.field_service.metrics import times_to_accept
from headway.systems.field_service.passing_over import reconsider_parked
from headway.systems.jobs import act
from tests.systems.automations.sessions_rig import new_repository
from tests.systems.automations.test_dispatching import entry, service
from tests.systems.calls.calls_rig import calling
from tests.systems.field_service.field_rig import LIMIT_S, a_field
from tests.systems.notifications.test_notifications_page import PAGE, operating
from tests.web.rig import signed_in


async def spoil(store: Store, job: str, stage: str | None = None) -> None:
    """Replace a job's arguments, as an operator can."""
    edit = Edit(args=b"{}", stage=stage)
    (reply,) = await act(store, Verb.EDIT, job, author="ops", edit=edit)
    assert reply.answer is Acted.DONE


async def test_lead_that_cannot_be_read_is_left_out_and_others_are_requeued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # The server requeues after its start, too.
    monkeypatch.setattr(requeueing, "requeue", AsyncMock(return_value=0))
    async with calling(tmp_path, work=False) as calls, signed_in(calls.rig, Role.VIEWER) as http:
        spoilt, other = await calls.lead(), await calls.lead("+14155550199")
        await spoil(calls.store, spoilt, DIAL)
        (reply,) = await act(calls.store, Verb.EDIT, other, author="ops", edit=Edit(stage=DIAL))
        assert reply.answer is Acted.DONE
        assert [one["id"] for one in (await calls.ask("/leads"))["rows"]] == [other]
        assert (await calls.call("GET", f"/leads/{spoilt}")).status_code == 404
        assert (await http.get("/ui/calls/campaigns")).status_code == 200
        # The other has the gates of the check and now needs those of the dial.
        assert await requeue(calls.system.context) == 1


async def test_notification_that_cannot_be_read_is_left_out(tmp_path: Path):
    async with operating(tmp_path, work=False) as (one, http):
        await one.ada()
        spoilt, other = await one.send(), await one.send()
        await spoil(one.store, spoilt)
        for path in ("/notifications", "/recipients/ada/timeline"):
            assert [row["id"] for row in (await one.ok("GET", path))["rows"]] == [other]
        assert (await one.call("GET", f"/notifications/{spoilt}")).status_code == 404
        assert (await http.get(PAGE)).status_code == 200


async def test_service_request_that_cannot_be_read_is_left_out(tmp_path: Path):
    async with a_field(tmp_path, work=False) as field:
        await field.technician("ada")
        spoilt, other = (await field.ask())["id"], (await field.ask())["id"]
        await spoil(field.store, spoilt)
        told = await field.rig.ask(field.who, "/service-requests")
        assert [one["id"] for one in told["rows"]] == [other]
        reply = await field.rig.call(field.who, "GET", f"/service-requests/{spoilt}")
        assert reply.status_code == 404
        assert (await field.rig.http.get("/ui/field-service")).status_code == 200
        await act(field.store, Verb.SUCCEED, spoilt, author="ops")
        assert await times_to_accept(field.store, 0) == []


async def test_request_that_cannot_be_read_does_not_hold_back_others_at_its_lock(tmp_path: Path):
    async with a_field(tmp_path, offer_timeout="1h", lines={}) as field:
        await field.technician("ada")
        declined = (await field.ask())["id"]
        await field.asks(declined, "ada")
        assert (await field.say(declined, "decline", "ada")).status_code == 200
        asked = (await field.ask())["id"]
        await field.asks(asked, "ada")
        spoilt = (await field.ask())["id"]
        await field.settled("offer_review", 4)
        await spoil(field.store, spoilt)
        async with asyncio.timeout(LIMIT_S):
            while (await field.job(spoilt)).state is not State.PARKED:
                await REAL.pause(0.01)
        await reconsider_parked(field.store, await field.job(declined))
        assert (await field.job(spoilt)).state is State.PARKED


async def test_session_that_cannot_be_read_is_left_out(tmp_path: Path):
    given = entry("a", new_repository(tmp_path / "repository"))
    async with service(tmp_path, f"sqlite:///{tmp_path}/h.db", given) as one:
        await one.ended("a")
        store = one.rig.store
        once = JobPolicy(retry=Backoff(attempts=1))
        for args in (b"[]", b'{"automation":["a"],"repository":"r"}', b"{}"):
            job = NewJob(id=str(uuid4()), kind=KIND, lane=LANE, args=args, policy=once)
            await store.enqueue([job])

        async def dead() -> bool:
            page = await store.read(JobsQuery(lane=LANE, states=(State.DEAD,)))
            return len(page.rows) == 3

        await one.until(dead)
        assert [row["status"] for row in (await one.get())["automations"]] == ["succeeded"]
        assert (await one.post("/dispatch"))["dispatched"] == 0
        for path in ("/locks", "/dispatcher/health", "/dispatcher/metrics"):
            await one.get(path)
        assert (await one.rig.http.get("/metrics")).status_code == 200
        dispatcher = one.rig.service.system_services["automations"]
        found, job = await session_of(store, cast("Dispatcher", dispatcher), "a")
        assert (found.startswith("cron:a:"), job is not None) == (True, True)
