"""A lead from intake to end, with a carrier that speaks Twilio's API."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.systems.calls.calls_rig import NUMBER, PHONE, calling


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_lead_is_called_from_the_number_and_finished(tmp_path: Path, store: str) -> None:
    url = "memory://" if store == "memory" else f"sqlite:///{tmp_path}/jobs.db"
    async with calling(tmp_path, store=url) as calls:
        await calls.number()
        lead = await calls.lead(payload={"name": "Ada"})
        told = await calls.finished(lead)
        (call,) = calls.calls_to()
        assert (call.plan.from_, call.plan.to) == (NUMBER, PHONE)
        (attempt,) = told["attempts"]
        assert told["outcome"] == "COMPLETED"
        assert told["attempt_count"] == 1
        assert attempt["call_id"] == call.sid
        assert (attempt["number"], attempt["provider"]) == (NUMBER, "twilio")
        assert attempt["outcome"] == "COMPLETED"
        assert attempt["started_at"] <= attempt["ended_at"] == told["finished_at"]
        assert told["payload"] == {"name": "Ada"}
        await calls.audit()
