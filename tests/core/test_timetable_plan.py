"""The plan: its tick meets every fire, and it shows what other ticks miss."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headway.core.timetable.plan import make_plan, next_fire
from headway.core.timetable.schedule import At, Cron, Every

NOW = 1_767_225_600_000  # 2026-01-01T00:00:00Z
HOUR = 3_600_000
MINUTE = 60_000


def test_tick_divides_periods_and_offsets_and_shows_what_others_miss():
    plan = make_plan({"a": Cron("0 * * * *"), "b": Cron("20 * * * *")}, NOW)
    assert (plan.tick_ms, plan.cycle_ms) == (20 * MINUTE, HOUR)
    assert plan.by_tick.missed == 0
    assert plan.by_periods is not None
    assert (plan.by_periods.tick_ms, plan.by_periods.met, plan.by_periods.missed) == (HOUR, 1, 1)
    assert plan.by_cycle == plan.by_periods


def test_tick_at_the_least_common_multiple_misses_most():
    plan = make_plan({"a": Every(20 * MINUTE), "b": Every(30 * MINUTE)}, NOW)
    assert (plan.tick_ms, plan.cycle_ms) == (10 * MINUTE, HOUR)
    assert plan.by_cycle is not None
    assert (plan.by_cycle.tick_ms, plan.by_cycle.met, plan.by_cycle.missed) == (HOUR, 2, 3)


def test_irregular_schedule_makes_the_tick_a_minute_without_a_cycle():
    plan = make_plan({"a": Every(2 * HOUR), "b": At("09:00", tz="Europe/Berlin")}, NOW)
    assert (plan.tick_ms, plan.cycle_ms, plan.by_cycle) == (MINUTE, None, None)
    assert plan.entries[1].period_ms is None
    assert plan.entries[1].next[0] == NOW + 8 * HOUR


def test_empty_plan():
    plan = make_plan({}, NOW)
    assert (plan.tick_ms, plan.cycle_ms, plan.by_periods) == (MINUTE, None, None)
    assert next_fire([], NOW) is None


@given(
    st.lists(
        st.tuples(st.sampled_from((5, 12, 15, 20, 30, 45, 60, 90)), st.integers(0, 59)),
        min_size=1,
        max_size=5,
    )
)
def test_tick_meets_every_fire_and_no_longer_divisor_does(entries):
    schedules = {
        str(number): Every(period * MINUTE, anchor_at=offset * MINUTE)
        for number, (period, offset) in enumerate(entries)
    }
    plan = make_plan(schedules, NOW)
    assert plan.by_tick.missed == 0
    # By brute force, without the code's arithmetic: twice the tick misses some fires.
    twice = 2 * plan.tick_ms
    fires = {
        offset * MINUTE + n * period * MINUTE for period, offset in entries for n in range(2000)
    }
    assert any(at % twice for at in fires)
