"""The use of channels over time, at the carrier and in Headway, compared with what gates allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.slice.plan import PAUSED, RENTED, RENTED_LEFT, Lead, Plan


@dataclass(frozen=True, kw_only=True, slots=True)
class Called:
    """One call, from the records of the carrier and the job; times in ms UTC.

    Attributes:
        due_at: When the lead was due.
        claimed_at: When its line was taken.
        handed_at: Just before the request to the provider.
        placed_at: When the call started at the carrier.
        ended_at: When the call ended at the carrier.
        freed_at: When its line was given back.
    """

    lead: Lead
    number: str
    due_at: int
    claimed_at: int
    handed_at: int
    placed_at: int
    ended_at: int
    freed_at: int


@dataclass(kw_only=True, slots=True)
class Use:
    """The channels in use and those that the gates allowed, while there was a backlog.

    Attributes:
        points: (ms, in use, allowed) whenever either changed.
        used: Channels in use, integrated over time.
        allowed: Channels that could have been in use, integrated over time.
        span_ms: Duration of the backlog.
        most: Maximum number of channels in use at once.
    """

    points: list[tuple[int, int, int]] = field(default_factory=list)
    used: int = 0
    allowed: int = 0
    span_ms: int = 0
    most: int = 0

    @property
    def share(self) -> float:
        return self.used / self.allowed if self.allowed else 0.0


def use_of(plan: Plan, calls: Sequence[Called], *, lines: bool, after_ms: int = 0) -> Use:
    """Return the use of channels.

    Args:
        plan: Defines what the gates allow.
        calls: All calls of the slice.
        lines: Whether a channel counts as in use while Headway holds its line, instead of while the
            carrier has a call on it.
        after_ms: Duration at the start that is ignored.
    """
    # A lead counts as callable from its due time on, including the time of its slow check.
    events: list[tuple[int, int, str, Called | None]] = []
    for one in calls:
        begun, ended = (one.claimed_at, one.freed_at) if lines else (one.placed_at, one.ended_at)
        events += [
            (max(one.due_at, one.lead.opens_at), 0, "able", one),
            (begun, 2, "begun", one),
            (ended, 1, "ended", one),
        ]
    events += [(at, 0, "turn", None) for at in (*plan.paused, *plan.shrunk)]
    events.sort(key=lambda event: event[:2])
    return _swept(plan, events, plan.begins_at + after_ms)


def _swept(plan: Plan, events: list[tuple[int, int, str, Called | None]], from_at: int) -> Use:
    use = Use()
    able, paused, live, rented = 0, 0, 0, 0
    last = from_at
    for at, _, what, one in events:
        if at > last:
            capacity = plan.total
            if plan.shrunk[0] <= last < plan.shrunk[1]:
                # A lowered capacity ends no call.
                capacity -= plan.channels - max(RENTED_LEFT, rented)
            shut = paused if plan.paused[0] <= last < plan.paused[1] else 0
            allowed = max(live, min(capacity, live + able - shut))
            if able - shut > 0:
                use.used += live * (at - last)
                use.allowed += allowed * (at - last)
                use.span_ms += at - last
            use.points.append((last, live, allowed))
            last = at
        if one is None:
            continue
        n = {"able": 1, "begun": -1, "ended": 0}[what]
        able += n
        paused += n if one.lead.reseller == PAUSED else 0
        step = {"able": 0, "begun": 1, "ended": -1}[what]
        live += step
        rented += step if one.number == RENTED else 0
        use.most = max(use.most, live)
    return use


def parts(plan: Plan, calls: Sequence[Called]) -> dict[str, list[int]]:
    """Return the durations of the steps between two calls on a line, in ms.

    The n-th line that a number gives back is taken by its (channels + n)-th call.
    """
    found: dict[str, list[int]] = {
        "end of call to line free": [one.freed_at - one.ended_at for one in calls],
        "line free to line taken": [],
        "line taken to handed over": [one.handed_at - one.claimed_at for one in calls],
        "handed over to call placed": [one.placed_at - one.handed_at for one in calls],
        "end of call to next call": [],
    }
    by_number: dict[str, list[Called]] = {}
    for one in calls:
        by_number.setdefault(one.number, []).append(one)
    for number, ours in by_number.items():
        if number == RENTED:
            continue
        taken = sorted(ours, key=lambda one: one.claimed_at)[plan.channels :]
        freed = sorted(ours, key=lambda one: one.freed_at)
        for before, after in zip(freed, taken, strict=False):
            ready_at = max(before.ended_at, after.lead.opens_at)
            found["line free to line taken"].append(after.claimed_at - before.freed_at)
            found["end of call to next call"].append(after.placed_at - ready_at)
    return found


def joined(
    jobs: Sequence[dict[str, Any]], ledger: dict[str, Any], leads: dict[str, Lead]
) -> list[Called]:
    """Return the calls of leads, from the jobs and the carrier's ledger; ignore unknown ids."""
    by_ref = {one["ref"]: one for one in ledger["calls"]}
    found: list[Called] = []
    for job in jobs:
        for run in job["runs"]:
            call = by_ref.get(f"{job['id']}:{run['run']}")
            if call is None or job["id"] not in leads:
                continue
            found.append(
                Called(
                    lead=leads[job["id"]],
                    number=call["from"],
                    due_at=job["runs"][0]["due_at"],
                    claimed_at=run["claimed_at"],
                    handed_at=run["handed_at"],
                    placed_at=call["placed_at"],
                    ended_at=call["ended_at"],
                    freed_at=run["ended_at"],
                )
            )
    return found
