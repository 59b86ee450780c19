"""The arithmetic of buckets and shards, and which jobs go to the calendar."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as some

from headway.bridges.cassandra.rows import (
    FARTHEST_MS,
    GUARD_MS,
    LONGEST_WRITE_MS,
    MOST_ARGS,
    bucket_name,
    closed_through,
    deletion_stamp,
    index_seconds,
    is_far,
    job_of,
    minute_of,
    opened_through,
    place_of,
    row_of,
    shard_of,
    write_stamp,
)
from headway.core.check import LATEST
from headway.core.gates.spec import GateUse
from headway.core.job import DAY_MS, FollowUp, JobPolicy, NewJob
from headway.core.retry import RetryPolicy
from headway.core.state import State

MOMENTS = some.integers(0, LATEST)
NEAR = some.integers(1_700_000_000_000, 4_000_000_000_000)
HORIZONS = some.integers(60_000, 86_400_000)
OFF = some.integers(-2_000, 2_000)


def job(**more: object) -> NewJob:
    return NewJob(**{"id": str(uuid4()), "kind": "work", **more})  # type: ignore[arg-type]


def test_bucket_is_named_by_its_minute_in_utc() -> None:
    at = int(datetime(2026, 4, 19, 9, 0, 59, 999_000, tzinfo=UTC).timestamp() * 1000)
    assert bucket_name(minute_of(at)) == "2026-04-19-09-00"
    assert bucket_name(minute_of(at + 1)) == "2026-04-19-09-01"


@given(MOMENTS, MOMENTS)
def test_buckets_sort_by_time(one: int, two: int) -> None:
    first, second = sorted((one, two))
    assert bucket_name(minute_of(first)) <= bucket_name(minute_of(second))


def test_hot_minute_is_spread_evenly_over_its_shards() -> None:
    ids = [str(uuid4()) for _ in range(16_000)]
    counts = Counter(shard_of(id_, 16) for id_ in ids)
    assert set(counts) == set(range(16))
    assert max(counts.values()) < 1_250  # 1,000 are expected; this is 8 standard deviations above


@given(some.uuids(), MOMENTS, some.integers(1, 1_024))
def test_job_is_found_where_it_was_stored(id_: object, due: int, shards: int) -> None:
    place = place_of(str(id_), due, shards)
    assert place == place_of(str(id_), due, shards)
    assert 0 <= place.shard < shards


@given(NEAR, some.integers(0, FARTHEST_MS), HORIZONS, HORIZONS, OFF, OFF)
def test_leader_with_a_skewed_clock_reads_every_calendar_job(
    now: int, ahead: int, horizon: int, margin: int, writer: int, leader: int
) -> None:
    due = now + ahead
    far = is_far(job(due_at=due), now + writer, horizon_ms=horizon, margin_ms=margin)
    if far and ahead <= FARTHEST_MS - 2_000:
        # At the time of the write, no leader has finished its bucket yet,
        assert closed_through(now + leader + LONGEST_WRITE_MS) < minute_of(due)
        # and it is opened before the job is due.
        assert opened_through(due + leader - horizon, horizon) >= minute_of(due - 2_000)
    elif not far:
        near = ahead - writer <= horizon + margin
        assert near or ahead - writer > FARTHEST_MS


@given(NEAR, some.integers(0, LONGEST_WRITE_MS), OFF, OFF)
def test_no_deletion_covers_a_row_that_arrives_after_the_read(
    read_at: int, took: int, writer: int, leader: int
) -> None:
    began = read_at - took + writer
    assert write_stamp(began) > deletion_stamp(read_at + leader)


def test_guard_covers_the_longest_write_and_ten_seconds_of_clock_skew() -> None:
    assert GUARD_MS - LONGEST_WRITE_MS > 2 * 10_000


def test_unsuitable_jobs_stay_in_the_store() -> None:
    limits = {"horizon_ms": 900_000, "margin_ms": 120_000}
    now = 1_800_000_000_000
    assert is_far(job(due_at=now + 1_020_001), now, **limits)
    assert not is_far(job(due_at=now + 1_020_000), now, **limits)
    assert not is_far(job(), now, **limits)
    assert not is_far(job(due_at=now + DAY_MS, entry="e", fired_at=1), now, **limits)
    assert not is_far(job(due_at=now + DAY_MS, args=b"x" * (MOST_ARGS + 1)), now, **limits)
    assert is_far(job(due_at=now + FARTHEST_MS), now, **limits)
    assert not is_far(job(due_at=now + FARTHEST_MS + 1), now, **limits)


def test_index_keeps_a_job_until_a_day_after_it_is_due() -> None:
    assert index_seconds(DAY_MS, 0) == 2 * 86_400 + 1


POLICIES = some.builds(
    JobPolicy,
    retry=some.builds(RetryPolicy, attempts=some.integers(1, 9)),
    timeout_ms=some.none() | some.integers(1, 9),
    keep_ms=some.sampled_from([DAY_MS, 30 * DAY_MS]),
    on_final=some.none() | some.just(FollowUp(kind="after", states=(State.DEAD,))),
    cascade=some.booleans(),
)
JOBS = some.builds(
    NewJob,
    id=some.uuids().map(str),
    kind=some.text(min_size=1, max_size=9),
    due_at=MOMENTS,
    args=some.binary(max_size=99),
    subject=some.none() | some.text(min_size=1, max_size=9),
    priority=some.integers(0, 2**32 - 1),
    expires_at=some.none() | MOMENTS,
    key=some.none() | some.text(min_size=1, max_size=9),
    stage=some.sampled_from(["", "dial"]),
    gates=some.lists(
        some.builds(
            GateUse,
            name=some.text(min_size=1, max_size=9),
            template=some.text(min_size=1, max_size=9),
            amount=some.integers(1, 9),
            hold=some.sampled_from(["run", "settled"]),
            shared=some.booleans(),
        ),
        max_size=3,
    ).map(tuple),
    policy=POLICIES,
    candidates=some.lists(some.text(min_size=1, max_size=9), max_size=3).map(tuple),
)


@given(JOBS)
def test_job_is_restored_from_its_row_unchanged(one: NewJob) -> None:
    assert one.due_at is not None
    assert job_of(one.id, one.due_at, row_of(one)) == one


def test_job_from_the_calendar_is_kept_for_at_least_a_day() -> None:
    one = job(due_at=1, policy=JobPolicy(keep_ms=5))
    assert job_of(one.id, 1, row_of(one)).policy == JobPolicy(keep_ms=DAY_MS)


def test_equal_policies_of_rows_are_one_object() -> None:
    row = row_of(job(policy=JobPolicy(timeout_ms=7)))
    assert job_of("a", 1, row).policy is job_of("b", 1, row).policy
