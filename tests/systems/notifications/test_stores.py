"""The same on every store: dedupe, fallback, a limit, a lost answer, a delivery, a cancel."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from headway.contract.views import GatesQuery
from headway.systems.notifications import delivery
from headway.systems.notifications.delivery import DeliveryEvent
from headway.systems.notifications.notification import Channel
from headway.systems.notifications.sender import (
    Limited,
    Refused,
    Unavailable,
    Unsure,
)
from tests.servers.postgres import fresh_database
from tests.servers.stores import NewUrl
from tests.systems.notifications.notify_rig import notifying

# Raised by apprise's own imports.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")


@pytest.mark.parametrize("where", ["memory", "sqlite", "postgresql", "redis"])
async def test_notification_takes_all_its_paths_on_every_store(
    tmp_path: Path, new_url: NewUrl, where: str, request: pytest.FixtureRequest
):
    async with AsyncExitStack() as stack:
        directory = ""
        if where == "postgresql":
            # The deduplication keys are stored in either kind of database that a directory can use.
            server = request.getfixturevalue("fast_postgres_server")
            directory = stack.enter_context(fresh_database(server.url))
        notify = await stack.enter_async_context(
            notifying(tmp_path, new_url(where), directory=directory)
        )
        await notify.ada()
        notify.push.answers.append(Refused("BadDeviceToken"))
        one = await notify.send(channels=["push", "email"], dedupe_key="k")
        assert await notify.send(channels=["push", "email"], dedupe_key="k", text="b") == one
        assert (await notify.becomes(one, "SENT"))["channel"] == "email"
        said = DeliveryEvent(f"p-{one}-1", "e1", delivered=True, reason="")
        await delivery.apply_event(notify.context, said)
        assert (await notify.get(one))["status"] == "DELIVERED"

        notify.sms.answers += [Unsure("cut"), Limited("429", retry_after_ms=3_600_000)]
        told = await notify.becomes(await notify.send(channel="sms"), "SENT")
        assert told["reason"] == "sent, answer lost: cut"
        limited = await notify.send(channel="sms")

        async def closed() -> bool:
            gate = Channel.SMS.slots
            (state,) = (await notify.store.read(GatesQuery(names=(gate,)))).rows
            return state.closed_until is not None and state.used == 0

        await notify.until(closed)
        told = await notify.ok("DELETE", f"/notifications/{limited}")
        assert told["status"] == "CANCELLED"

        notify.email.answers.append(Unavailable("no route"))
        two = await notify.send()

        async def put_back() -> bool:
            return (await notify.get(two))["reason"] == "email: no route"

        await notify.until(put_back)
        await notify.call("POST", f"/v1/jobs/{two}/run-now", {})
        await notify.becomes(two, "SENT")
        rows = (await notify.ok("GET", "/recipients/ada/timeline"))["rows"]
        assert [row["status"] for row in rows] == ["SENT", "CANCELLED", "SENT", "DELIVERED"]
