"""Handwritten histories for tests of the checker."""

from __future__ import annotations

from headway.contract.views import JobView, RunView
from headway.core.gates.spec import GateUse, Hold
from headway.core.job import DEFAULT_POLICY
from headway.core.state import State
from headway.lab.history import History
from headway.lab.scenario import Scenario

START_AT = 1_772_456_400_000
"""2026-03-02T08:00-05:00, a Monday."""


def at(minutes: float) -> int:
    return START_AT + round(minutes * 60_000)


def scenario(**fields: object) -> Scenario:
    told = {
        "start": "2026-03-02T08:00:00-05:00",
        "tz": "America/New_York",
        "duration": "10h",
        "gates": {
            "lines": {"kind": "pool", "members": {"x": 2, "y": 1}},
            "desk": {"kind": "slots", "capacity": 3},
            "customer:{phone}": {"kind": "rate", "limit": 2, "per": "60m"},
            "hours": {"kind": "hours", "open": "08:00-12:00", "days": "mon-fri", "tz": "UTC"},
        },
        "lanes": {"calls": {"concurrency": 4}},
        "kinds": {"call": {"lane": "calls"}},
        "arrivals": [],
        "workers": [],
        **fields,
    }
    return Scenario.model_validate(told)


def use(
    name: str,
    template: str = "",
    *,
    amount: int = 1,
    hold: Hold = "settled",
    zone: str | None = None,
) -> GateUse:
    return GateUse(name=name, template=template or name, amount=amount, hold=hold, zone=zone)


def run(  # noqa: PLR0913  (a record is written by hand)
    number: int,
    claimed: float,
    ended: float | None,
    *,
    due: float | None = None,
    handed: float | None = None,
    outcome: str = "succeeded",
    permits: dict[str, str] | None = None,
) -> RunView:
    return RunView(
        run=number,
        attempt=number,
        stage="",
        worker="w",
        claimed_at=at(claimed),
        handed_at=None if handed is None else at(handed),
        ended_at=None if ended is None else at(ended),
        outcome=outcome if ended is not None else "",
        error="",
        permits=permits or {},
        blocked_ms=0,
        due_at=at(claimed if due is None else due),
    )


def job(
    name: str,
    *runs: RunView,
    gates: tuple[GateUse, ...] = (),
    state: State = State.SUCCEEDED,
    lane: str = "calls",
    tenant: str = "",
) -> JobView:
    final = state in {"succeeded", "dead", "cancelled"}
    return JobView(
        id=name,
        kind="call",
        lane=lane,
        tenant=tenant,
        subject=None,
        stage="",
        state=state,
        shown=str(state),
        priority=512,
        due_at=runs[0].due_at if runs else START_AT,
        created_at=START_AT,
        expires_at=None,
        finished_at=(runs[-1].ended_at if runs else START_AT) if final else None,
        deadline_at=None,
        args=b"{}",
        result=None,
        progress=None,
        key=None,
        gates=gates,
        policy=DEFAULT_POLICY,
        run=runs[-1].run if runs else 0,
        attempt=len(runs),
        life=1,
        reason="",
        error="",
        parked_at=None,
        worker=None,
        cancel_requested=False,
        in_doubt=False,
        entry=None,
        fired_at=None,
        cascade=None,
        seq=0,
        runs=runs,
    )


def history(*jobs: JobView) -> History:
    return History(
        start_at=START_AT, end_at=at(600), sent={one.id for one in jobs}, jobs=list(jobs)
    )
