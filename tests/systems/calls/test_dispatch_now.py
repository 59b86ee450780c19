"""POST /leads/{id}/dispatch-now, and hanging up."""

from __future__ import annotations

from pathlib import Path

from tests.systems.calls.calls_rig import PHONE, calling

LATER = "2027-06-01T10:00:00Z"


async def test_a_lead_is_called_now_though_it_is_due_later(tmp_path: Path) -> None:
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


async def test_a_lead_that_is_called_is_hung_up_only_if_that_is_asked_for(tmp_path: Path) -> None:
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
        assert (await calls.told(lead))["status"] == "PROCESSING"
        reply = await calls.call("DELETE", f"/leads/{lead}?hangup=true")
        assert reply.status_code in {200, 202}
        told = await calls.finished(lead)
        (call,) = calls.calls_to()
        assert told["outcome"] == "ABORT"
        assert call.status == "completed"
        await calls.audit()


async def test_closed_gates_hold_for_what_is_dispatched_now(tmp_path: Path) -> None:
    async with calling(tmp_path) as calls:
        lead = await calls.lead()
        await calls.until_why(lead, "has no members")
        reply = await calls.call("POST", f"/leads/{lead}/dispatch-now")
        assert reply.status_code == 200
        assert reply.json()["expected_dispatch_within_ms"] is None
        assert not calls.calls_to()
        await calls.number()
        assert (await calls.finished(lead))["outcome"] == "COMPLETED"


async def test_a_call_that_nobody_knows_yet_is_hung_up_as_soon_as_its_provider_tells_of_it(
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
