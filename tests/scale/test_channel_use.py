"""How the bench itself computes channel utilisation, independently of any store."""

from __future__ import annotations

from bench.slice.plan import PAUSED, RENTED, Lead, Plan
from bench.slice.use import Called, parts, use_of

BEGIN = 1_767_225_600_000
PLAN = Plan(numbers=1, channels=2, leads=3, begins_at=BEGIN)


def call(placed: int, ended: int, *, due: int = 0, opens: int = 0, **more: str) -> Called:
    """Return a call; times in ms from the start. Its line is held 10 ms more at each end."""
    lead = Lead(
        phone="+14155550100",
        tz="Etc/UTC",
        template="zone-0",
        reseller=more.get("reseller", "reseller-01"),
        opens_at=BEGIN + opens if opens else 0,
    )
    return Called(
        lead=lead,
        number=more.get("number", "+15550000002"),
        due_at=BEGIN + due,
        claimed_at=BEGIN + placed - 10,
        handed_at=BEGIN + placed - 4,
        placed_at=BEGIN + placed,
        ended_at=BEGIN + ended,
        freed_at=BEGIN + ended + 10,
    )


def test_channel_idle_while_a_lead_could_be_called_counts_as_lost() -> None:
    calls = [call(10, 1_000), call(10, 2_000), call(1_100, 3_000)]
    use = use_of(PLAN, calls, lines=False)
    # There is a backlog for 1,100 ms: 10 ms with both channels idle, 100 ms with one.
    assert use.span_ms == 1_100
    assert (use.used, use.allowed) == (2 * 990 + 100, 2 * 1_100)
    assert use.most == 2
    lines = use_of(PLAN, calls, lines=True)
    assert (lines.used, lines.allowed) == (2 * 1_010 + 80, 2 * 1_090)


def test_lead_that_may_not_be_called_yet_wastes_no_channel() -> None:
    calls = [call(0, 1_000), call(0, 5_000), call(4_000, 9_000, opens=4_000)]
    use = use_of(PLAN, calls, lines=False)
    assert use.share == 1.0 or use.allowed == 0
    paused_from, paused_to = (at - BEGIN for at in PLAN.paused)
    calls = [
        call(0, paused_from),
        call(0, paused_to),
        call(paused_to, paused_to + 1_000, reseller=PAUSED, due=paused_from),
    ]
    use = use_of(PLAN, calls, lines=False)
    assert use.used == use.allowed


def test_number_that_lost_channels_keeps_its_current_calls() -> None:
    plan = Plan(numbers=1, channels=5, leads=9, begins_at=BEGIN)
    shrunk_from, shrunk_to = (at - BEGIN for at in plan.shrunk)
    calls = [call(0, shrunk_to, number=RENTED) for _ in range(5)]
    calls += [call(shrunk_to, shrunk_to + 1_000, number=RENTED) for _ in range(4)]
    use = use_of(plan, calls, lines=False)
    assert use.used == use.allowed == 5 * shrunk_to
    assert shrunk_from < shrunk_to


def test_time_between_two_calls_on_a_line_is_reported_in_its_parts() -> None:
    calls = [call(0, 1_000), call(0, 1_500), call(1_100, 2_000), call(1_600, 2_000)]
    found = parts(PLAN, calls)
    assert found["end of call to next call"] == [100, 100]
    assert found["line free to line taken"] == [80, 80]
    assert found["end of call to line free"] == [10] * 4
    assert found["line taken to handed over"] == [6] * 4
    assert found["handed over to call placed"] == [4] * 4
