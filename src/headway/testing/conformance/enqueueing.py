"""Enqueue: ids, keys, conflicts, unknown gates, all or none, backlogs, odd names."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Any

import pytest

from headway.contract.definitions import DeclareLane, LaneSpec, ResetLane, SetGate, SetLane
from headway.contract.operate import Verb
from headway.contract.store import Sent
from headway.contract.views import JobsQuery
from headway.core.errors import (
    BacklogFull,
    CallerError,
    IdConflict,
    InvalidValue,
    KeyConflict,
    PayloadTooLarge,
    UnknownGate,
)
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateSpec
from headway.core.job import (
    MAX_ARGS,
    MAX_CANDIDATES,
    MAX_GATES,
    MAX_PRIORITY,
    MAX_SHARED_GATES,
    FollowUp,
    JobPolicy,
    NewJob,
    derived_id,
)
from headway.core.retry import RetryPolicy
from headway.core.state import State
from headway.testing.clock import START_AT
from headway.testing.conformance.rig import SHORT, ConformanceGroup, Rig, policy_with
from headway.testing.conformance.worker import LANE
from headway.testing.jobs import POLICY, JobFields, use_of

LINE, PHONE = Slots("line", 3), Slots("phone:{phone}", 2)
GIVEN = (
    *("id", "kind", "lane", "tenant", "subject", "stage", "args", "priority", "due_at"),
    *("expires_at", "key", "gates", "policy"),
)
"""Fields of a view that are shown as they were sent."""
LATER = 4_000_000_000_000
ODD_NAMES = (
    "a", "a/b", "a|b", "a:b", "a'b", 'a"b', "a;b", "a,b", "a b", "a%b", "a_b", "a*b", "a\\b",
    "{a}", "{}", "a\x1fb", "a\nb", "ä", "A", "1", "01", "-1", "NULL", "tenant:a", "e\u0301",
    "\u202ea", "\U0001f4de", "a" * 500,
)  # fmt: skip
"""Names that a careless encoding could confuse."""


TAKEN = derived_id("taken")
BARE = JobFields(tenant="", subject=None, key=None, expires_at=None)
"""With these a job has nothing but its kind, lane, arguments, priority, due time and policy."""
OTHER: Any = "other"
NO_GATE = (use_of(Slots("undeclared", 1)),)
OTHER_BODIES = pytest.mark.parametrize(
    "change",
    [{"kind": "text"}, {"lane": "texts"}, {"subject": "she"}, {"args": b'{"number":0}'}],
    ids=lambda change: next(iter(change)),
)
"""Changes that make the body of a job different."""


def followed_by(policy: JobPolicy, times: int = 1) -> JobPolicy:
    """Return a policy with a follow-up of this policy, or several in a row."""
    for _ in range(times):
        policy = policy_with(on_final=FollowUp(kind="alert", policy=policy))
    return policy


class EnqueueGroup(ConformanceGroup):
    """What an enqueue creates, and what it refuses."""

    async def test_enqueued_job_is_read_back_field_by_field(self, rig: Rig) -> None:
        await rig.declare(LINE, PHONE)
        due_at = rig.clock() + 5_000
        uses = (use_of(LINE, 2, hold="run"), use_of(PHONE, phone="555"))
        job = await rig.add(due_at=due_at, stage="first", gates=uses)
        view = await rig.view(job.id)
        assert (view.id, view.kind, view.lane) == (job.id, "dial", LANE)
        assert (view.tenant, view.subject, view.stage) == ("acme", job.subject, "first")
        assert (view.priority, view.due_at, view.expires_at) == (300, due_at, job.expires_at)
        assert (view.args, view.key, view.policy) == (job.args, job.key, POLICY)
        assert view.gates == uses
        assert view.created_at == rig.clock()
        assert (view.state, view.shown) == (State.SCHEDULED, "scheduled")
        assert (view.run, view.attempt, view.life) == (0, 0, 1)
        assert (view.worker, view.finished_at, view.result) == (None, None, None)
        assert (view.runs, view.cancel_requested, view.in_doubt) == ((), False, False)

    @pytest.mark.parametrize(
        "fields",
        [
            {"kind": "text"}, {"lane": "texts"}, {"tenant": "beta"}, {"subject": None},
            {"stage": "second"}, {"args": b'{"other":1}'}, {"priority": 7}, {"due_at": 7},
            {"due_at": START_AT + 1_000}, {"expires_at": LATER}, {"key": "known"},
            {"policy": JobPolicy()}, {"gates": (use_of(LINE),)},
            {"gates": (use_of(PHONE, phone="555"),)},
            {"policy": JobPolicy(cascade=True), "candidates": ("ann", "ben")},
        ],
        ids=repr,
    )  # fmt: skip
    @pytest.mark.parametrize("others", [{}, BARE], ids=["all fields", "one field"])
    async def test_each_job_of_a_batch_keeps_its_own_fields(
        self, rig: Rig, fields: JobFields, others: JobFields
    ) -> None:
        await rig.declare(LINE, PHONE)
        own: JobFields = {**others, **fields}
        jobs = [rig.jobs.make(**others), rig.jobs.make(**own), rig.jobs.make(**others)]
        await rig.enqueue(*jobs)
        for job in jobs:
            view = await rig.view(job.id)
            assert [getattr(view, name) for name in GIVEN] == [getattr(job, name) for name in GIVEN]
            assert (view.cascade.left if view.cascade else ()) == job.candidates
        assert {jobs[0].id, jobs[2].id} <= set(await rig.worker.take_ids(9))

    async def test_enqueue_replies_in_request_order(self, rig: Rig) -> None:
        jobs = rig.jobs.many(5)
        known = jobs[3]
        await rig.enqueue(known)
        replies = await rig.enqueue(*jobs)
        assert [reply.id for reply in replies] == [job.id for job in jobs]
        assert [reply.created for reply in replies] == [job is not known for job in jobs]

    async def test_enqueue_of_nothing_does_nothing(self, rig: Rig) -> None:
        assert await rig.enqueue() == []
        assert await rig.total("enqueued") == 0

    async def test_job_without_a_due_time_is_due_now(self, rig: Rig) -> None:
        job = await rig.add(due_at=None)
        assert (await rig.view(job.id)).due_at == rig.clock()
        assert await rig.worker.take_ids() == [job.id]

    async def test_due_job_is_waiting_at_once(self, rig: Rig) -> None:
        past, now = await rig.add(), await rig.add(due_at=rig.clock())
        assert await rig.states(past, now) == [State.WAITING, State.WAITING]

    async def test_same_id_and_body_again_returns_not_created_and_writes_nothing(
        self, rig: Rig
    ) -> None:
        job = await rig.add()
        rig.clock.advance(1)
        async with rig.unchanged("jobs", "stats"):
            assert await rig.enqueue(job.changed(priority=7, due_at=9)) == [
                Sent(job.id, created=False)
            ]

    @OTHER_BODIES
    async def test_same_id_with_another_body_is_a_conflict_and_writes_nothing(
        self, rig: Rig, change: dict[str, str]
    ) -> None:
        job = await rig.add(key=None)
        fresh = rig.jobs.make()
        async with rig.refuses(IdConflict, match=job.id):
            await rig.enqueue(fresh, job.changed(**change))

    async def test_same_id_is_a_conflict_though_another_job_of_the_batch_takes_its_key(
        self, rig: Rig
    ) -> None:
        job = await rig.add(key=None)
        fresh = rig.jobs.make(args=b'{"other":1}', key="taken")
        async with rig.refuses(IdConflict, match=job.id):
            await rig.enqueue(fresh, fresh.changed(id=job.id))

    @pytest.mark.parametrize(
        "refused",
        [
            JobFields(id=TAKEN, lane="newer"),
            JobFields(key="known", lane="newer"),
            JobFields(gates=(use_of(LINE),), lane="newer"),
            JobFields(lane="full"),
        ],
        ids=["id", "key", "gate", "backlog"],
    )
    async def test_refused_enqueue_creates_no_lane(self, rig: Rig, refused: JobFields) -> None:
        await rig.define(DeclareLane(spec=LaneSpec(name="full", max_backlog=0)))
        await rig.add(id=TAKEN, key="known")
        async with rig.refuses(CallerError):
            await rig.enqueue(rig.jobs.make(lane="new"), rig.jobs.make(**refused))
        assert [lane.name for lane in (await rig.dump()).lanes] == [LANE, "full"]

    async def test_lane_stays_listed_after_its_first_job_is_forgotten(self, rig: Rig) -> None:
        job = await rig.add(key=None, due_at=rig.clock() + 9_000)
        assert [lane.name for lane in (await rig.dump()).lanes] == [LANE]
        await rig.cancel(job.id)
        await rig.pass_time(job.policy.keep_ms + 1)
        assert await rig.missing(job.id)
        assert [lane.name for lane in (await rig.dump()).lanes] == [LANE]

    async def test_key_creates_one_job_and_later_calls_get_its_id(self, rig: Rig) -> None:
        first = await rig.add()
        second = first.changed(id=rig.jobs.make().id)
        assert await rig.enqueue(second) == [Sent(first.id, created=False)]
        assert await rig.missing(second.id)
        assert await rig.total("enqueued") == 1

    async def test_key_used_twice_in_one_batch_creates_one_job(self, rig: Rig) -> None:
        first = rig.jobs.make()
        second = first.changed(id=rig.jobs.make().id)
        assert await rig.enqueue(first, second) == [
            Sent(first.id, created=True),
            Sent(first.id, created=False),
        ]

    @pytest.mark.parametrize("key", ["known", None])
    async def test_id_used_twice_in_one_batch_creates_one_job(
        self, rig: Rig, key: str | None
    ) -> None:
        job = rig.jobs.make(key=key)
        assert await rig.enqueue(job, job) == [
            Sent(job.id, created=True),
            Sent(job.id, created=False),
        ]

    async def test_racing_callers_with_one_key_create_one_job(self, rig: Rig) -> None:
        first = rig.jobs.make()
        rivals = [first.changed(id=rig.jobs.make().id) for _ in range(20)]
        replies = await asyncio.gather(*(rig.enqueue(rival) for rival in rivals))
        assert sum(reply.created for (reply,) in replies) == 1
        assert len({reply.id for (reply,) in replies}) == 1
        assert await rig.total("enqueued") == 1

    @OTHER_BODIES
    async def test_key_with_another_body_is_a_conflict_and_writes_nothing(
        self, rig: Rig, change: dict[str, str]
    ) -> None:
        job = await rig.add()
        fresh, rival = rig.jobs.make(), job.changed(id=rig.jobs.make().id)
        async with rig.refuses(KeyConflict, match=job.key):
            await rig.enqueue(fresh, rival.changed(**change))

    async def test_key_with_another_body_in_one_batch_is_a_conflict_and_writes_nothing(
        self, rig: Rig
    ) -> None:
        job = rig.jobs.make()
        rival = job.changed(id=rig.jobs.make().id, args=b'{"number":0}')
        async with rig.refuses(KeyConflict):
            await rig.enqueue(job, rival)

    async def test_same_key_names_one_job_per_tenant(self, rig: Rig) -> None:
        first = await rig.add(key="lead")
        second = await rig.add(key="lead", tenant="beta")
        for job in (first, second):
            query = JobsQuery(key="lead", tenant=job.tenant)
            page = await rig.store.read(query)
            assert [row.id for row in page.rows] == [job.id]

    async def test_key_is_valid_until_the_end_and_its_duration_after_it(self, rig: Rig) -> None:
        job = await rig.add()
        await rig.pass_time(POLICY.key_for_ms * 3 // 2)
        run = await rig.worker.take_one()
        again = job.changed(id=rig.jobs.make().id)
        assert await rig.enqueue(again) == [Sent(job.id, created=False)]
        await rig.worker.finish(run)
        await rig.pass_time(POLICY.key_for_ms - 1)
        assert await rig.enqueue(again) == [Sent(job.id, created=False)]
        await rig.pass_time(1)
        assert await rig.enqueue(again) == [Sent(again.id, created=True)]

    async def test_expired_key_is_free_before_any_sweep_and_survives_the_purge_of_its_first_job(
        self, rig: Rig
    ) -> None:
        job = await rig.add(expires_at=None)
        await rig.cancel(job.id)
        rig.clock.advance(POLICY.key_for_ms)
        other = job.changed(id=rig.jobs.make().id, args=b'{"number":0}')
        assert await rig.enqueue(other) == [Sent(other.id, created=True)]
        await rig.pass_time(POLICY.keep_ms)
        assert await rig.missing(job.id)
        again = other.changed(id=rig.jobs.make().id)
        assert await rig.enqueue(again) == [Sent(other.id, created=False)]

    async def test_key_stays_with_its_job_when_an_older_one_is_retried_and_ends_again(
        self, rig: Rig
    ) -> None:
        older = await rig.add()
        await rig.cancel(older.id)
        await rig.pass_time(POLICY.key_for_ms)
        job = older.changed(id=rig.jobs.make().id)
        assert await rig.enqueue(job) == [Sent(job.id, created=True)]
        await rig.act(Verb.RETRY, older.id)
        again = older.changed(id=rig.jobs.make().id)
        assert await rig.enqueue(again) == [Sent(job.id, created=False)]
        await rig.cancel(older.id)
        rig.clock.advance(POLICY.key_for_ms)
        assert await rig.enqueue(again) == [Sent(job.id, created=False)]
        await rig.cancel(job.id)
        await rig.act(Verb.RETRY, older.id)
        rig.clock.advance(POLICY.key_for_ms)
        assert await rig.enqueue(again) == [Sent(again.id, created=True)]

    async def test_job_is_kept_as_long_as_its_key_names_it(self, rig: Rig) -> None:
        policy = policy_with(keep_ms=1_000, key_for_ms=9_000)
        job = await rig.add(policy=policy)
        await rig.cancel(job.id)
        await rig.pass_time(8_999)
        assert await rig.state(job.id) is State.CANCELLED
        again = job.changed(id=rig.jobs.make().id)
        assert await rig.enqueue(again) == [Sent(job.id, created=False)]
        await rig.pass_time(1)
        assert await rig.missing(job.id)

    async def test_key_of_a_cascade_that_ends_at_once_lasts_its_duration(self, rig: Rig) -> None:
        job = await rig.add(policy=policy_with(cascade=True))
        assert await rig.state(job.id) is State.DEAD
        rig.clock.advance(POLICY.key_for_ms - 1)
        again = job.changed(id=rig.jobs.make().id)
        assert await rig.enqueue(again) == [Sent(job.id, created=False)]
        rig.clock.advance(1)
        assert await rig.enqueue(again) == [Sent(again.id, created=True)]

    async def test_maximum_number_of_shared_gates_and_candidates_is_accepted(
        self, rig: Rig
    ) -> None:
        specs = [Slots(f"line-{number}", 1) for number in range(MAX_SHARED_GATES + 1)]
        await rig.declare(*specs)
        gates = tuple(use_of(spec) for spec in specs)
        await rig.add(gates=gates[1:])
        with pytest.raises(InvalidValue, match="shared gates"):
            await rig.add(gates=gates)
        names = tuple(f"tech-{number}" for number in range(MAX_CANDIDATES + 1))
        cascade = policy_with(cascade=True)
        await rig.add(candidates=names[1:], policy=cascade)
        with pytest.raises(InvalidValue, match="candidates"):
            await rig.add(candidates=names, policy=cascade)

    async def test_maximum_number_of_gates_is_accepted(self, rig: Rig) -> None:
        repo = Slots("repo:{name}", 1)
        await rig.declare(repo)
        gates = tuple(use_of(repo, name=number) for number in range(MAX_GATES + 1))
        await rig.add(gates=gates[1:])
        with pytest.raises(InvalidValue, match="257 gates"):
            await rig.add(gates=gates)

    @pytest.mark.parametrize(
        ("fields", "match"),
        [
            ({"gates": (use_of(LINE, hold=OTHER),)}, "the hold of 'line' is 'other'"),
            ({"policy": JobPolicy(retry=RetryPolicy(jitter=OTHER))}, "the jitter is 'other'"),
            ({"policy": JobPolicy(on_deadline=OTHER)}, "on_deadline is 'other'"),
        ],
        ids=["hold", "jitter", "on_deadline"],
    )
    async def test_choice_that_does_not_exist_is_refused_and_writes_nothing(
        self, rig: Rig, fields: JobFields, match: str
    ) -> None:
        await rig.declare(LINE)
        async with rig.refuses(InvalidValue, match=match):
            await rig.enqueue(rig.jobs.make(), rig.jobs.make(**fields))

    async def test_unknown_gate_is_refused_and_writes_nothing(self, rig: Rig) -> None:
        known, unknown = Slots("line", 1), Slots("row:{id}", 1)
        await rig.declare(known)
        good = rig.jobs.make(gates=(known,))
        bad = rig.jobs.make(gates=(known, use_of(unknown, id=7)))
        async with rig.refuses(UnknownGate, match="row:"):
            await rig.enqueue(good, bad)

    @pytest.mark.parametrize("name", ['it\'s "x"', "it's", "a\\b", "a\nb\t\x01\x7f", "Zoë"])
    async def test_error_quotes_a_name_on_one_line(self, rig: Rig, name: str) -> None:
        async with rig.refuses(UnknownGate, match=re.escape(f"the gate {name!r} is not declared")):
            await rig.define(SetGate(name=name, capacity=1))

    @pytest.mark.parametrize(
        ("gate", "message"),
        [
            (Slots("line", 1), "the gate 'line' is shared, but the job uses it as keyed"),
            (Slots("row:{id}", 1), "the gate 'row:{id}' is keyed, but the job uses it as shared"),
        ],
        ids=["shared", "keyed"],
    )
    async def test_gate_used_differently_than_declared_is_refused(
        self, rig: Rig, gate: GateSpec, message: str
    ) -> None:
        await rig.declare(gate)
        use = replace(use_of(gate, id=7), shared=not gate.shared)
        async with rig.refuses(InvalidValue, match=re.escape(message)):
            await rig.add(gates=(use,))

    async def test_gate_named_twice_is_refused_before_its_amount(self, rig: Rig) -> None:
        gate = Slots("line", 1)
        await rig.declare(gate)
        uses = (replace(use_of(gate), amount=0), use_of(gate))
        async with rig.refuses(InvalidValue, match="names a gate twice: line, line"):
            await rig.add(gates=uses)

    @pytest.mark.parametrize(
        "fields",
        [
            {"id": "no uuid"},
            {"kind": ""},
            {"lane": ""},
            {"lane": "a" * 513},
            {"stage": "nul\0"},
            {"policy": JobPolicy(reconcile="")},
            {"policy": JobPolicy(on_final=FollowUp(kind="nul\0"))},
            {"policy": JobPolicy(start_within_ms=0)},
            {"policy": JobPolicy(timeout_ms=0)},
            {"policy": JobPolicy(on_final=FollowUp(kind="alert", lane=""))},
            {"policy": JobPolicy(cascade=True, on_accepted=FollowUp(kind="a" * 513))},
            {"tenant": "nul\0"},
            {"key": ""},
            {"subject": "\ud800"},
            {"priority": -1},
            {"priority": MAX_PRIORITY + 1},
            {"due_at": -1},
            {"gates": (use_of(LINE), use_of(LINE))},
            {"gates": (use_of(LINE, 0),)},
            {"gates": (use_of(LINE, -3),)},
            {"gates": tuple(use_of(Slots(f"gate-{n}", 1)) for n in range(9))},
            {"candidates": ("ann", "ann")},
        ],
        ids=repr,
    )
    async def test_invalid_job_is_refused_and_writes_nothing(
        self, rig: Rig, fields: JobFields
    ) -> None:
        await rig.declare(LINE, *(Slots(f"gate-{n}", 1) for n in range(9)))
        async with rig.refuses(InvalidValue):
            await rig.enqueue(rig.jobs.make(), rig.jobs.make(**fields))

    @pytest.mark.parametrize(
        ("policy", "text"),
        [
            (followed_by(JobPolicy(timeout_ms=0)), "timeout is less than 1 ms"),
            (followed_by(JobPolicy(reconcile="nul\0"), 3), "contains NUL"),
            (followed_by(JobPolicy(cascade=True)), "cascade"),
            (followed_by(JobPolicy(keep_ms=1), 4), "'alert' is number 4 in its chain"),
        ],
        ids=["of_the_first", "of_the_third", "a_cascade", "four_in_a_row"],
    )
    async def test_job_with_an_invalid_policy_of_a_follow_up_is_refused(
        self, rig: Rig, policy: JobPolicy, text: str
    ) -> None:
        with pytest.raises(InvalidValue, match=text):
            await rig.add(policy=policy)
        assert (await rig.dump()).jobs == ()

    async def test_arguments_above_the_limit_are_refused_and_at_it_are_kept(self, rig: Rig) -> None:
        with pytest.raises(PayloadTooLarge):
            await rig.add(args=b'"' + b"x" * (MAX_ARGS - 1) + b'"')
        job = await rig.add(args=b'"' + b"x" * (MAX_ARGS - 2) + b'"')
        assert len((await rig.view(job.id)).args) == MAX_ARGS

    async def test_batch_of_a_thousand_is_one_step(self, rig: Rig) -> None:
        jobs = rig.jobs.many(1000)
        clash = rig.jobs.make().changed(id=jobs[0].id)
        async with rig.refuses(IdConflict):
            await rig.enqueue(*jobs[:-1], clash)
        replies = await rig.enqueue(*jobs)
        assert all(reply.created for reply in replies)
        assert await rig.total("enqueued") == 1000

    @pytest.mark.parametrize("lane", [LANE, "new"])
    @pytest.mark.parametrize(
        "late",
        [{"id": TAKEN, "kind": "other"}, {"key": "known", "kind": "other"}, {"gates": NO_GATE}],
        ids=["id", "key", "gate"],
    )
    async def test_job_refused_late_in_a_large_batch_undoes_the_batch(
        self, rig: Rig, late: JobFields, lane: str
    ) -> None:
        await rig.add(id=TAKEN, key="known")
        jobs = rig.jobs.many(300, lane=lane)
        with pytest.raises(CallerError):
            await rig.enqueue(*jobs[:270], rig.jobs.make(**late), *jobs[270:])
        assert await rig.total("enqueued") == 1
        assert await rig.missing(jobs[0].id)
        assert [lane.name for lane in (await rig.dump()).lanes] == [LANE]
        replies = await rig.enqueue(*jobs)
        assert all(reply.created for reply in replies)
        assert await rig.total("enqueued") == 301
        assert await rig.worker.take_ids(1) == [TAKEN]

    async def test_jobs_of_a_large_batch_are_compared_with_each_other(self, rig: Rig) -> None:
        await rig.add()
        jobs = rig.jobs.many(300)
        jobs[1] = jobs[1].changed(key="known")
        jobs[270], jobs[271] = jobs[0], jobs[1].changed(id=TAKEN)
        replies = await rig.enqueue(*jobs)
        assert replies[270] == Sent(jobs[0].id, created=False)
        assert replies[271] == Sent(jobs[1].id, created=False)
        assert [reply.created for reply in replies].count(False) == 2
        assert await rig.total("enqueued") == 1 + 298
        started = await rig.worker.take(1000)
        expected = [job.id for job in (*jobs[:270], *jobs[272:])]
        assert [one.id for one in started[1:]] == expected

    async def test_full_backlog_refuses_a_large_batch_by_its_size(self, rig: Rig) -> None:
        await rig.define(DeclareLane(spec=LaneSpec(name=LANE, max_backlog=500)))
        await rig.add_many(2)
        with pytest.raises(BacklogFull, match="2 jobs of at most 500; 600 more are refused"):
            await rig.enqueue(*rig.jobs.many(600))
        assert await rig.total("enqueued") == 2
        assert len(await rig.worker.take(9)) == 2

    async def test_full_backlog_refuses_the_whole_batch(self, rig: Rig) -> None:
        await rig.define(DeclareLane(spec=LaneSpec(name=LANE, max_backlog=3)))
        await rig.add_many(2)
        batch = [rig.jobs.make(lane="texts"), *rig.jobs.many(2)]
        async with rig.refuses(BacklogFull, match=LANE):
            await rig.enqueue(*batch)
        await rig.enqueue(*batch[:2])
        with pytest.raises(BacklogFull):
            await rig.enqueue(batch[2])

    async def test_full_backlog_answers_a_repeat_of_a_stored_job(self, rig: Rig) -> None:
        await rig.define(DeclareLane(spec=LaneSpec(name=LANE, max_backlog=2)))
        jobs = await rig.add_many(2)
        again = jobs[1].changed(id=rig.jobs.make().id)
        replies = await rig.enqueue(jobs[0], again)
        assert replies == [Sent(jobs[0].id, created=False), Sent(jobs[1].id, created=False)]

    async def test_operators_backlog_applies_until_the_lane_is_reset(self, rig: Rig) -> None:
        await rig.add(subject=None, **SHORT)
        await rig.define(SetLane(spec=LaneSpec(name=LANE, max_backlog=2)))
        await rig.add(subject=None, **SHORT)
        async with rig.refuses(BacklogFull, match=LANE):
            await rig.add(subject=None, **SHORT)
        await rig.define(ResetLane(name=LANE))
        await rig.add(subject=None, **SHORT)
        assert len(await rig.worker.take(9)) == 3

    async def test_finished_jobs_make_room_in_a_backlog(self, rig: Rig) -> None:
        await rig.define(DeclareLane(spec=LaneSpec(name=LANE, max_backlog=1)))
        job = await rig.add()
        await rig.cancel(job.id)
        other = await rig.add()
        assert await rig.state(other.id) is State.WAITING

    async def test_lane_is_created_with_its_first_job(self, rig: Rig) -> None:
        job = await rig.add(lane="never heard of")
        assert await rig.worker.take_ids(1, "never heard of") == [job.id]

    async def test_priorities_and_times_keep_their_whole_range(self, rig: Rig) -> None:
        last = await rig.add(priority=MAX_PRIORITY, due_at=0)
        first = await rig.add(priority=0, due_at=rig.clock())
        far = await rig.add(due_at=253_402_300_799_999, expires_at=None)
        assert await rig.worker.take_ids(5) == [first.id, last.id]
        assert (await rig.view(last.id)).priority == MAX_PRIORITY
        assert (await rig.view(far.id)).due_at == 253_402_300_799_999

    async def test_arguments_are_returned_byte_for_byte(self, rig: Rig) -> None:
        args = b'{"b": 1,\n "a":"\xc3\xa4\\u0000"}'
        run = await rig.start(args=args)
        assert (run.args, (await rig.view(run.id)).args) == (args, args)

    async def test_odd_lanes_and_tenants_stay_distinct(self, rig: Rig) -> None:
        made: dict[tuple[str, str], NewJob] = {}
        for one in ODD_NAMES:
            for lane, tenant in ((one, "x"), ("x", one), (f"x{one}", "y"), ("x", f"{one}y")):
                made[lane, tenant] = await rig.add(lane=lane, tenant=tenant, key=f"{lane}{tenant}")
        for lane in sorted({lane for lane, _ in made}):
            expected = {job.id for job in made.values() if job.lane == lane}
            assert set(await rig.worker.take_ids(1000, lane)) == expected

    async def test_odd_keys_kinds_and_subjects_stay_distinct(self, rig: Rig) -> None:
        jobs = [
            await rig.add(key=name, kind=name, subject=name, expires_at=None) for name in ODD_NAMES
        ]
        for job in jobs:
            for query in (
                JobsQuery(key=job.key, tenant="acme"),
                JobsQuery(subject=job.subject, tenant="acme"),
                JobsQuery(kind=job.kind),
            ):
                rows = (await rig.store.read(query)).rows
                assert [row.id for row in rows] == [job.id]
