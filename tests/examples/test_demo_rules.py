"""The rules by which the demo checks its calls and repairs detect faults."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

import headway as hw
from examples.demo.call_centre.rules import RULES as CALL_RULES
from examples.demo.call_centre.rules import STARTS, Pause, Started
from examples.demo.call_centre.rules import Evidence as CallEvidence
from examples.demo.repairs.desk import Repairs
from examples.demo.repairs.rules import Evidence as RepairEvidence
from examples.demo.repairs.rules import repair_violations
from examples.demo.telephones import Telephones
from headway.carrier.ledger import CallPlan, CarrierLedger, PlacedCall, TextMessage, TextPlan
from headway.carrier.script import DrawnOutcome
from headway.contract.views import JobsQuery, JobView
from headway.core.state import State
from headway.systems.telephony.voice import CallStatus

NUMBER, PHONE, BARRED = "+15550100001", "+14155550017", "+14155550003"
NOON = int(datetime(2026, 3, 4, 12, tzinfo=UTC).timestamp() * 1000)
OUTCOME = cast("DrawnOutcome", None)


def call(
    sid: str = "CA1", *, to: str = PHONE, ref: str = "a:1", status: str = "busy"
) -> PlacedCall:
    plan = CallPlan(ref=ref, to=to, from_=NUMBER)
    return PlacedCall(
        sid=sid, plan=plan, outcome=OUTCOME, nth=0, placed_at=0, status=CallStatus(status)
    )


def lead(**changes: Any) -> dict[str, Any]:
    attempt = {"run": 1, "call_id": "CA1", "number": NUMBER, "outcome": "BUSY"}
    return {
        "id": "a",
        "phone": PHONE,
        "tz": "UTC",
        "reseller": "acme",
        "status": "BACKLOG",
        "outcome": None,
        "attempts": [attempt],
        **changes,
    }


CALLS = CallEvidence(
    accepted={"a": PHONE},
    leads={"a": lead()},
    calls={"CA1": call()},
    twice={},
    peaks={NUMBER: 5},
    pauses=[],
)


def call_faults(evidence: CallEvidence) -> set[str]:
    return {line.partition(":")[0] for rule in CALL_RULES for line in rule(evidence)}


def test_correct_calls_pass() -> None:
    assert call_faults(CALLS) == set()


@pytest.mark.parametrize(
    ("fault", "changes"),
    [
        ("lost", {"leads": {}}),
        ("mixed up", {"leads": {"a": lead(phone="+14155550018")}}),
        ("twice", {"twice": {"a:1": 2}}),
        ("lines", {"peaks": {NUMBER: 6}}),
        ("unknown", {"calls": {"CA1": call(), "CA2": call("CA2", ref="a:2")}}),
        ("unknown", {"calls": {}}),
        ("outcome", {"calls": {"CA1": call(status="completed")}}),
        ("outcome", {"calls": {"CA1": call(status="ringing")}}),
        ("barred", {"calls": {"CA9": call("CA9", to=BARRED)}}),
        ("barred", {"leads": {"a": lead(status="FINISHED", outcome="PRECHECK_FAILED")}}),
    ],
)
def test_faults_in_calls_are_found(fault: str, changes: dict[str, Any]) -> None:
    assert fault in call_faults(replace(CALLS, **changes))


def started(**changes: Any) -> Started:
    fields = {"lead": "a", "phone": PHONE, "tz": "UTC", "reseller": "acme", "at": NOON}
    return Started(**{**fields, **changes})


@pytest.mark.parametrize(
    ("fault", "calls"),
    [
        ("", [started(), started(at=NOON + 19_999), started(at=NOON + 20_000)]),
        ("rate", [started(), started(at=NOON + 1), started(at=NOON + 19_999)]),
        ("hours", [started(tz="Asia/Tokyo")]),
        ("paused", [started(reseller="cedar", at=NOON + 1)]),
        ("", [started(reseller="cedar"), started(reseller="cedar", at=NOON + 20)]),
    ],
)
def test_calls_that_must_not_start_are_found(fault: str, calls: list[Started]) -> None:
    pause = Pause(reseller="cedar", from_at=NOON, to_at=NOON + 10)
    evidence = replace(CALLS, pauses=[pause])
    found = {line.partition(":")[0] for rule in STARTS for line in rule(evidence, calls)}
    assert found == ({fault} if fault else set())


def asked(technician: str, said: str, from_at: int, to_at: int) -> dict[str, Any]:
    return {"technician": technician, "said": said, "asked_at": from_at, "at": to_at}


def request(name: str, *turns: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "id": name,
        "status": "assigned",
        "skills": ["gas"],
        "technician": "bob",
        "offer": None,
        "asked": list(turns),
        "finished_at": None,
        **changes,
    }


def alert(name: str) -> TextMessage:
    plan = TextPlan(
        ref="", to="+12125550199", from_=NUMBER, text=f"no technician accepts it: {name}"
    )
    return TextMessage(sid="SM1", plan=plan, outcome=None, nth=0, sent_at=0)


TAKEN = request("r", asked("ada", "declined", 1, 2), asked("bob", "accepted", 2, 3))
PENDING = request("p", asked("ada", "timeout", 3, 4), status="pending", technician=None)
REPAIRS = RepairEvidence(
    accepted=["r", "p"],
    requests={"r": TAKEN, "p": PENDING},
    skills={"ada": frozenset({"gas"}), "bob": frozenset({"gas", "lock"})},
    alerts=[alert("p")],
    awaited=frozenset({"p"}),
    twice={},
)


def repair_faults(*jobs: JobView, **changes: Any) -> set[str]:
    evidence = replace(REPAIRS, **changes)
    by_id = {job.id: job for job in jobs}
    return {line.partition(":")[0] for line in repair_violations(evidence, by_id)}


def test_correct_repairs_pass() -> None:
    assert repair_faults() == set()


@pytest.mark.parametrize(
    ("fault", "changes"),
    [
        ("lost", {"requests": {"r": TAKEN}}),
        ("unfit", {"skills": {"ada": frozenset({"gas"})}}),
        ("unfit", {"skills": {"ada": frozenset(), "bob": frozenset({"gas"})}}),
        (
            "offers",
            {"requests": {"r": TAKEN | {"offer": {"technician": "bob", "since": 2}}}},
        ),
        (
            "two",
            {
                "requests": {
                    "r": TAKEN,
                    "p": request("p", asked("bob", "declined", 9, 10), technician=None),
                }
            },
        ),
        ("winners", {"requests": {"r": TAKEN | {"technician": "ada"}}}),
        ("winners", {"requests": {"r": request("r", technician=None)}}),
        ("alerts", {"alerts": []}),
        ("alerts", {"alerts": [alert("p"), alert("p")]}),
        ("alerts", {"alerts": [alert("p"), alert("r")]}),
    ],
)
def test_faults_in_repairs_are_found(fault: str, changes: dict[str, Any]) -> None:
    assert fault in repair_faults(**changes)


async def follow_ups(*states: str) -> list[JobView]:
    """Return the two jobs that lead to an alert of `p`, in these states; no others."""
    app = hw.App("memory://")

    @app.job(name="offer_ended")
    def ended(job: str, state: str, reason: str) -> None: ...

    @app.job(name="alert_dispatcher")
    def alerts(user: str, text: str) -> None: ...

    jobs = [
        ended.make(job="p", state="dead", reason="declined"),
        alerts.make(subject="p", user="dora", text=""),
    ]
    await app.store.enqueue(jobs)
    found = {job.id: job for job in (await app.store.read(JobsQuery())).rows}
    await app.close_async()
    return [
        replace(found[job.id], state=State(state))
        for job, state in zip(jobs, states, strict=True)
        if state
    ]


@pytest.mark.parametrize(
    ("states", "awaited", "faults"),
    [
        (("waiting", ""), set[str](), set[str]()),
        (("succeeded", "waiting"), set[str](), set[str]()),
        (("succeeded", "awaiting"), set[str](), set[str]()),
        (("waiting", ""), {"p"}, {"alerts"}),
        (("succeeded", "succeeded"), set[str](), {"alerts"}),
        (("succeeded", "dead"), set[str](), {"alerts"}),
        (("succeeded", ""), set[str](), {"alerts"}),
    ],
)
async def test_alert_may_be_missing_only_while_its_job_waits_and_if_it_was_not_awaited(
    states: tuple[str, str], awaited: set[str], faults: set[str]
) -> None:
    jobs = await follow_ups(*states)
    assert repair_faults(*jobs, alerts=[], awaited=awaited) == faults
    assert repair_faults(*jobs, alerts=[alert("p")] * 2, awaited=awaited) == {"alerts"}


async def test_demo_waits_for_the_alert_of_each_pending_request() -> None:
    cancelled, pending = request("r-1", status="cancelled"), request("r-2", status="pending")
    listed = list[int]()
    ledger = CarrierLedger({})
    ledger.texts = {"1": alert("r-1")}

    def reply(asked: httpx.Request) -> httpx.Response:
        listed.append(len(ledger.texts))
        if len(listed) == 2:
            ledger.texts["2"] = alert("r-2")
        return httpx.Response(200, json={"rows": [cancelled, pending], "cursor": None})

    phones = cast("Telephones", SimpleNamespace(ledger=ledger))
    repairs = Repairs("http://demo", phones, 1, lambda *_: None)
    server = repairs._server
    await server.close()
    async with httpx.AsyncClient(
        base_url="http://demo", transport=httpx.MockTransport(reply)
    ) as server.http:
        await repairs.finish()
        assert listed == [1, 1]
        assert (await repairs.evidence()).awaited == {"r-2"}
