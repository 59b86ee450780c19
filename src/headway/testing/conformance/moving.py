"""Moving: the whole content of a store, carried to an empty one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from headway.contract.definitions import (
    DeclareEntry,
    DeclareLane,
    EntrySpec,
    FireRequest,
    LaneSpec,
    NoteUse,
    ResetLane,
    SetLane,
    SetToken,
)
from headway.contract.moving import ExportChunk, Movable
from headway.contract.outcomes import Failed, HandedOver, Succeeded
from headway.contract.signals import Decided, Heard, Signal
from headway.contract.views import TimetableQuery
from headway.core.errors import InvalidValue
from headway.core.gates.hours import hours_spec
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateKind, GateSpec
from headway.core.retry import RetryPolicy
from headway.core.state import State
from headway.core.timetable.schedule import Every
from headway.testing.conformance.accepting import LOCK, accepted, ref
from headway.testing.conformance.base import ConformanceGroup
from headway.testing.conformance.granting import ORDERS, SENDER
from headway.testing.conformance.played import dial, policy_with
from headway.testing.conformance.rig import MakeStore, Rig
from headway.testing.conformance.worker import LANE
from headway.testing.dump import Dump, unnumbered
from headway.testing.jobs import use_of

LINE = Slots("line", 2)
PHONE = Slots("phone:{phone}", 1)
NUMBERS = Pool("numbers", {"a": 1, "b": 2})
OFTEN = Rate("often:{phone}", 2, "1h")
OFFICE = GateSpec(
    name="hours:office",
    kind=GateKind.HOURS,
    shared=True,
    hours=hours_spec("00:00-24:00", tz="Europe/Berlin"),
)


async def carry(source: Rig, target: Rig, times: int = 1) -> list[ExportChunk]:
    """Carry everything; each chunk is put in so many times, as after a lost reply."""
    assert isinstance(source.store, Movable)
    assert isinstance(target.store, Movable)
    chunks: list[ExportChunk] = []
    cursor: str | None = None
    while True:
        chunk = await source.store.export_chunk(cursor)
        chunks.append(chunk)
        for _ in range(times):
            await target.store.import_chunk(chunk)
        cursor = chunk.cursor
        if cursor is None:
            return chunks


def standing(dump: Dump) -> Dump:
    """What a copy must show: all but workers, and how often definitions were changed.

    Rows get new numbers: a copy has none of the gaps that undone steps left.
    """
    lanes = tuple(replace(lane, workers=0) for lane in dump.lanes)
    stats = replace(dump.stats, revision=0)
    return replace(unnumbered(dump), workers=(), lanes=lanes, stats=stats)


async def busy(rig: Rig) -> dict[str, str]:
    """A store in which there is some of everything.

    Returns:
        Ids of jobs by what they are.
    """
    await rig.declare(LINE, PHONE, NUMBERS, OFTEN, OFFICE)
    await rig.define(
        DeclareLane(spec=LaneSpec(name="fair", fair="tenant", weights=(("acme", 2),))),
        DeclareEntry(
            spec=EntrySpec(
                name="nightly", schedule=Every(60_000), job=rig.jobs.make(expires_at=None, key=None)
            )
        ),
        SetLane(spec=LaneSpec(name="quiet", concurrency=1)),
        ResetLane(name="quiet"),
        SetToken(spec=ORDERS),
        SetToken(spec=SENDER),
        NoteUse(used=((SENDER.id, rig.clock()),)),
    )
    call = await dial(
        rig,
        gates=(use_of(NUMBERS), use_of(PHONE, phone="1"), use_of(OFTEN, phone="1"), use_of(OFFICE)),
    )
    parked = await rig.add(gates=(use_of(PHONE, phone="1"),), priority=2)
    for tenant in ("acme", "beta"):
        await rig.add_many(2, lane="fair", tenant=tenant)
    fair = rig.new_worker()
    for run in await fair.take(3, "fair"):
        await fair.say(Succeeded(run.id, run.run))
    worker = rig.new_worker()
    await worker.take(5)
    failing = await rig.add(priority=0, policy=policy_with(retry=RetryPolicy(attempts=2)))
    await worker.take_and_say(Failed, error="boom")
    keyed = await rig.add(key="k1", tenant="acme", due_at=rig.clock() + 5_000)
    called_off = await rig.add()
    await rig.cancel(called_off.id)
    await rig.cap("all", 50)
    await rig.shut("tenant:beta", rig.clock() + 90_000)
    await rig.tell("call-not-there-yet", event="early")
    (entry,) = await rig.store.read(TimetableQuery())
    await rig.store.fire(
        FireRequest(
            entry="nightly",
            revision=entry.revision,
            moments=(rig.clock() + 60_000,),
            ahead_until=rig.clock() + 60_000,
        )
    )
    return {
        "call": call.id,
        "parked": parked.id,
        "failing": failing.id,
        "keyed": keyed.id,
        "cancelled": called_off.id,
    }


class MovingGroup(ConformanceGroup):
    """A copy is the store, but for its workers."""

    @pytest_asyncio.fixture
    async def target(self, rig: Rig, make_store: MakeStore) -> AsyncIterator[Rig]:
        """A second store, empty, at the same moment."""
        store = make_store(rig.clock)
        target = Rig(store, rig.clock)
        # The copy goes on with new jobs, not with those that it has been given.
        target.jobs = rig.jobs
        try:
            yield target
            await target.check()
        finally:
            await store.close()

    async def test_copy_tells_all_that_the_store_told(self, rig: Rig, target: Rig) -> None:
        await busy(rig)
        await carry(rig, target)
        assert standing(await target.dump()) == standing(await rig.dump())

    async def test_chunk_imported_twice_is_written_once(self, rig: Rig, target: Rig) -> None:
        await busy(rig)
        await carry(rig, target, times=2)
        assert standing(await target.dump()) == standing(await rig.dump())

    async def test_copy_goes_on_where_the_store_stood(self, rig: Rig, target: Rig) -> None:
        ids = await busy(rig)
        await carry(rig, target)
        assert await target.state(ids["parked"]) is State.PARKED
        assert (await target.tell("call-1")).answer is Heard.APPLIED
        assert await target.state(ids["call"]) is State.SUCCEEDED
        assert await target.used("numbers") == 0
        worker = target.worker()
        assert await worker.take_ids() == [ids["parked"]]
        again = target.jobs.make(key="k1", tenant="acme")
        kept = await target.view(ids["keyed"])
        same = replace(again, kind=kept.kind, lane=kept.lane, subject=kept.subject, args=kept.args)
        assert await target.enqueue(same) == [(ids["keyed"], False)]
        assert (await target.tell("call-1", event="event-x")).answer is Heard.LATE

    async def test_copy_knows_how_often_a_rate_was_used_and_what_was_heard_early(
        self, rig: Rig, target: Rig
    ) -> None:
        await busy(rig)
        await carry(rig, target)
        await target.tell("call-1")
        first, second = [
            await target.add(gates=(use_of(OFTEN, phone="1"),), priority=0) for _ in range(2)
        ]
        worker = target.worker()
        taken = await worker.take_ids(5)
        assert first.id in taken
        assert second.id not in taken
        early = await dial(target, key="call-not-there-yet")
        assert await target.state(early.id) is State.SUCCEEDED

    async def test_accepted_job_goes_on_awaiting_its_end_in_the_copy(
        self, rig: Rig, target: Rig
    ) -> None:
        run = await accepted(rig, "ann", "bob")
        waiting = await rig.add()
        kept = Signal(
            key="later",
            event="busy",
            decided=Decided.RETRY,
            after_ms=0,
            stage="check",
            gates=(use_of(LOCK),),
        )
        await rig.store.signal(kept)
        await carry(rig, target)
        assert standing(await target.dump()) == standing(await rig.dump())
        worker = target.worker()
        assert waiting.id in await worker.take_ids(9)
        await worker.say(HandedOver(waiting.id, 1, key="later", timeout_ms=60_000))
        moved = await target.view(waiting.id)
        assert (moved.state, moved.stage, moved.gates) == (State.WAITING, "check", kept.gates)
        assert (await target.tell(ref(run), Decided.ACCEPTED, event="sms")).answer is Heard.LATE
        await target.pass_time(1_000_000)
        assert await target.holders("lock:ann") == [run.id]
        assert (await target.tell(ref(run), event="done")).state == State.SUCCEEDED
        assert await target.used("lock:ann") == 0

    async def test_large_store_is_copied_in_chunks(self, rig: Rig, target: Rig) -> None:
        jobs = [job for n in (1000, 1000, 300) for job in await rig.add_many(n, lane=LANE)]
        chunks = await carry(rig, target)
        assert [one.size for one in chunks if one.part == "jobs"] == [1000, 1000, 300]
        assert await target.worker().take_ids(3) == [job.id for job in jobs[:3]]

    async def test_invalid_cursor_and_chunk_are_refused(self, rig: Rig) -> None:
        assert isinstance(rig.store, Movable)
        with pytest.raises(InvalidValue, match="not a cursor"):
            await rig.store.export_chunk("nonsense")
        chunk = ExportChunk(part="jobs", rows=b"\x91\x01", size=1, cursor=None)
        with pytest.raises(InvalidValue, match="cannot be read"):
            await rig.store.import_chunk(chunk)
        with pytest.raises(InvalidValue, match="'toys'"):
            await rig.store.import_chunk(replace(chunk, part="toys"))
