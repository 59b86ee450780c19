"""Providers' webhooks: early, late, repeated, out of order, for unknown calls, and unsigned."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headway.contract.outcomes import HandedOver, SettleRequest
from headway.contract.views import JobView
from headway.core.job import NewJob, derived_id
from headway.core.state import State
from headway.systems.calls import call_events
from headway.systems.calls.call_events import apply_event, put_back
from headway.systems.calls.context import CallsContext
from headway.systems.calls.lead import CHECK, LEAD
from headway.systems.calls.overview import CountedEvent
from headway.systems.telephony.voice import CallEvent, CallStatus
from tests.plain_jobs import LANE, claim
from tests.systems.calls.calls_rig import NUMBER, PHONE, Calls, calling

SILENT: dict[str, Any] = {"post_lost": 1.0}
"""The carrier's own webhooks never arrive: the test posts them."""


@pytest.fixture
async def calls(tmp_path: Path) -> AsyncIterator[Calls]:
    async with calling(tmp_path, **SILENT) as found:
        await found.number()
        await found.template(retry_offset="0s", max_retry=1)
        found.carrier.person(PHONE, "talks", talk_s=1_000_000)
        yield found


async def called(calls: Calls, n: int = 1) -> tuple[str, str, str]:
    """Return a lead whose n-th call was placed, the reference of its run, and the call's id."""
    rows = (await calls.ask("/leads"))["rows"]
    lead = rows[0]["id"] if rows else await calls.lead()

    async def known() -> Any:
        attempts = (await calls.get_lead(lead))["attempts"]
        return attempts[n - 1] if len(attempts) >= n and attempts[n - 1]["call_id"] else None

    attempt = await calls.until(known, f"call {n}")
    return lead, f"{lead}:{attempt['run']}", attempt["call_id"]


async def totals(calls: Calls, event: CountedEvent) -> dict[str, int]:
    found = await calls.system.context.tally.totals()
    return {label: times for (one, label), times in found.items() if one == event}


async def test_ended_call_releases_its_line_and_finishes_its_lead(calls: Calls) -> None:
    lead, ref, call = await called(calls)
    waits = await calls.lead("+14155550111")
    await calls.until_why(waits, "calls.numbers", "1 of 1")
    reply = await calls.webhook(ref, call, "completed", n=3, CallDuration="7")
    assert reply.status_code == 204
    assert (await calls.get_lead(lead))["outcome"] == "COMPLETED"
    job = await calls.job(lead)
    assert job.result is not None
    assert b'"duration_s":7' in job.result
    await calls.until_status(waits, "PROCESSING")
    await calls.audit()


@pytest.mark.parametrize(
    ("status", "outcome"), [("busy", "BUSY"), ("no-answer", "NO_ANSWER"), ("failed", "FAILED")]
)
async def test_unanswered_call_is_repeated_as_often_as_the_template_says(
    calls: Calls, status: str, outcome: str
) -> None:
    lead, first, call = await called(calls)
    await calls.webhook(first, call, status, n=2)
    _, second, other = await called(calls, 2)
    assert (second, other) != (first, call)
    await calls.webhook(second, other, status, n=2)
    told = await calls.finished(lead)
    assert told["outcome"] == outcome
    assert [one["outcome"] for one in told["attempts"]] == [outcome, outcome]
    assert told["attempt_count"] == len(calls.calls_to()) == 2
    counted = await calls.ask("/leads/outcomes")
    assert counted == {"outcomes": {outcome: 2}, "under_way": 0, "leads": 1, "complete": True}


@pytest.mark.parametrize(
    ("status", "outcome"), [("busy", "BUSY"), ("no-answer", "NO_ANSWER"), ("failed", "FAILED")]
)
async def test_lead_whose_last_call_was_unanswered_is_no_dead_job(
    calls: Calls, status: str, outcome: str
) -> None:
    await calls.template(max_retry=0)
    lead, ref, call = await called(calls)
    await calls.webhook(ref, call, status, n=2)
    told = await calls.finished(lead)
    assert (told["outcome"], told["reason"]) == (outcome, outcome)
    (attempt,) = told["attempts"]
    assert (attempt["outcome"], attempt["call_id"]) == (outcome, call)
    job = await calls.job(lead)
    assert (job.state, job.runs[-1].outcome) == (State.SUCCEEDED, "succeeded")
    assert outcome.encode() in (job.result or b"")
    listed = await calls.ask("/leads", outcome=outcome)
    assert [one["id"] for one in listed["rows"]] == [lead]
    assert not (await calls.ask("/leads", outcome="COMPLETED"))["rows"]
    assert (await calls.ask("/v1/stats"))["counts"].get("dead", 0) == 0


async def test_lead_called_again_is_rechecked_within_the_limit_of_checks(
    calls: Calls,
) -> None:
    await calls.template(retry_offset="1h", max_retry=1)
    lead, ref, call = await called(calls)
    await calls.webhook(ref, call, "busy", n=2)
    job = await calls.job(lead)
    assert (job.state, job.stage) == (State.SCHEDULED, CHECK)
    assert job.gates == calls.system.context.check_uses(job.tenant, job.args) != ()


async def test_duplicate_webhook_is_applied_once(calls: Calls) -> None:
    lead, ref, call = await called(calls)
    for _ in range(3):
        assert (await calls.webhook(ref, call, "busy", n=2)).status_code == 204
    _, second, other = await called(calls, 2)
    assert (await calls.webhook(ref, call, "busy", n=2)).status_code == 204
    assert (await calls.get_lead(lead))["status"] == "PROCESSING"
    await calls.webhook(second, other, "completed", n=3)
    assert (await calls.get_lead(lead))["attempt_count"] == 2
    assert (await totals(calls, CountedEvent.WEBHOOK_TWICE))[NUMBER] == 3
    assert await totals(calls, CountedEvent.OUTCOME) == {"BUSY": 1, "COMPLETED": 1}


@pytest.mark.parametrize(
    ("status", "outcome"), [("completed", "COMPLETED"), ("busy", "BUSY"), ("canceled", "ABORT")]
)
async def test_attempt_of_a_cancelled_lead_has_the_outcome_of_its_call(
    calls: Calls, status: str, outcome: str
) -> None:
    lead, ref, call = await called(calls)
    reply = await calls.call("DELETE", f"/leads/{lead}?hangup=true")
    assert reply.status_code == 202, reply.text
    await calls.webhook(ref, call, status, n=3)
    told = await calls.finished(lead)
    assert (told["outcome"], [one["outcome"] for one in told["attempts"]]) == ("ABORT", [outcome])
    counted = await calls.ask("/leads/outcomes")
    assert counted["outcomes"] == await totals(calls, CountedEvent.OUTCOME) == {outcome: 1}


async def test_late_webhook_changes_nothing(calls: Calls) -> None:
    lead, ref, call = await called(calls)
    await calls.webhook(ref, call, "completed", n=3)
    before = await calls.get_lead(lead)
    for n, status in enumerate(["ringing", "in-progress", "busy", "completed"], 4):
        assert (await calls.webhook(ref, call, status, n=n)).status_code == 204
    assert await calls.get_lead(lead) == before
    assert (await totals(calls, CountedEvent.WEBHOOK_LATE))[NUMBER] == 4
    await calls.audit()


async def test_only_a_timely_end_returns_the_lead_to_your_table(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []

    async def noted(context: CallsContext, job: JobView, run: int) -> None:
        given.append(run)
        await put_back(context, job, run)

    monkeypatch.setattr(call_events, "put_back", noted)
    await calls.template(retry_offset="0s", max_retry=5)
    _, ref, call = await called(calls)
    await calls.webhook(ref, call, "busy", n=2)
    _, second, other = await called(calls, 2)
    assert len(given) == 1
    # The first call's webhook again, after its run; and one for the second call after its own end.
    await calls.webhook(ref, call, "no-answer", n=3)
    await calls.webhook(second, other, "completed", n=3)
    await calls.webhook(ref, call, "busy", n=4)
    assert len(given) == 1


async def test_webhook_of_an_earlier_attempt_does_not_end_the_next(calls: Calls) -> None:
    lead, ref, call = await called(calls)
    await calls.webhook(ref, call, "busy", n=2)
    await called(calls, 2)
    assert (await calls.webhook(ref, call, "completed", n=3)).status_code == 204
    assert (await calls.get_lead(lead))["status"] == "PROCESSING"


async def test_webhook_in_the_wrong_order_undoes_nothing(calls: Calls) -> None:
    lead, ref, call = await called(calls)
    await calls.webhook(ref, call, "in-progress", n=2)
    progress = (await calls.job(lead)).progress
    assert progress is not None
    assert b"in-progress" in progress
    await calls.webhook(ref, call, "ringing", n=1)
    assert (await calls.job(lead)).progress == progress
    await calls.webhook(ref, call, "completed", n=3)
    assert (await calls.get_lead(lead))["outcome"] == "COMPLETED"


async def test_answered_call_has_its_whole_time_from_then_on(calls: Calls) -> None:
    lead, ref, call = await called(calls)
    before = (await calls.job(lead)).deadline_at
    await calls.webhook(ref, call, "ringing", n=1)
    assert (await calls.job(lead)).deadline_at == before
    await calls.webhook(ref, call, "in-progress", n=2)
    after = (await calls.job(lead)).deadline_at
    assert before is not None
    assert after is not None
    assert after > before


async def test_unsigned_webhook_is_refused(calls: Calls) -> None:
    lead, ref, call = await called(calls)
    url = f"{calls.rig.url}/calls/hooks/twilio?ref={ref}"
    form = {"CallSid": call, "CallStatus": "completed", "AccountSid": calls.carrier.account_sid}
    for headers in ({}, {"X-Twilio-Signature": "bm90aGluZw=="}):
        reply = await calls.rig.http.post(url, data=form, headers=headers)
        assert reply.status_code == 401
    other = await calls.rig.http.post(url.replace("/twilio", "/nobody"), data=form)
    assert other.status_code == 404
    assert (await calls.get_lead(lead))["status"] == "PROCESSING"


async def test_webhook_of_no_call_is_accepted_and_counted(calls: Calls) -> None:
    lead, _, _ = await called(calls)
    stray = "CA" + "9" * 32
    gone = f"{lead[:-12]}000000000000:1"
    for ref in (gone, "nonsense", f"{lead}:99"):
        assert (await calls.webhook(ref, stray, "completed", n=3)).status_code == 204
    assert (await totals(calls, CountedEvent.WEBHOOK_ORPHAN))["twilio"] == 3
    assert (await calls.get_lead(lead))["status"] == "PROCESSING"


async def test_webhook_that_names_a_job_of_another_lane_changes_nothing(calls: Calls) -> None:
    other = NewJob(id=derived_id("other"), kind=LEAD, lane=LANE, args=b'{"phone": "", "tz": ""}')
    await calls.store.enqueue([other])
    await claim(calls.store)
    call, ref = "CA" + "9" * 32, f"{other.id}:1"
    known = HandedOver(other.id, 1, key=f"twilio:{call}")
    await calls.store.settle(SettleRequest(worker="w", outcomes=(known,)))
    for named in (ref, None):
        event = CallEvent(
            provider="twilio",
            call_id=call,
            ref=named,
            status=CallStatus.COMPLETED,
            event=f"ended {named}",
        )
        assert await apply_event(calls.system.context, event) is None
    assert (await calls.job(other.id)).state is State.AWAITING


async def test_webhook_of_one_call_that_names_the_run_of_another_changes_nothing(
    calls: Calls,
) -> None:
    lead, ref, _ = await called(calls)
    other = "CA" + "9" * 32
    assert (await calls.webhook(ref, other, "completed", n=3)).status_code == 204
    assert (await calls.get_lead(lead))["status"] == "PROCESSING"
    assert await totals(calls, CountedEvent.WEBHOOK_ORPHAN) == {"twilio": 1}


async def test_webhook_of_another_provider_that_names_the_run_of_a_call_changes_nothing(
    calls: Calls,
) -> None:
    lead, ref, call = await called(calls)
    event = CallEvent(
        provider="vonage", call_id=call, ref=ref, status=CallStatus.COMPLETED, event="ended"
    )
    assert await apply_event(calls.system.context, event) is None
    assert (await calls.get_lead(lead))["status"] == "PROCESSING"
    assert await totals(calls, CountedEvent.WEBHOOK_ORPHAN) == {"vonage": 1}


@pytest.mark.parametrize("said", [{"x": 1}, "ringing"])
async def test_progress_signalled_by_another_caller_delays_no_webhook(
    calls: Calls, said: object
) -> None:
    lead, ref, call = await called(calls)
    body = {"event": "1", "progress": True, "body": said}
    assert (await calls.call("POST", f"/v1/signals/{ref}", body)).json()["answer"] == "applied"
    for n, status in enumerate(("ringing", "completed"), start=7):
        assert (await calls.webhook(ref, call, status, n=n)).status_code == 204
    assert (await calls.get_lead(lead))["outcome"] == "COMPLETED"
