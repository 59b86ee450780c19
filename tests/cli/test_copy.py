"""`headway copy`: the content of a stopped store is copied into an empty one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

import headway as hw
from headway.cli.commands.migrate import copy_store
from headway.cli.options import Signed
from headway.cli.progress import silent
from headway.contract.claims import ClaimRequest
from headway.contract.definitions import (
    CloseGate,
    DeclareGate,
    DefineRequest,
    OpenGate,
)
from headway.contract.extensions import ExportChunk, Movable
from headway.contract.operate import ActRequest, Edit, Verb
from headway.contract.signals import SignalResult
from headway.contract.views import GatesQuery, GateState
from headway.core.errors import InvalidState, OutcomeUnknown, StoreUnavailable
from headway.core.state import State
from headway.stores import open_store
from headway.testing.clock import FakeClock
from headway.testing.conformance.moving import busy, standing
from headway.testing.conformance.rig import Rig
from headway.testing.conformance.worker import LEASE_MS
from headway.testing.dump import Dump, dump
from tests.cli.conftest import Headway
from tests.plain_jobs import job
from tests.servers.fixtures import made
from tests.servers.redis import RedisServer
from tests.servers.stores import DURABLE, NewUrl

PAIRS = [pytest.param(*pair, id=f"{pair[0]}-{pair[1]}") for pair in product(DURABLE, DURABLE)]

OLD, NEW = "sqlite:///old.db", "sqlite:///new.db"


@pytest.fixture
def old(folder: Path) -> str:
    app = hw.App(OLD)

    @app.job(gates=[hw.Slots("lines", 2)])
    async def call(phone: str) -> None: ...

    with app:
        for number in range(5):
            app.send(call, phone=str(number), key=f"k{number}")
    return OLD


def test_copy_copies_everything_and_closes_its_source(headway: Headway, old: str) -> None:
    ran = headway("copy", old, NEW)
    assert (ran.code, ran.out) == (0, "5 jobs copied\n")
    assert "FROM is paused" in ran.err

    async def both() -> None:
        first, second = open_store(OLD), open_store(NEW)
        was, now = await dump(first), await dump(second)
        assert now.jobs == was.jobs
        closed = {gate.name: gate.closed_until is not None for gate in was.gates}
        assert closed["all"]
        assert not any(gate.closed_until for gate in now.gates)
        request = ClaimRequest(worker="w", request=1, lanes=(("main", 1),), n=9, free=9)
        assert (await first.claim(request)).jobs == []
        assert len((await second.claim(request)).jobs) == 2
        await first.close()
        await second.close()

    asyncio.run(both())


def test_copy_as_json_reports_rows_and_jobs(headway: Headway, old: str) -> None:
    document = headway("--json", "copy", old, NEW).document
    assert document["jobs"] == {"waiting": 5}
    assert document["rows"]["jobs"] == 5
    assert document["rows"]["templates"] == 1


def test_copy_to_a_store_that_is_not_empty_is_refused(headway: Headway, old: str) -> None:
    assert headway("copy", old, NEW).code == 0
    ran = headway("copy", old, NEW)
    assert ran.code != 0
    assert "is not empty" in ran.err


def test_copy_to_a_store_in_which_only_a_gate_was_closed_is_refused(
    headway: Headway, old: str
) -> None:
    assert headway("migrate", "--store", NEW).code == 0
    assert headway("pause", "lane:main", "--store", NEW).code == 0
    ran = headway("copy", old, NEW)
    assert (ran.code, ran.out) == (2, "")
    assert "is not empty" in ran.err


def test_copy_of_a_store_with_a_live_worker_is_refused(headway: Headway, old: str) -> None:
    async def work() -> None:
        store = open_store(OLD)
        for worker, hours in (("v", 1), ("w", 9), ("x", 2)):
            lease_ms = hours * 3_600_000 + 1_800_000
            await store.claim(
                ClaimRequest(
                    worker=worker, request=1, lanes=(("main", 1),), n=1, free=1, lease_ms=lease_ms
                )
            )
        await store.close()

    asyncio.run(work())
    ran = headway("copy", old, NEW)
    assert ran.code != 0
    assert "3 workers live" in ran.err
    assert "wait until their leases have ended, in 9h" in " ".join(ran.err.split())
    assert "closed" not in headway("--store", OLD, "gates").out


def test_copy_onto_itself_and_from_nothing_are_refused(headway: Headway, folder: Path) -> None:
    assert "are the same" in headway("copy", OLD, OLD).err
    ran = headway("copy", "sqlite:///nothing.db", NEW)
    assert "there is no store at" in ran.err
    assert not (folder / "nothing.db").exists()


@pytest.mark.parametrize("kind", DURABLE)
def test_empty_store_is_neither_copied_nor_closed(
    headway: Headway, new_url: NewUrl, old: str, kind: str
) -> None:
    url = new_url(kind)
    assert headway("migrate", "--store", url).code == 0
    ran = headway("copy", url, OLD)
    assert ran.code == 2
    assert "the store to copy from is empty" in ran.err
    assert "closed" not in headway("--store", url, "gates").out
    assert headway("copy", OLD, url).code == 0


@pytest.mark.parametrize("line", [(OLD, "memory://"), ("memory://", NEW)])
def test_store_without_persistence_cannot_be_copied_from_or_to(
    headway: Headway, old: str, line: tuple[str, str]
) -> None:
    ran = headway("copy", *line)
    assert ran.code == 2
    assert "ends with this command" in ran.err
    assert "closed" not in headway("--store", OLD, "gates").out


@pytest.mark.parametrize(("kind", "other"), PAIRS)
def test_command_copies_between_any_two_kinds(
    headway: Headway, new_url: NewUrl, folder: Path, kind: str, other: str
) -> None:
    source, target = new_url(kind), new_url(other)
    assert headway("send", "noop", "n=1", "--key", "k", "--store", source).code == 0
    assert headway("pause", "lane:main", "--store", source).code == 0
    ran = headway("copy", source, target, "--reason", "a larger disk")
    assert (ran.code, ran.out) == (0, "1 job copied\n")
    assert headway("jobs", "--store", target).out == headway("jobs", "--store", source).out
    gates = headway("gates", "--store", target, "--json").document["gates"]
    shut = {gate["name"] for gate in gates if gate["closed_until"] is not None}
    assert shut == {"lane:main"}
    again = headway("send", "noop", "n=1", "--key", "k", "--store", target, "--json").document
    assert again["created"] == 0
    assert headway("audit", "--store", target).code == 0
    twice = headway("copy", source, target)
    assert twice.code == 2
    assert "the store to copy to is not empty" in twice.err


def test_closed_store_stays_closed_in_the_copy_and_this_is_reported(
    headway: Headway, old: str
) -> None:
    line = ("pause", "all", "--until", "2h", "--reason", "a drill")
    assert headway(*line, "--store", old).code == 0
    ran = headway("copy", old, NEW)
    assert ran.code == 0
    assert "TO is paused, as FROM was" in ran.err

    def closing(url: str) -> tuple[object, object]:
        gates = headway("gates", "--store", url, "--json").document["gates"]
        (gate,) = [one for one in gates if one["name"] == "all"]
        return gate["closed_until"], gate["closed_reason"]

    until, reason = closing(NEW)
    assert isinstance(until, int)
    assert reason == "a drill"
    assert closing(old) == (253_402_300_800_000, "copied to another store")


def closed(gates: tuple[GateState, ...]) -> set[str]:
    return {gate.name for gate in gates if gate.closed_until is not None}


async def test_failed_copy_leaves_the_source_open_and_the_target_closed(
    new_url: NewUrl,
) -> None:
    clock = FakeClock()
    source = Rig(open_store(new_url("sqlite"), clock=clock), clock)
    target = Rig(open_store(new_url("sqlite"), clock=clock), clock)
    job = await source.add()

    def fail(done: float, total: float | None = None) -> None:
        if done == total:
            message = "the target is gone"
            raise StoreUnavailable(message)

    with pytest.raises(StoreUnavailable, match="the target is gone"):
        await copy_store(source.store, target.store, "the tester", Signed(), fail)
    assert closed((await target.dump()).gates) == {"all"}
    assert closed((await source.dump()).gates) == set()
    assert await source.new_worker().take_ids(9) == [job.id]
    for rig in (source, target):
        await rig.store.close()


@pytest.mark.parametrize("change", ["a job", "an edit", "a definition"])
@pytest.mark.parametrize("kind", DURABLE)
async def test_copy_of_a_store_that_is_changed_meanwhile_is_refused(
    new_url: NewUrl, kind: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = open_store(new_url(kind)), open_store(new_url("sqlite"))
    await source.enqueue([job(1)])
    assert isinstance(source, Movable)
    export = source.export_chunk

    async def export_all(cursor: str | None) -> ExportChunk:
        chunk = await export(cursor)
        if chunk.cursor is None:
            if change == "a job":
                await source.enqueue([job(2)])
            elif change == "an edit":
                await source.act(
                    ActRequest(
                        request="edit",
                        ids=(job(1).id,),
                        verb=Verb.EDIT,
                        edit=Edit(priority=1),
                        author="me",
                    )
                )
            else:
                spec = hw.Slots("lines", 1)
                await source.define(DefineRequest(items=(DeclareGate(spec=spec),), author="me"))
        return chunk

    monkeypatch.setattr(source, "export_chunk", export_all)
    with pytest.raises(InvalidState, match="was changed while it was copied"):
        await copy_store(source, target, "the tester", Signed(), silent)
    assert closed((await source.read(GatesQuery())).rows) == set()
    for store in (source, target):
        await store.close()


@pytest.mark.parametrize("interrupted", [False, True])
async def test_copy_whose_source_stops_says_that_it_stays_paused(
    new_url: NewUrl, *, interrupted: bool
) -> None:
    with made(RedisServer) as server:
        source = open_store(f"{server.url}?patience_ms=500")
        target = open_store(new_url("sqlite"))
        await source.enqueue([job(1)])

        def kill(*_: object) -> None:
            server.kill()
            if interrupted:
                raise asyncio.CancelledError

        with pytest.raises(StoreUnavailable, match=r"its source stays paused: \S") as error:
            await copy_store(source, target, "the tester", Signed(), kill)
        assert "`headway resume all --store FROM`" in error.value.hint
        for store in (source, target):
            await store.close()


async def test_copy_whose_closed_source_stops_does_not_advise_to_open_it(new_url: NewUrl) -> None:
    with made(RedisServer) as server:
        source = open_store(f"{server.url}?patience_ms=500")
        target = open_store(new_url("sqlite"))
        await source.enqueue([job(1)])
        await source.define(DefineRequest(items=(CloseGate(name="all"),), author="me"))
        with pytest.raises(StoreUnavailable, match=r"its source stays paused: \S") as error:
            await copy_store(source, target, "the tester", Signed(), lambda *_: server.kill())
        assert error.value.hint == "it was paused before, too; copy again to an empty store"
        for store in (source, target):
            await store.close()


async def test_source_is_open_after_a_copy_that_lost_the_reply_to_its_closing(
    new_url: NewUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = open_store(new_url("sqlite")), open_store(new_url("sqlite"))
    await source.enqueue([job(1)])
    define = source.define

    async def lose_reply(request: DefineRequest) -> int:
        defined = await define(request)
        if isinstance(request.items[0], CloseGate):
            message = "the reply was lost"
            raise OutcomeUnknown(message)
        return defined

    monkeypatch.setattr(source, "define", lose_reply)
    with pytest.raises(OutcomeUnknown, match="the reply was lost"):
        await copy_store(source, target, "the tester", Signed(), silent)
    assert closed((await source.read(GatesQuery())).rows) == set()
    for store in (source, target):
        await store.close()


@pytest.mark.parametrize("failure", [StoreUnavailable("no route"), asyncio.CancelledError()])
async def test_copy_that_cannot_open_its_target_says_how_to_do_that(
    new_url: NewUrl, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    source, target = open_store(new_url("sqlite")), open_store(new_url("sqlite"))
    await source.enqueue([job(1)])
    define = target.define

    async def fail(request: DefineRequest) -> int:
        if isinstance(request.items[0], OpenGate):
            raise failure
        return await define(request)

    monkeypatch.setattr(target, "define", fail)
    with pytest.raises(StoreUnavailable, match="everything is copied, but TO is") as error:
        await copy_store(source, target, "the tester", Signed(), silent)
    assert "`headway resume all --store TO`" in error.value.hint
    for store in (source, target):
        assert closed((await store.read(GatesQuery())).rows) == {"all"}
        await store.close()


@pytest.mark.parametrize("kind", DURABLE)
async def test_copy_returns_the_jobs_of_dead_workers(new_url: NewUrl, kind: str) -> None:
    clock = FakeClock()
    source = Rig(open_store(new_url(kind), clock=clock), clock)
    target = Rig(open_store(new_url("sqlite"), clock=clock), clock)
    job = await source.add()
    await source.new_worker().take(1)
    with pytest.raises(InvalidState, match="1 worker lives"):
        await copy_store(source.store, target.store, "the tester", Signed(), silent)
    clock.advance(LEASE_MS)
    copied = await copy_store(source.store, target.store, "the tester", Signed(), silent)
    assert not copied.closed
    assert await target.state(job.id) in {State.SCHEDULED, State.WAITING}
    assert (await target.view(job.id)).runs[0].outcome == "lost"
    for rig in (source, target):
        await rig.check()
        await rig.store.close()


def carried(all_of_it: Dump) -> Dump:
    """Return what a copy must show: all but the gate that was closed for it, and its trail."""
    gates = tuple(gate for gate in all_of_it.gates if gate.name != "all")
    trail = tuple(row for row in all_of_it.trail if row.target != "all")
    kept = replace(standing(all_of_it), gates=gates, trail=trail)
    return replace(kept, jobs=tuple(replace(job, shown=job.state) for job in kept.jobs))


@pytest.mark.parametrize(("kind", "other"), PAIRS)
async def test_everything_is_copied_between_any_two_kinds_and_continues(
    new_url: NewUrl, kind: str, other: str
) -> None:
    # Both first: a missing server skips the test, and no store may be open then.
    from_url, to_url = new_url(kind), new_url(other)
    clock = FakeClock()
    source = Rig(open_store(from_url, clock=clock), clock)
    target = Rig(open_store(to_url, clock=clock), clock)
    ids = await busy(source)
    # Its workers are gone, and their jobs have been taken back.
    await source.pass_time(LEASE_MS)
    copied = await copy_store(source.store, target.store, "the tester", Signed(), silent)
    assert copied.rows["jobs"] == sum(copied.counts.values())
    assert carried(await target.dump()) == carried(await source.dump())
    assert (await target.signal("call-1")).answer is SignalResult.APPLIED
    assert await target.state(ids["call"]) is State.SUCCEEDED
    assert await target.new_worker().take_ids(9) != []
    assert await source.new_worker().take_ids(9) == []
    for rig in (source, target):
        await rig.check()
        await rig.store.close()
