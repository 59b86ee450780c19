"""POST /leads/{id}/dispatch-now, and hanging up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headway.stores import open_store
from headway.systems.calls import call_events
from headway.testing.clock import FakeClock
from tests.server.problems import problem
from tests.systems.calls.calls_rig import PHONE, calling

LATER = "2027-06-01T10:00:00Z"


async def test_lead_is_called_now_though_due_later(tmp_path: Path) -> None:
    async with calling(tmp_path) as calls:
        await calls.number()
        lead = await calls.lead(next_attempt_at=LATER)
        reply = await calls.call("POST", f"/leads/{lead}/dispatch-now")
        assert reply.status_code == 200
        assert reply.json() == {"status": "queued", "expected_dispatch_within_ms": 1_000}
        assert (await calls.finished(lead))["outcome"] == "COMPLETED"
        finished = await calls.call("POST", f"/leads/{lead}/dispatch-now")
        assert finished.status_code == 400
        another = lead[:-1] + ("1" if lead.endswith("0") else "0")
        unknown = await calls.call("POST", f"/leads/{another}/dispatch-now")
        assert unknown.status_code == 404


async def test_current_call_is_hung_up_only_on_request(tmp_path: Path) -> None:
    async with calling(tmp_path) as calls:
        await calls.number()
        calls.carrier.person(PHONE, "talks", talk_s=1_000_000)
        lead = await calls.lead()
        await calls.until_status(lead, "PROCESSING", attempt_count=1)
        await calls.carrier.until(
            lambda world: any(one.status == "in-progress" for one in world.ledger.calls.values())
        )
        assert (await calls.call("POST", f"/leads/{lead}/dispatch-now")).status_code == 409
        assert (await calls.call("DELETE", f"/leads/{lead}")).status_code == 409
        assert (await calls.get_lead(lead))["status"] == "PROCESSING"
        reply = await calls.call("DELETE", f"/leads/{lead}?hangup=true")
        assert reply.status_code in {200, 202}
        told = await calls.finished(lead)
        (call,) = calls.calls_to()
        assert told["outcome"] == "ABORT"
        assert call.status == "completed"
        await calls.audit()


async def test_provider_is_asked_once_to_hang_up_however_many_webhooks_arrive(
    tmp_path: Path,
) -> None:
    async with calling(tmp_path, post_lost=1.0, speed=0.001) as calls:
        await calls.number()
        lead = await calls.lead()

        async def known() -> bool:
            attempts = (await calls.get_lead(lead))["attempts"]
            return bool(attempts and attempts[0]["call_id"])

        await calls.until(known, "a call")
        account, asked = calls.system.context.parts.telephony.voice("twilio"), list[str]()

        async def hang_up(call_id: str) -> None:
            asked.append(call_id)

        account.hang_up = hang_up  # type: ignore[method-assign]  (the call goes on for a while)
        path = f"/leads/{lead}?hangup=true"
        assert (await calls.call("DELETE", path)).status_code == 202
        (call,) = calls.calls_to()
        ref = f"{lead}:{(await calls.job(lead)).run}"
        for n, status in enumerate(("queued", "ringing", "in-progress")):
            assert (await calls.webhook(ref, call.sid, status, n=n)).status_code == 204
        assert asked == [call.sid]
        # A repeated request is intentional.
        assert (await calls.call("DELETE", path)).status_code == 202
        assert asked == [call.sid] * 2
        await calls.webhook(ref, call.sid, "completed", n=3)
        assert (await calls.finished(lead))["outcome"] == "ABORT"


async def test_expected_time_counts_hours_though_the_checks_come_first(
    tmp_path: Path,
) -> None:
    hour_ms = 3_600_000
    store = open_store("memory://", clock=FakeClock())
    async with calling(tmp_path, store=store, work=False) as calls:
        # It is 00:00 in London.
        await calls.number()
        await calls.template("day", hours={"spans": "09:00-18:00"})
        lead = await calls.lead(template="day", tz="Europe/London", next_attempt_at="20m")

        async def expected(lead: str) -> int | None:
            reply = await calls.call("POST", f"/leads/{lead}/dispatch-now")
            assert reply.status_code == 200
            return reply.json()["expected_dispatch_within_ms"]

        assert await expected(lead) == 9 * hour_ms + 1_000
        open_now = await calls.lead("+14155550111", template="day", tz="Asia/Tokyo")
        assert await expected(open_now) == 1_000
        await calls.close("calls.numbers")
        assert await expected(lead) is None
    await store.close()


async def test_closed_gates_apply_to_leads_dispatched_now(tmp_path: Path) -> None:
    async with calling(tmp_path) as calls:
        lead = await calls.lead()
        await calls.until_why(lead, "has no members")
        reply = await calls.call("POST", f"/leads/{lead}/dispatch-now")
        assert reply.status_code == 200
        assert reply.json()["expected_dispatch_within_ms"] is None
        assert not calls.calls_to()
        await calls.number()
        assert (await calls.finished(lead))["outcome"] == "COMPLETED"


async def test_call_not_yet_known_is_hung_up_as_soon_as_its_provider_reports_it(
    tmp_path: Path,
) -> None:
    async with calling(tmp_path, post_lost=1.0) as calls:
        await calls.number()
        calls.carrier.person(PHONE, "cut", talk_s=1_000_000)
        lead = await calls.lead()
        await calls.carrier.until(
            lambda world: any(one.status == "in-progress" for one in world.ledger.calls.values())
        )
        reply = await calls.call("DELETE", f"/leads/{lead}?hangup=true")
        assert (reply.status_code, reply.json()["status"]) == (202, "PROCESSING")
        (call,) = calls.calls_to()
        assert call.status == "in-progress"
        ref = f"{lead}:{(await calls.job(lead)).run}"
        assert (await calls.webhook(ref, call.sid, "in-progress", n=2)).status_code == 204
        assert call.status == "completed"
        await calls.webhook(ref, call.sid, "completed", n=3)
        assert (await calls.finished(lead))["outcome"] == "ABORT"
        await calls.audit()


async def test_lead_that_is_called_during_its_cancel_is_neither_cancelled_nor_hung_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with calling(tmp_path) as calls:
        calls.carrier.person(PHONE, "talks", talk_s=1_000_000)
        lead = await calls.lead()
        await calls.until_why(lead, "calls.numbers")
        acts = call_events.act

        async def late(*args: Any, **more: Any) -> Any:
            await calls.number()
            await calls.carrier.until(
                lambda world: any(
                    one.status == "in-progress" for one in world.ledger.calls.values()
                )
            )
            return await acts(*args, **more)

        with monkeypatch.context() as patched:
            patched.setattr(call_events, "act", late)
            reply = await calls.call("DELETE", f"/leads/{lead}")
        problem(reply, 409, "invalid_state")
        (call,) = calls.calls_to()
        job = await calls.job(lead)
        assert (call.status, job.state, job.cancel_requested) == ("in-progress", "awaiting", False)
        reply = await calls.call("DELETE", f"/leads/{lead}?hangup=true")
        assert reply.status_code == 202
        assert (await calls.finished(lead))["outcome"] == "ABORT"
