from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from headway.contract.views import Difference
from headway.core.gates.hours import hours_spec, intervals, is_open
from headway.core.state import State
from headway.lab.history import FAR_AT, Changed, Closed, History
from headway.lab.invariants import check
from headway.lab.scenario_gates import HoursTable
from tests.lab.histories import START_AT, at, history, job, run, scenario, use

LINE_X = {"lines": "x"}
LINES = (use("lines"),)
DESK = (use("desk"),)


def phone(number: str, amount: int = 1):
    return (use(f"customer:{number}", "customer:{phone}", amount=amount),)


def good() -> History:
    """Return a history that reaches every limit and breaks none."""
    return history(
        job("a", run(1, 1, 10, permits=LINE_X), gates=LINES),
        job("b", run(1, 1, 5, permits=LINE_X), gates=LINES),
        job("c", run(1, 5, 30, permits=LINE_X), gates=LINES),
        job("d", run(1, 1, 60, permits={"lines": "y"}), gates=LINES),
        job("e", run(1, 100, 101), gates=phone("5")),
        job("f", run(1, 130, 131), gates=phone("5")),
        job("g", run(1, 160, 161), gates=phone("5")),
        job("h", run(1, 200, 201, outcome="failed"), run(2, 201, 202)),
        job("i", run(1, 300, 320), gates=(use("desk", amount=2),)),
        job("j", run(1, 310, 315), gates=DESK),
        job("k", run(1, 320, None), state=State.RUNNING),
        job("l", state=State.WAITING),
        job("m", run(1, -61, 0.1), gates=(use("hours", zone="UTC"),)),
    )


def rules(told: History, **fields: object) -> set[str]:
    return {violation.rule for violation in check(told, scenario(**fields))}


def test_good_history_has_no_violation() -> None:
    assert check(good(), scenario()) == []


PLANTED = {
    "a third call on a line of two": (
        lambda h: h.jobs.append(job("z", run(1, 4, 6, permits=LINE_X), gates=LINES)),
        "permits",
    ),
    "a run without a member of its pool": (
        lambda h: h.jobs.append(job("z", run(1, 4, 6), gates=LINES)),
        "permits",
    ),
    "a permit that was never given back": (
        lambda h: (
            h.jobs.append(
                job("z", run(1, 40, None), gates=(use("desk", amount=3),), state=State.AWAITING)
            ),
        ),
        "permits",
    ),
    "four weights in a gate of three": (
        lambda h: h.jobs.append(job("z", run(1, 311, 312), gates=DESK)),
        "permits",
    ),
    "a place in a lane above its concurrency": (
        lambda h: h.jobs.extend(job(f"z{n}", run(1, 400, 401)) for n in range(5)),
        "permits",
    ),
    "a third start in an hour": (
        lambda h: h.jobs.append(job("z", run(1, 159.99, 160), gates=phone("5"))),
        "rate",
    ),
    "two weights in a window with one start": (
        lambda h: h.jobs.append(job("z", run(1, 190, 191), gates=phone("5", 2))),
        "rate",
    ),
    "a start at night": (
        lambda h: h.jobs.append(job("z", run(1, 0, 1), gates=(use("hours", zone="UTC"),))),
        "hours",
    ),
    "a start behind a closed gate": (
        lambda h: h.closings.append(Closed(gate="desk", from_at=at(305), to_at=at(311))),
        "closed",
    ),
    "a start behind a closed lane": (
        lambda h: h.closings.append(Closed(gate="lane:calls", from_at=at(120), to_at=FAR_AT)),
        "closed",
    ),
    "a start on a closed member": (
        lambda h: h.closings.append(Closed(gate="lines/y", from_at=at(0), to_at=at(2))),
        "closed",
    ),
    "two live runs": (
        lambda h: h.jobs.append(job("z", run(1, 400, 410, outcome="lost"), run(2, 409, 420))),
        "one run",
    ),
    "a run after one that never ended": (
        lambda h: h.jobs.append(
            job("z", run(1, 400, None), run(2, 409, None), state=State.RUNNING)
        ),
        "one run",
    ),
    "the same run twice": (
        lambda h: h.jobs.append(job("z", run(1, 400, 401), run(1, 409, 420), state=State.DEAD)),
        "one run",
    ),
    "a start before its time": (
        lambda h: h.jobs.append(job("z", run(1, 400, 401, due=400.001))),
        "too early",
    ),
    "a job that is gone": (lambda h: h.jobs.pop(), "lost"),
    "a job that is there twice": (lambda h: h.jobs.append(h.jobs[11]), "doubled"),
    "a job that nobody sent": (
        lambda h: (h.jobs.append(job("z", run(1, 400, 401))), h.sent.discard("z")),
        "from nowhere",
    ),
    "a success without a success": (
        lambda h: h.jobs.append(job("z", run(1, 400, 401, outcome="failed"))),
        "end",
    ),
    "two successes": (
        lambda h: h.jobs.append(job("z", run(1, 400, 401), run(2, 402, 403))),
        "end",
    ),
    "an end with a live run": (
        lambda h: h.jobs.append(job("z", run(1, 400, None), state=State.DEAD)),
        "end",
    ),
    "a difference in the audit": (
        lambda h: setattr(h, "differences", (Difference(where="gate desk", what="used 2, not 1"),)),
        "audit",
    ),
    "a call dialled twice": (
        lambda h: h.outside_violations.append("a:1 was dialled twice"),
        "outside",
    ),
}


@pytest.mark.parametrize("what", PLANTED)
def test_each_planted_violation_is_found_and_only_it(what: str) -> None:
    plant, rule = PLANTED[what]
    told = good()
    plant(told)
    if rule not in {"lost", "from nowhere"}:
        told.sent |= {one.id for one in told.jobs}
    assert rules(told) == {rule}


def test_lowered_capacity_revokes_nothing_but_admits_nothing_more() -> None:
    told = history(
        job("a", run(1, 1, 30), gates=DESK),
        # At the same instant, a start counts as before the change.
        job("b", run(1, 10, 40), gates=DESK),
        job("c", run(1, 50, 60), gates=DESK),
    )
    told.changes.append(Changed(gate="desk", at=at(10), to=1))
    assert rules(told) == set()
    told.jobs.append(job("d", run(1, 35, 36), gates=DESK))
    told.sent.add("d")
    assert rules(told) == {"permits"}


def test_raised_limit_applies_from_its_time_on() -> None:
    told = history(*(job(f"j{n}", run(1, n, n + 0.5), gates=phone("5")) for n in range(3)))
    assert rules(told) == {"rate"}
    told.changes.append(Changed(gate="customer:5", at=at(2), to=3))
    assert rules(told) == set()


def test_gate_released_at_hand_over_may_be_taken_at_the_same_instant() -> None:
    short = (use("desk", amount=3, hold="run"),)
    told = history(
        job("a", run(1, 1, 30, handed=2), gates=short),
        job("b", run(1, 2, 40, handed=3), gates=short),
    )
    assert rules(told) == set()
    late = replace(told.jobs[0].runs[0], handed_at=at(2) + 1)
    told.jobs[0] = replace(told.jobs[0], runs=(late,))
    assert rules(told) == {"permits"}
    # The lane has four permits, which are returned at the hand-over, too.
    of_lane = (job(f"j{n}", run(1, n, 30, handed=n + 4)) for n in range(9))
    assert rules(history(*of_lane)) == set()


def test_start_at_the_time_of_a_closing_or_opening_counts_as_before_or_after_it() -> None:
    told = history(job("a", run(1, 10, 30), gates=DESK), job("b", run(1, 20, 30), gates=DESK))
    told.closings.append(Closed(gate="desk", from_at=at(10), to_at=at(20)))
    assert rules(told) == set()
    told.closings.append(Closed(gate="desk", from_at=at(20) - 1, to_at=at(20) + 1))
    assert rules(told) == {"closed"}


def test_capped_tenant_is_checked() -> None:
    told = history(*(job(f"j{n}", run(1, 5, 9), tenant="acme") for n in range(3)))
    assert rules(told) == set()
    told.changes.append(Changed(gate="tenant:acme", at=at(1), to=2))
    assert rules(told) == {"permits"}


@pytest.mark.parametrize(
    ("spans", "days", "zone"),
    [
        ("09:00-18:00", "mon-fri", "America/New_York"),
        ("22:00-06:00", "fri-sun", "Europe/Berlin"),
        ("00:00-24:00", "sat,tue", "Asia/Kolkata"),
        ("01:30-02:30,03:00-12:00", " Daily", "America/New_York"),
    ],
)
def test_checkers_local_time_agrees_with_the_engines_intervals(
    spans: str, days: str, zone: str
) -> None:
    exceptions = {"2026-03-08": "closed", "20261025": "10:00-11:00"}
    table = HoursTable(kind="hours", open=spans, days=days, tz=zone, exceptions=exceptions)
    engine = hours_spec(
        spans, days=days, tz=zone, exceptions={"2026-03-08": None, "2026-10-25": "10:00-11:00"}
    )
    year = 366 * 86_400_000
    known = intervals(engine, zone, START_AT, START_AT + year)
    random = Random(7)
    for _ in range(3_000):
        moment = START_AT + random.randrange(year)
        assert (not table.closed_by(zone, moment)) == is_open(known, moment), moment
