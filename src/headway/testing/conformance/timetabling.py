"""Timetable: each time fires once; overlap is decided when a fire falls due."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Unpack

import pytest

from headway.contract.definitions import (
    DeclareEntry,
    EnableEntry,
    EntrySpec,
    FireReply,
    FireRequest,
    Overlap,
    RemoveEntry,
)
from headway.contract.operate import Acted, Edit, Verb
from headway.contract.outcomes import Failed, HandedOver, Succeeded
from headway.contract.views import EntryView, JobView, TimetableQuery
from headway.core.check import LATEST
from headway.core.errors import InvalidValue, UnknownEntry, UnknownGate
from headway.core.gates.slots import Slots
from headway.core.job import MAX_BATCH, JobPolicy, derived_id, ids_after
from headway.core.naming import MAX_NAME
from headway.core.state import State
from headway.core.timetable.fires import MisfirePolicy
from headway.core.timetable.schedule import Every
from headway.testing.clock import START_AT
from headway.testing.conformance.rig import ConformanceGroup, Rig, take_ids
from headway.testing.conformance.worker import LANE
from headway.testing.jobs import JobFields, use_of

MINUTE_MS = 60_000
NAME = "nightly"


async def declare(
    rig: Rig,
    interval_ms: int = MINUTE_MS,
    *,
    overlap: Overlap = "all",
    misfire: MisfirePolicy = MisfirePolicy.ALL,
    cap: int = 100,
    **fields: Unpack[JobFields],
) -> EntryView:
    """Declare the entry under test, and return it as the store shows it."""
    own: JobFields = {"due_at": None, "expires_at": None, "key": None, **fields}
    spec = EntrySpec(
        name=NAME,
        schedule=Every(interval_ms),
        job=rig.jobs.make(**own),
        overlap=overlap,
        misfire=misfire,
        misfire_cap=cap,
    )
    await rig.define(DeclareEntry(spec=spec))
    return await the_entry(rig)


async def create_fires(rig: Rig, *minutes: int, overlap: Overlap = "all") -> EntryView:
    """Declare the entry under test, and insert its fires at these minutes."""
    entry = await declare(rig, overlap=overlap)
    await fire(rig, entry.revision, *minutes)
    return entry


async def the_entry(rig: Rig) -> EntryView:
    """Return the only entry of the timetable."""
    (entry,) = await rig.store.read(TimetableQuery())
    return entry


def minute(number: int) -> int:
    """Return the time this many minutes after the clock's start."""
    return START_AT + number * MINUTE_MS


async def fire(rig: Rig, revision: int, *minutes: int, ahead: int = 1_000) -> FireReply:
    """Insert fires at these minutes after the clock's start, as all fires up to `ahead`."""
    moments = tuple(minute(number) for number in minutes)
    return await rig.store.fire(
        FireRequest(entry=NAME, revision=revision, moments=moments, ahead_until=minute(ahead))
    )


async def fired(rig: Rig) -> list[JobView]:
    """Return the jobs created by the entry, by fire time."""
    jobs = [job for job in (await rig.dump()).jobs if job.entry == NAME]
    return sorted(jobs, key=lambda job: job.fired_at or 0)


class TimetableGroup(ConformanceGroup):
    """Fires are inserted ahead as scheduled jobs."""

    async def test_fires_are_stored_as_scheduled_jobs(self, rig: Rig) -> None:
        entry = await declare(rig)
        assert (entry.last_fired, entry.first_seen_at) == (None, rig.clock())
        reply = await fire(rig, entry.revision, 1, 2, 3)
        moments = tuple(minute(n) for n in (1, 2, 3))
        assert (reply.fired, reply.current) == (moments, True)
        jobs = await fired(rig)
        assert [(job.state, job.due_at, job.fired_at) for job in jobs] == [
            (State.SCHEDULED, moment, moment) for moment in moments
        ]
        assert len({job.id for job in jobs}) == 3
        assert {(job.kind, job.lane, job.tenant) for job in jobs} == {("dial", LANE, "acme")}
        entry = await the_entry(rig)
        assert (entry.last_fired, entry.ahead_until) == (moments[-1], minute(1_000))

    async def test_fire_starts_at_its_time(self, rig: Rig) -> None:
        await create_fires(rig, 1)
        rig.clock.advance(MINUTE_MS - 1)
        assert await rig.worker.take(5) == []
        rig.clock.advance(1)
        run = await rig.worker.take_one()
        assert run.due_at == minute(1)

    async def test_expired_fire_does_not_start(self, rig: Rig) -> None:
        entry = await declare(rig, expires_at=MINUTE_MS)
        await fire(rig, entry.revision, 1)
        for _ in range(2):
            await rig.add(expires_at=None)
            await rig.worker.take_one()
        rig.clock.advance(2 * MINUTE_MS)
        assert await rig.worker.take(5) == []
        (expired,) = await fired(rig)
        assert (expired.state, expired.reason, expired.run) == (State.DEAD, "expired", 0)

    async def test_retry_of_a_fire_starts_after_its_expiry(self, rig: Rig) -> None:
        entry = await declare(rig, expires_at=MINUTE_MS)
        await fire(rig, entry.revision, 1)
        rig.clock.advance(MINUTE_MS)
        run = await rig.worker.take_and_report(Failed, after_ms=5 * MINUTE_MS)
        rig.clock.advance(5 * MINUTE_MS)
        assert await rig.worker.take_ids(5) == [run.id]

    async def test_time_not_later_than_the_last_fired_is_refused(self, rig: Rig) -> None:
        entry = await create_fires(rig, 1, 2)
        reply = await fire(rig, entry.revision, 1, 2, 3)
        assert reply.fired == (minute(3),)
        assert (await fire(rig, entry.revision, 3)).fired == ()
        assert len(await fired(rig)) == 3

    async def test_each_time_fires_once_even_if_its_job_ids_are_taken(self, rig: Rig) -> None:
        entry = await declare(rig)
        place = ("fire", NAME, entry.first_seen_at, entry.revision)
        first, second = (derived_id(*place, minute(number)) for number in (1, 2))
        await take_ids(rig, first, *ids_after(first, 2))
        # A job with the same body as the entry's fires that is not a fire.
        job = entry.spec.job
        await rig.add(id=second, kind=job.kind, subject=job.subject, args=job.args, key=None)
        moments = (minute(1), minute(2), minute(3))
        assert (await fire(rig, entry.revision, 1, 2, 3)).fired == moments
        assert (await fire(rig, entry.revision, 1, 2, 3)).fired == ()
        jobs = await fired(rig)
        assert [(job.state, job.due_at, job.fired_at) for job in jobs] == [
            (State.SCHEDULED, moment, moment) for moment in moments
        ]

    async def test_many_schedulers_fire_each_time_once(self, rig: Rig) -> None:
        entry = await declare(rig)
        replies = await asyncio.gather(*(fire(rig, entry.revision, 1, 2, 3) for _ in range(10)))
        assert sum(len(reply.fired) for reply in replies) == 3
        assert len(await fired(rig)) == 3

    async def test_fire_under_an_old_revision_is_refused(self, rig: Rig) -> None:
        old = await declare(rig)
        new = await declare(rig, 2 * MINUTE_MS)
        assert new.revision != old.revision
        reply = await fire(rig, old.revision, 1)
        assert (reply.fired, reply.current) == ((), False)
        assert await fired(rig) == []

    async def test_fire_of_an_unknown_entry_or_a_future_revision_is_refused(self, rig: Rig) -> None:
        reply = await fire(rig, 1, 1)
        assert (reply.fired, reply.current) == ((), False)
        entry = await declare(rig)
        reply = await fire(rig, entry.revision + 1, 1)
        assert (reply.fired, reply.current) == ((), False)

    async def test_fires_of_a_job_with_a_key_are_separate_jobs(self, rig: Rig) -> None:
        entry = await declare(rig, key="nightly")
        await fire(rig, entry.revision, 1, 2)
        assert len(await fired(rig)) == 2

    async def test_expiry_of_a_fire_counts_from_its_time(self, rig: Rig) -> None:
        entry = await declare(rig, expires_at=5_000)
        await fire(rig, entry.revision, 1, 2)
        assert [(job.due_at, job.expires_at) for job in await fired(rig)] == [
            (minute(1), minute(1) + 5_000),
            (minute(2), minute(2) + 5_000),
        ]

    async def test_expiry_of_a_fire_is_at_most_the_latest_time(self, rig: Rig) -> None:
        entry = await declare(rig, expires_at=LATEST)
        await fire(rig, entry.revision, 1)
        assert [job.expires_at for job in await fired(rig)] == [LATEST]

    async def test_entry_whose_fires_could_not_be_stored_is_refused(self, rig: Rig) -> None:
        async with rig.refuses(InvalidValue, match="kind"):
            await declare(rig, kind="")
        other: Any = "other"
        async with rig.refuses(InvalidValue, match="overlap is 'other'"):
            await declare(rig, overlap=other)
        assert await rig.store.read(TimetableQuery()) == ()

    async def test_entry_whose_fires_would_be_refused_at_a_gate_is_refused(self, rig: Rig) -> None:
        line, number = Slots("line", 2), Slots("number:{candidate}", 1)
        await rig.declare(line, number)
        own, turn, unknown = use_of(line), use_of(number), use_of(Slots("undeclared", 1))
        with pytest.raises(UnknownGate, match="needs the gate 'undeclared'"):
            await declare(rig, gates=(unknown,))
        for gates, match in (
            ((own, own), "names a gate twice"),
            ((replace(own, amount=0),), "the amount of 'line' is 0"),
            ((replace(own, shared=False),), "'line' is shared, but the job uses it as keyed"),
        ):
            with pytest.raises(InvalidValue, match=match):
                await declare(rig, gates=gates)
        with pytest.raises(InvalidValue, match="gate has"):
            await declare(
                rig,
                gates=(turn,),
                policy=JobPolicy(cascade=True),
                candidates=("a", "b" * (MAX_NAME - 3)),
            )
        assert await rig.store.read(TimetableQuery()) == ()
        # Above the capacity it would wait, as any other job: the capacity may be raised.
        entry = await declare(rig, gates=(replace(own, amount=3),))
        with pytest.raises(UnknownGate):
            await declare(rig, gates=(unknown,))
        assert await the_entry(rig) == entry
        assert (await fire(rig, entry.revision, 1)).fired == (minute(1),)

    async def test_slower_scheduler_does_not_withdraw_fires_laid_ahead(self, rig: Rig) -> None:
        entry = await declare(rig)
        await fire(rig, entry.revision, 1, 2, ahead=9)
        await fire(rig, entry.revision, 1, ahead=4)
        assert (await the_entry(rig)).ahead_until == minute(9)

    async def test_unchanged_redeclared_entry_keeps_its_revision_and_fires(self, rig: Rig) -> None:
        job = rig.jobs.make(due_at=None, key=None)
        spec = EntrySpec(name=NAME, schedule=Every(MINUTE_MS), job=job)
        await rig.define(DeclareEntry(spec=spec))
        first = await the_entry(rig)
        await fire(rig, first.revision, 1)
        await rig.define(DeclareEntry(spec=spec))
        assert (await the_entry(rig)).revision == first.revision
        assert [job.state for job in await fired(rig)] == [State.SCHEDULED]

    async def test_changed_entry_drops_its_queued_fires(self, rig: Rig) -> None:
        await create_fires(rig, 1, 2, 3, 4)
        rig.clock.advance(MINUTE_MS)
        run = await rig.worker.take_one()
        new = await declare(rig, 3 * MINUTE_MS)
        reply = await fire(rig, new.revision, 3)
        assert reply.fired == (minute(3),)
        await rig.worker.finish(run)
        rig.clock.advance(10 * MINUTE_MS)
        run = await rig.worker.take_one()
        assert run.due_at == minute(3)
        assert await rig.worker.take(5) == []

    async def test_changed_entry_never_repeats_a_fired_time(self, rig: Rig) -> None:
        await create_fires(rig, 1, 2)
        rig.clock.advance(2 * MINUTE_MS)
        assert len(await rig.worker.take(5)) == 2
        new = await declare(rig, 2 * MINUTE_MS)
        assert (await fire(rig, new.revision, 2)).fired == ()
        assert len((await fire(rig, new.revision, 4)).fired) == 1

    async def test_changed_schedule_missed_nothing_but_changed_job_keeps_what_it_missed(
        self, rig: Rig
    ) -> None:
        old = await declare(rig)
        await fire(rig, old.revision, 1, ahead=1)
        rig.clock.advance(5 * MINUTE_MS)
        assert (await declare(rig, overlap="one")).ahead_until is None
        new = await declare(rig, 2 * MINUTE_MS, overlap="one")
        assert new.ahead_until == minute(5)
        await rig.define(RemoveEntry(name=NAME))
        rig.clock.advance(MINUTE_MS)
        assert (await declare(rig)).ahead_until == minute(6)

    async def test_changed_schedule_fires_before_the_next_fire_of_the_former_one(
        self, rig: Rig
    ) -> None:
        old = await declare(rig, 30 * MINUTE_MS)
        await fire(rig, old.revision, 30)
        rig.clock.advance(MINUTE_MS)
        new = await declare(rig, 2 * MINUTE_MS)
        assert len((await fire(rig, new.revision, 2, 4)).fired) == 2
        await rig.define(RemoveEntry(name=NAME))
        rig.clock.advance(MINUTE_MS)
        again = await declare(rig, MINUTE_MS)
        assert len((await fire(rig, again.revision, 3)).fired) == 1

    @pytest.mark.parametrize("how", ["cancelled", "run", "running", "awaiting"])
    @pytest.mark.parametrize("changes", [1, 2])
    async def test_changed_entry_never_repeats_a_fire_that_was_cancelled_or_run_early(
        self, rig: Rig, how: str, changes: int
    ) -> None:
        await create_fires(rig, 1, 2, 3)
        early = (await fired(rig))[1].id
        if how == "cancelled":
            await rig.cancel(early)
        else:
            assert await rig.act(Verb.RUN_NOW, early) == [Acted.DONE]
            run = await rig.worker.take_one()
            if how == "run":
                await rig.worker.finish(run)
            elif how == "awaiting":
                await rig.worker.report(HandedOver(run.id, run.run, key="k", timeout_ms=9_999_999))
        for change in range(1, changes + 1):
            new = await declare(rig, MINUTE_MS // (change + 1))
            assert (await fire(rig, new.revision, 1, 2, 3)).fired == (minute(1), minute(3))
        queued = [job.fired_at for job in await fired(rig) if job.state is State.SCHEDULED]
        assert queued == [minute(1), minute(3)]

    async def test_changed_entry_keeps_a_fire_that_will_be_retried(self, rig: Rig) -> None:
        await create_fires(rig, 1, 2)
        rig.clock.advance(MINUTE_MS)
        run = await rig.worker.take_and_report(Failed, after_ms=30_000)
        new = await declare(rig, 2 * MINUTE_MS)
        assert (await fire(rig, new.revision, 1)).fired == ()
        rig.clock.advance(30_000)
        again = await rig.worker.take_one()
        assert (again.id, again.attempt) == (run.id, 2)

    async def test_disabled_entry_drops_its_queued_fires(self, rig: Rig) -> None:
        await create_fires(rig, 1, 2)
        await rig.define(EnableEntry(name=NAME, enabled=False))
        off = await the_entry(rig)
        assert off.spec.enabled is False
        assert (await fire(rig, off.revision, 3)).fired == ()
        rig.clock.advance(5 * MINUTE_MS)
        assert await rig.worker.take(5) == []
        await rig.define(EnableEntry(name=NAME, enabled=True))
        on = await the_entry(rig)
        assert len((await fire(rig, on.revision, 6)).fired) == 1
        rig.clock.advance(MINUTE_MS)
        assert len(await rig.worker.take(5)) == 1

    async def test_removed_entry_remembers_its_last_fired_time(self, rig: Rig) -> None:
        entry = await create_fires(rig, 1, 2)
        rig.clock.advance(2 * MINUTE_MS)
        assert len(await rig.worker.take(5)) == 2
        await rig.define(RemoveEntry(name=NAME))
        assert await rig.store.read(TimetableQuery()) == ()
        assert (await fire(rig, entry.revision, 3)).fired == ()
        again = await declare(rig)
        assert (await fire(rig, again.revision, 1, 2)).fired == ()
        assert len((await fire(rig, again.revision, 3)).fired) == 1

    async def test_entries_are_read_by_name(self, rig: Rig) -> None:
        first = await declare(rig)
        others = [replace(first.spec, name=name) for name in ("a", "z", "gone")]
        await rig.define(*(DeclareEntry(spec=spec) for spec in others), RemoveEntry(name="gone"))
        every = await rig.store.read(TimetableQuery())
        assert [one.spec.name for one in every] == ["a", NAME, "z"]
        names = ("z", "gone", "unknown", NAME, "z")
        assert await rig.store.read(TimetableQuery(names=names)) == every[1:]
        assert await rig.store.read(TimetableQuery(names=())) == ()

    async def test_removed_entry_drops_its_queued_fires(self, rig: Rig) -> None:
        await create_fires(rig, 1, 2)
        await rig.define(RemoveEntry(name=NAME))
        rig.clock.advance(5 * MINUTE_MS)
        assert await rig.worker.take(5) == []

    async def test_change_of_an_unknown_entry_is_refused(self, rig: Rig) -> None:
        with pytest.raises(UnknownEntry):
            await rig.define(EnableEntry(name=NAME, enabled=True))

    @pytest.mark.parametrize("holding", ["waiting", "running", "awaiting", "retrying"])
    async def test_fire_folds_into_an_earlier_one_that_waits_or_runs(
        self, rig: Rig, holding: str
    ) -> None:
        await create_fires(rig, 1, 2, 3, overlap="skip")
        await rig.pass_time(MINUTE_MS)
        first = (await fired(rig))[0].id
        if holding != "waiting":
            run = await rig.worker.take_one()
            if holding == "running":
                await rig.worker.beat(run, lease_ms=9 * MINUTE_MS)
            elif holding == "awaiting":
                await rig.worker.report(HandedOver(run.id, run.run, key="k", timeout_ms=9_999_999))
            elif holding == "retrying":
                await rig.worker.report(Failed(run.id, run.run, after_ms=5 * MINUTE_MS))
        await rig.pass_time(2 * MINUTE_MS)
        got = [run.id for run in await rig.worker.take(5)]
        assert got == ([first] if holding == "waiting" else [])
        assert (await the_entry(rig)).folded == 2
        assert await rig.total("folded") == 2

    async def test_edited_fire_that_is_due_still_folds_into_an_earlier_one(self, rig: Rig) -> None:
        await create_fires(rig, 1, 2, overlap="skip")
        rig.clock.advance(MINUTE_MS)
        await rig.worker.take_one()
        rig.clock.advance(MINUTE_MS)
        _, second = await fired(rig)
        assert await rig.act(Verb.EDIT, second.id, edit=Edit(priority=1)) == [Acted.DONE]
        assert await rig.worker.take(9) == []
        assert (await the_entry(rig)).folded == 1

    async def test_fire_after_the_earlier_one_ended_is_not_folded(self, rig: Rig) -> None:
        await create_fires(rig, 1, 2, 3, overlap="skip")
        for _ in range(3):
            rig.clock.advance(MINUTE_MS)
            await rig.worker.take_and_report(Succeeded)
        assert (await the_entry(rig)).folded == 0

    @pytest.mark.parametrize("change", ["schedule", "job", "off", "removed"])
    async def test_fire_dropped_by_a_change_of_its_entry_is_not_folded(
        self, rig: Rig, change: str
    ) -> None:
        await create_fires(rig, 1, 2, 3, 4, overlap="skip")
        await rig.pass_time(2 * MINUTE_MS)
        assert (await the_entry(rig)).folded == 1
        if change == "schedule":
            await declare(rig, 3 * MINUTE_MS, overlap="skip")
        elif change == "job":
            await declare(rig, overlap="one")
        elif change == "off":
            await rig.define(EnableEntry(name=NAME, enabled=False))
        else:
            await rig.define(RemoveEntry(name=NAME))
            await declare(rig, overlap="skip")
        reasons = [job.reason for job in await fired(rig) if job.state is State.CANCELLED]
        assert sorted(reasons) == ["folded", "the entry changed", "the entry changed"]
        assert (await the_entry(rig)).folded == 1
        assert await rig.total("folded") == 1
        assert await rig.total("cancelled") == 3

    async def test_long_run_is_followed_by_one_run_and_not_by_four(self, rig: Rig) -> None:
        await create_fires(rig, 1, 2, 3, 4, 5, overlap="skip")
        rig.clock.advance(MINUTE_MS)
        run = await rig.worker.take_one()
        for _ in range(3):
            await rig.worker.beat(run, lease_ms=2 * MINUTE_MS)
            await rig.pass_time(MINUTE_MS)
        await rig.worker.finish(run)
        rig.clock.advance(MINUTE_MS)
        run = await rig.worker.take_one()
        assert run.due_at == minute(5)
        assert (await the_entry(rig)).folded == 3

    @pytest.mark.parametrize("sweeps", [1, 3], ids=["at once", "one after another"])
    async def test_overlap_one_lets_one_fire_wait_behind_the_running_one(
        self, rig: Rig, sweeps: int
    ) -> None:
        await create_fires(rig, 1, 2, 3, 4, overlap="one")
        rig.clock.advance(MINUTE_MS)
        run = await rig.worker.take_one()
        await rig.worker.beat(run, lease_ms=9 * MINUTE_MS)
        await rig.cap(f"lane:{LANE}", 0)
        for _ in range(sweeps):
            await rig.pass_time(3 * MINUTE_MS // sweeps)
        states = [job.state for job in await fired(rig)]
        assert states == [State.RUNNING, State.WAITING, State.CANCELLED, State.CANCELLED]
        assert (await the_entry(rig)).folded == 2

    async def test_first_of_several_due_fires_is_kept(self, rig: Rig) -> None:
        entry = await declare(rig, MINUTE_MS // 2, overlap="skip")
        moments = (minute(1), minute(1) + MINUTE_MS // 2)
        await rig.store.fire(
            FireRequest(entry=NAME, revision=entry.revision, moments=moments, ahead_until=minute(9))
        )
        rig.clock.advance(MINUTE_MS + MINUTE_MS // 2)
        assert [run.due_at for run in await rig.worker.take(5)] == [moments[0]]

    async def test_overlap_all_lets_every_fire_run(self, rig: Rig) -> None:
        await create_fires(rig, 1, 2, 3, overlap="all")
        rig.clock.advance(3 * MINUTE_MS)
        assert len(await rig.worker.take(5)) == 3

    @pytest.mark.parametrize(
        ("misfire", "cap", "expected"),
        [
            (MisfirePolicy.SKIP, 100, []),
            (MisfirePolicy.ONCE, 100, [4]),
            (MisfirePolicy.ALL, 100, [1, 2, 3, 4]),
            (MisfirePolicy.ALL, 2, [3, 4]),
            (MisfirePolicy.ALL, 0, []),
        ],
    )
    async def test_misfire_policy_decides_before_anything_is_dispatched(
        self, rig: Rig, misfire: MisfirePolicy, cap: int, expected: list[int]
    ) -> None:
        entry = await declare(rig, misfire=misfire, cap=cap)
        await fire(rig, entry.revision, 1, 2, ahead=2)
        rig.clock.advance(60 * MINUTE_MS)
        assert await rig.worker.take(9) == []
        await fire(rig, entry.revision, 3, 4, ahead=60)
        runs = await rig.worker.take(9)
        assert [run.due_at for run in runs] == [minute(number) for number in expected]
        assert (await the_entry(rig)).folded == 4 - len(expected)

    async def test_fires_of_an_outage_also_fold_by_overlap(self, rig: Rig) -> None:
        await create_fires(rig, 1, 2, 3, 4, overlap="skip")
        rig.clock.advance(60 * MINUTE_MS)
        assert len(await rig.worker.take(9)) == 1
        assert (await the_entry(rig)).folded == 3

    @pytest.mark.parametrize("misfire", MisfirePolicy)
    async def test_postponed_fire_is_no_missed_fire(self, rig: Rig, misfire: MisfirePolicy) -> None:
        entry = await declare(rig, misfire=misfire, cap=0)
        await fire(rig, entry.revision, 1)
        (job,) = await fired(rig)
        await rig.act(Verb.EDIT, job.id, edit=Edit(due_at=minute(60)))
        rig.clock.advance(60 * MINUTE_MS)
        assert await rig.worker.take_ids(9) == [job.id]

    @pytest.mark.parametrize("misfire", MisfirePolicy)
    async def test_retry_of_a_fire_is_no_missed_fire(
        self, rig: Rig, misfire: MisfirePolicy
    ) -> None:
        entry = await declare(rig, misfire=misfire, cap=0)
        await fire(rig, entry.revision, 1, 5)
        rig.clock.advance(MINUTE_MS)
        first = await rig.worker.take_and_report(Failed, after_ms=4 * MINUTE_MS)
        rig.clock.advance(4 * MINUTE_MS)
        runs = await rig.worker.take(9)
        assert [(run.id == first.id, run.run) for run in runs] == [(True, 2), (False, 1)]
        assert (await the_entry(rig)).folded == 0

    async def test_retry_of_a_fire_is_no_missed_fire_among_many_due_jobs(self, rig: Rig) -> None:
        entry = await declare(rig, misfire=MisfirePolicy.SKIP)
        await fire(rig, entry.revision, 1, 2)
        rig.clock.advance(MINUTE_MS)
        first = await rig.worker.take_and_report(Failed, after_ms=4 * MINUTE_MS)
        await rig.add_many(MAX_BATCH, due_at=minute(4))
        rig.clock.advance(60 * MINUTE_MS)
        await rig.worker.take(MAX_BATCH)
        await rig.worker.take(MAX_BATCH)
        states = [(job.id == first.id, job.run, job.state) for job in await fired(rig)]
        assert states == [(True, 2, State.RUNNING), (False, 0, State.CANCELLED)]

    @pytest.mark.parametrize("overlap", ["skip", "one"])
    async def test_fire_due_before_a_retry_does_not_replace_it(
        self, rig: Rig, overlap: Overlap
    ) -> None:
        entry = await declare(rig, overlap=overlap, misfire=MisfirePolicy.ONCE)
        await fire(rig, entry.revision, 1, 2)
        rig.clock.advance(MINUTE_MS)
        first = await rig.worker.take_and_report(Failed, after_ms=MINUTE_MS + 1)
        rig.clock.advance(MINUTE_MS + 1)
        assert await rig.worker.take_ids(9) == [first.id]
        assert (await the_entry(rig)).folded == 1

    async def test_missed_fires_are_decided_together_among_many_due_jobs(self, rig: Rig) -> None:
        entry = await declare(rig, misfire=MisfirePolicy.ONCE)
        await fire(rig, entry.revision, 1, 3)
        await rig.add_many(MAX_BATCH, due_at=minute(2))
        rig.clock.advance(60 * MINUTE_MS)
        await rig.worker.take(MAX_BATCH)
        await rig.worker.take(MAX_BATCH)
        states = [(job.fired_at, job.state) for job in await fired(rig)]
        assert sorted(states) == [(minute(1), State.CANCELLED), (minute(3), State.RUNNING)]

    async def test_fires_pass_the_gates_of_the_entrys_job(self, rig: Rig) -> None:
        solo = Slots("solo", 1)
        await rig.declare(solo)
        entry = await declare(rig, gates=(solo,))
        await fire(rig, entry.revision, 1, 2)
        rig.clock.advance(2 * MINUTE_MS)
        run = await rig.worker.take_one()
        assert await rig.worker.take(5) == []
        await rig.worker.finish(run)
        assert len(await rig.worker.take(5)) == 1
