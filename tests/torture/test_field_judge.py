"""The judge of service requests detects every kind of violation it should."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgspec
import pytest

from headway.carrier.ledger import CallPlan, CarrierLedger, PlacedCall, TextMessage, TextPlan
from headway.carrier.script import DrawnOutcome, RequestResult
from headway.contract.views import JobView, RunView
from headway.core.cascade import Answer, Asked, Cascade
from headway.core.job import JobPolicy
from headway.core.state import State
from headway.systems.field_service.request import (
    RINGS,
    Assigned,
    Customer,
    Position,
    Request,
    args_of,
)
from headway.systems.telephony.voice import CallStatus
from tests.systems.field_service.field_rig import LINE, phone_of
from tests.systems.field_service.history_checks import Story
from tests.torture.checker import Violation
from tests.torture.field_judge import Seen, judge, two_at_once

DISPATCHERS = {"dora": "+15557770001", "dan": "+15557770002"}
OUTCOME = DrawnOutcome(
    request=RequestResult.TAKEN,
    end=CallStatus.COMPLETED,
    ring_ms=1,
    talk_ms=1,
    think_ms=1,
    digits="1",
    text="",
    leaves_ms=None,
    arrives=True,
)


def a_run(number: int, candidate: str, start: int, end: int | None) -> RunView:
    return RunView(
        run=number,
        attempt=1,
        stage="",
        worker="w",
        claimed_at=start,
        handed_at=start,
        ended_at=end,
        outcome="",
        error="",
        permits={},
        blocked_ms=0,
        due_at=0,
        candidate=candidate,
    )


REQUEST = Request(
    customer=Customer(name="Mia", phone="+15550100"), position=Position(lat=1.0, lon=1.0)
)


def a_job(id_: str, kind: str, state: State, *runs: RunView, **more: object) -> JobView:
    given: dict[str, object] = {
        **dict.fromkeys(("subject", "expires_at", "finished_at", "deadline_at", "result")),
        **dict.fromkeys(("progress", "key", "parked_at", "worker", "entry", "fired_at", "cascade")),
        **dict.fromkeys(("tenant", "stage", "reason", "error", "lane"), ""),
        **dict.fromkeys(("priority", "due_at", "created_at", "seq"), 0),
        "args": args_of(REQUEST) if kind == "offer" else b"{}",
        "gates": (),
        "policy": JobPolicy(),
        "life": 1,
        "attempt": 1,
        "cancel_requested": False,
        "in_doubt": False,
        "shown": str(state),
        "run": len(runs),
        "runs": runs,
        **more,
    }
    return JobView(id=id_, kind=kind, state=state, **given)  # type: ignore[arg-type]


def said(*answers: tuple[str, Answer]) -> Cascade:
    asked = tuple(Asked(candidate=who, answer=answer, at=0) for who, answer in answers)
    return Cascade(left=(), asked=asked)


@dataclass
class History:
    """The record of a correct system: one request that bob has, and one that was not accepted."""

    offers: dict[str, JobView] = field(default_factory=dict[str, JobView])
    alerts: list[JobView] = field(default_factory=list[JobView])
    rings: list[JobView] = field(default_factory=list[JobView])
    ended: list[JobView] = field(default_factory=list[JobView])
    ledger: CarrierLedger = field(default_factory=lambda: CarrierLedger({LINE: 2}))
    seen: Seen = field(default_factory=lambda: Seen(sent=["had", "open"]))

    def __post_init__(self) -> None:
        had = said(("ada", Answer.DECLINED), ("bob", Answer.ACCEPTED))
        runs = a_run(1, "ada", 10, 20), a_run(2, "bob", 20, None)
        self.offers["had"] = a_job("had", "offer", State.AWAITING, *runs, cascade=had)
        none = said(("ada", Answer.TIMEOUT))
        self.offers["open"] = a_job(
            "open", "offer", State.DEAD, a_run(1, "ada", 30, 40), cascade=none, reason="exhausted"
        )
        for name, phone in DISPATCHERS.items():
            args = msgspec.json.encode({"user": name})
            run = a_run(1, "", 41, 42)
            self.alerts.append(
                a_job(
                    f"alert {name}",
                    "alert_dispatcher",
                    State.SUCCEEDED,
                    run,
                    subject="open",
                    args=args,
                )
            )
            self.text(phone, "Nobody takes the request open.")
        self.ended.append(a_job("e", "offer_ended", State.SUCCEEDED))
        for request, who in (("had", "ada"), ("had", "bob"), ("open", "ada")):
            self.call(request, who, "You have it: x." if who == "bob" else "Goodbye.")

    def text(self, to: str, text: str) -> None:
        plan = TextPlan(ref="", to=to, from_=LINE, text=text)
        sid = f"SM{len(self.ledger.texts)}"
        self.ledger.texts[sid] = TextMessage(sid=sid, plan=plan, outcome=OUTCOME, nth=0, sent_at=0)

    def call(self, request: str, who: str, heard: str, ring: str = "") -> None:
        ring = ring or f"ring {len(self.rings)}"
        offer = msgspec.json.encode({"offer": f"{request}:1"})
        self.rings.append(a_job(ring, "ring", State.SUCCEEDED, lane=RINGS, args=offer))
        plan = CallPlan(ref=f"{ring}:1", to=phone_of(who), from_=LINE)
        sid = f"CA{len(self.ledger.calls)}"
        call = PlacedCall(sid=sid, plan=plan, outcome=OUTCOME, nth=0, placed_at=0, heard=[heard])
        self.ledger.began(call)
        self.ledger.ended(call)

    def change(self, request: str, **fields: object) -> None:
        self.offers[request] = replace(self.offers[request], **fields)

    def found(self) -> list[Violation]:
        story = Story(offers=[*self.offers.values()], alerts=self.alerts, ended=self.ended)
        return judge(story, self.rings, self.ledger, self.seen, DISPATCHERS)[1]


def test_faultless_history_passes():
    history = History()
    story = Story(offers=[*history.offers.values()], alerts=history.alerts, ended=history.ended)
    lines, found = judge(story, history.rings, history.ledger, history.seen, DISPATCHERS)
    assert found == []
    assert "2 requests: {'assigned': 1, 'dead': 1}" in lines[1]


@pytest.mark.parametrize(("to", "passes"), [("bob", True), ("ada", False)])
def test_only_the_assigned_technician_may_have_been_asked_before(to: str, passes: bool):
    history = History()
    assigned = replace(REQUEST, assigned=Assigned(to=to, by="dora", had=""))
    twice = said(("bob", Answer.DECLINED), ("bob", Answer.ACCEPTED))
    history.change("had", cascade=twice, args=args_of(assigned))
    assert ("record" not in {one.rule for one in history.found()}) is passes


def two_offers_to_one(history: History) -> None:
    history.change("open", runs=(a_run(1, "ada", 15, 40),))


def two_offers_of_one(history: History) -> None:
    history.change("had", runs=(a_run(1, "ada", 10, 21), a_run(2, "bob", 20, None)))


def two_winners(history: History) -> None:
    history.change("had", cascade=said(("ada", Answer.ACCEPTED), ("bob", Answer.ACCEPTED)))


def asked_after_it_was_taken(history: History) -> None:
    history.change("had", cascade=said(("bob", Answer.ACCEPTED), ("ada", Answer.DECLINED)))


def asked_twice(history: History) -> None:
    history.change("open", cascade=said(("ada", Answer.TIMEOUT), ("ada", Answer.DECLINED)))


def an_alert_never_made(history: History) -> None:
    del history.alerts[0]


def an_alert_never_sent(history: History) -> None:
    del history.ledger.texts["SM0"]


def an_alert_that_was_given_up(history: History) -> None:
    history.alerts[0] = replace(history.alerts[0], state=State.DEAD)


def an_alert_sent_twice_in_one_run(history: History) -> None:
    history.text(DISPATCHERS["dora"], "Nobody takes the request open.")


def an_alert_made_twice(history: History) -> None:
    history.alerts.append(replace(history.alerts[0], id="another"))


def an_alert_of_what_is_assigned(history: History) -> None:
    history.alerts.append(replace(history.alerts[0], id="another", subject="had"))


def an_end_from_which_nothing_followed(history: History) -> None:
    history.ended[0] = replace(history.ended[0], state=State.DEAD)


def a_request_that_never_ends(history: History) -> None:
    history.change("open", state=State.WAITING)


def another_end_than_exhausted(history: History) -> None:
    history.change("open", reason="failed")


def a_request_lost(history: History) -> None:
    history.seen.sent.append("gone")


def a_request_from_nowhere(history: History) -> None:
    history.seen.sent.remove("had")


def a_call_placed_twice(history: History) -> None:
    history.call("had", "ada", "Goodbye.", ring="ring 0")


def a_line_too_crowded(history: History) -> None:
    call = history.ledger.calls["CA0"]
    for number in range(3):
        history.ledger.began(replace(call, sid="CA0", plan=replace(call.plan, ref=f"{number}")))
    history.ledger.calls["CA0"] = call


def a_loser_informed_that_he_has_it(history: History) -> None:
    history.ledger.calls["CA0"].heard.append("You have it: x.")


def what_was_seen_on_the_way(history: History) -> None:
    history.seen.found.append(Violation("two winners", "had"))


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        (two_offers_to_one, "record"),
        (two_offers_of_one, "record"),
        (two_winners, "record"),
        (asked_after_it_was_taken, "record"),
        (asked_twice, "record"),
        (an_alert_never_made, "record"),
        (an_alert_never_sent, "alert"),
        (an_alert_that_was_given_up, "alert"),
        (an_alert_sent_twice_in_one_run, "alert"),
        (an_alert_made_twice, "record"),
        (an_alert_of_what_is_assigned, "record"),
        (an_end_from_which_nothing_followed, "record"),
        (a_request_that_never_ends, "record"),
        (another_end_than_exhausted, "record"),
        (a_request_lost, "lost"),
        (a_request_from_nowhere, "from nowhere"),
        (a_call_placed_twice, "called twice"),
        (a_line_too_crowded, "crowded"),
        (a_loser_informed_that_he_has_it, "told that he has it"),
        (what_was_seen_on_the_way, "two winners"),
    ],
)
def test_planted_fault_of_field_service_is_found(fault: Callable[[History], None], rule: str):
    history = History()
    fault(history)
    assert rule in {one.rule for one in history.found()}


def test_two_offers_to_one_technician_are_detected_at_once():
    history = History()
    had = history.offers["had"]
    offered = a_job("b", "offer", State.AWAITING, a_run(1, "bob", 50, None), cascade=said())
    other = a_job("c", "offer", State.AWAITING, a_run(1, "ada", 50, None), cascade=said())
    assert list(two_at_once([had, other])) == []
    (found,) = two_at_once([had, other, offered])
    assert found == Violation("two at once", "bob: had and b")
